"""The loop of `fleetlog watch`: draws several times a second on a terminal, prints a line for each event elsewhere."""

import queue
import time
from typing import Final

from fleetlog.asking import Asking
from fleetlog.choosing import within_its_pool
from fleetlog.output import Item, Output
from fleetlog.problems import no_answer
from fleetlog.telling import subject, tell
from fleetlog.verb import Call, gateway_url
from fleetlog.watching.fleet import FleetWatcher
from fleetlog.when import clock

DRAWN_PER_S: Final = 4
FIRST_WAIT_S: Final = 10.0


def watch_fleet(call: Call, where: str) -> None:
    """Watches until Ctrl-C, or until `--timeout` is over. Raises Problem where there is no gateway, or no such pool."""
    within_its_pool(call, where)
    url, token = call.url or gateway_url(), call.token()
    # What is wrong at the beginning is said at once; later troubles are waited out.
    call.gateway.get("/v1/pools", limit=1)
    told: queue.SimpleQueue[Item] = queue.SimpleQueue()
    on_event = None if call.out.terminal and not call.out.as_json else told.put
    watcher = FleetWatcher(lambda: Asking(url, token), call.pool, where, on_event).start()
    try:
        if on_event is None:
            _draw(watcher, url, call.out, call.timeout_s)
        else:
            _print(told, watcher, call.out, call.timeout_s)
    finally:
        watcher.stop()


def _draw(watcher: FleetWatcher, url: str, out: Output, limit_s: float | None) -> None:
    from rich.live import Live

    from fleetlog.watching.screen import draw

    console = out.console()
    give_up = None if limit_s is None else time.monotonic() + limit_s
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while give_up is None or time.monotonic() < give_up:
            live.update(draw(watcher.picture(), console.size.height, url), refresh=True)
            time.sleep(1 / DRAWN_PER_S)


def _print(told: "queue.SimpleQueue[Item]", watcher: FleetWatcher, out: Output, limit_s: float | None) -> None:
    give_up = None if limit_s is None else time.monotonic() + limit_s
    if not watcher.follows.wait(FIRST_WAIT_S if limit_s is None else limit_s):
        raise no_answer(watcher.picture().trouble or "the stream of events does not begin: see /readyz of the gateway.")
    while give_up is None or time.monotonic() < give_up:
        try:
            event = told.get(timeout=0.5 if give_up is None else max(0.0, min(0.5, give_up - time.monotonic())))
        except queue.Empty:
            out.stop_if_nobody_reads()
            continue
        if out.as_json:
            out.json(event)
        else:
            out.text(f"{clock(event['occurred_at'])}\t{subject(event)}\t{tell(event)}")
