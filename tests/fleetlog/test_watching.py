"""The live view: what it knows of a fleet, and how that is drawn, whatever the height of the terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import time
from typing import Any

import pytest
from rich.console import Console

from fleetlog.asking import Asking
from fleetlog.watching.fleet import FleetWatcher, Picture
from fleetlog.watching.screen import draw
from tests.fleetlog.conftest import PROGRAM, CommandLine
from tests.fleetlog.world import World
from tests.support.fleet import Fleet, until
from tests.support.ports import free_port

SINCE = "2026-11-30T12:09:23.048Z"


def drawn(picture: Picture, height: int) -> list[str]:
    """The lines of the view."""
    out = io.StringIO()
    Console(file=out, width=110, height=height, color_system=None).print(draw(picture, height, "http://127.0.0.1:8780"))
    return out.getvalue().splitlines()


def robot(name: str, state: str = "IDLE") -> dict[str, Any]:
    """A robot as the gateway shows it."""
    return {"id": name, "state": state, "used": 0, "slots": 4, "since_at": SINCE}


def event(kind: str, at: int = 1_796_040_971_773, **fields: Any) -> dict[str, Any]:
    """An event as stored."""
    return {"type": f"{kind}.v1", "pool": "p", "sequence": at, "occurred_at": at, **fields}


def test_robots_show_what_they_run() -> None:
    """State, slots, a bar for each task with progress, its attempt where it is not the first, and the note."""
    held = {"id": "t1", "state": "RUNNING", "attempt": 2, "progress": 50, "note": "half way"}
    picture = Picture(
        "p", (robot("r1", "BUSY"), robot("r2")), {"r1": (held, {"id": "t2", "state": "ASSIGNED"})}, {"WAITING": 1200}
    )
    lines = drawn(picture, 30)
    text = "\n".join(lines)

    assert re.search(r"r1 +BUSY +0/4 +━{20} +50 % +t1 +attempt 2 +half way", text)
    assert re.search(r"^ +assigned +t2", text, re.MULTILINE)
    assert re.search(r"r2 +IDLE", text)
    assert "WAITING 1,200" in text


@pytest.mark.parametrize("height", [16, 24, 50])
def test_the_view_fits_the_terminal(height: int) -> None:
    """Hundreds of robots and events: never higher than the terminal; what was left out is counted."""
    robots = tuple(robot(f"r{number}") for number in range(200))
    events = tuple(event("LeaseExpired", 1000 + number, task=f"t{number}", robot="r1") for number in range(200))
    lines = drawn(Picture("p", robots, events=events), height)

    assert len(lines) <= height
    assert re.search(r"\.\.\. and \d+ more", "\n".join(lines))
    assert "t199" in "\n".join(lines)


def test_an_empty_pool_and_trouble_are_said() -> None:
    """Nothing there is no blank screen; a gateway that went away stands in the view."""
    text = "\n".join(drawn(Picture("p", trouble="no gateway answers at x."), 30))

    assert "no robot has said hello yet" in text
    assert "nothing has happened yet" in text
    assert "no gateway answers at x." in text


def test_completions_are_lines_until_there_are_many() -> None:
    """At a few a second each has a line; at many they are a figure, and other events stay to be seen."""
    watcher = FleetWatcher(lambda: Asking("http://127.0.0.1:1"), "p")
    watcher._take(event("LeaseExpired", 1, task="lost", robot="r1"))
    watcher._take(event("TaskCompleted", 2, task="t0", robot="r1"))
    few = [one["task"] for one in watcher.picture().events]
    for number in range(100):
        watcher._take(event("TaskCompleted", 3 + number, task=f"t{number}", robot="r1"))
    many = watcher.picture()

    assert few == ["lost", "t0"]
    assert [one["task"] for one in many.events] == ["lost"]
    assert many.rate > 10


def test_the_watcher_follows_a_fleet(fleet: Fleet, pool: str) -> None:
    """Robots, what they hold, figures and events of one pool."""
    world = World(fleet, pool)
    world.hold("order-17")
    seen: list[Any] = []
    watcher = FleetWatcher(lambda: Asking(fleet.url), pool, on_event=seen.append).start()
    try:
        assert watcher.follows.wait(60)
        world.hold("order-23")
        picture = until(lambda: "RUNNING" in (now := watcher.picture()).tasks and now.held and now, "a task that runs")
        assert [task["id"] for task in picture.held["worker"]] == ["order-23"]
        assert picture.tasks == {"COMPLETED": 1, "RUNNING": 1}
        assert picture.trouble is None
        until(lambda: "LeaseStarted.v1" in [one["type"] for one in seen], "its events")
        assert {one["pool"] for one in seen} == {pool}
    finally:
        watcher.stop()
        world.close()


def test_a_gateway_that_is_away_is_trouble_not_the_end() -> None:
    """The view goes on and says what is wrong."""
    watcher = FleetWatcher(lambda: Asking(f"http://127.0.0.1:{free_port()}"), "p").start()
    try:
        trouble = until(lambda: watcher.picture().trouble, "trouble")
    finally:
        watcher.stop()

    assert trouble.startswith("no gateway answers at http://127.0.0.1:")


def test_a_pipe_gets_lines_and_the_time_ends_it(cli: CommandLine, pool: str) -> None:
    """Without a terminal: a line for each event, JSON with --json; --timeout ends it with 0."""
    cli("pool", "create", pool)
    watching = subprocess.Popen([PROGRAM, "watch", "--json", "--timeout", "20"], stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    give_up = time.monotonic() + 60
    while watching.poll() is None and time.monotonic() < give_up:
        cli("submit", "k")
        os.set_blocking(watching.stdout.fileno(), False)
        line = watching.stdout.readline()
        if line:
            assert '"type":"TaskSubmitted.v1"' in line
            break
    watching.terminate()
    watching.wait(60)

    assert "no gateway answers" in cli("watch", "--gateway", f"http://127.0.0.1:{free_port()}").err
    assert cli("watch", "--timeout", "0.5").code == 0


def test_it_ends_when_its_reader_has_gone(cli: CommandLine, pool: str) -> None:
    """`watch | head -1`: without another event to print it ends by itself, with 0 and without a word."""
    cli("pool", "create", pool)
    watching = subprocess.Popen([PROGRAM, "watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stderr is not None
    lines = watching.stdout
    os.set_blocking(lines.fileno(), False)
    until(lambda: cli("submit", "k").code == 0 and lines.readline(), "a line")
    lines.close()

    assert watching.wait(60) == 0
    assert watching.stderr.read() == ""


def test_a_terminal_gets_the_view(pool: str, cli: CommandLine) -> None:
    """On a terminal the view is drawn on a screen of its own, and Ctrl-C leaves the terminal as it was."""
    cli("pool", "create", pool)
    cli("submit", "k", "--id", "seen-here", "--target", "dock")
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    watching = subprocess.Popen([PROGRAM, "watch"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while f"pool {pool}".encode() not in shown or b"WAITING" not in shown:
        shown += os.read(ours, 65_536)
    watching.send_signal(signal.SIGINT)
    shown += _rest(ours)

    assert watching.wait(60) == 130
    assert b"\x1b[?1049h" in shown
    assert shown.rstrip().endswith(b"\x1b[?1049l")
    assert b"Traceback" not in shown


def _rest(descriptor: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:
            return data
        if not piece:
            return data
        data += piece
