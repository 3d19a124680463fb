"""When leases are lost, told from the log alone: robots that hold attempts are killed (SIGKILL), one after the other.

    python -m tests.system.lease_loss --log embedded --robots 10
    python -m tests.system.lease_loss --log kafka --robots 10 [--kafka HOST:PORT]

Leases of 3 s in a pool with windows of 1 s, and of 15 s and 60 s in pools with windows of 5 s. What is measured is the
time from the append of the last message that named the attempt to the append of its `LeaseExpired`.
"""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from streams.port import LogReader, Record, Topic
from tests.support.broker import Broker
from tests.system.judge import whole_partition
from tests.system.product import Product, embedded, on_kafka, wait_until

BATCH_MS = 500
"""What a loss may take beyond its windows: until the owner has looked and committed."""
SLOTS = 4


@dataclass(slots=True, frozen=True)
class Fleet:
    """The robots of one pool, `lease_s` and `window_s` of its tasks."""

    pool: str
    window_s: int
    lease_s: int


FLEETS = (Fleet("lease-3", 1, 3), Fleet("lease-15", 5, 15), Fleet("lease-60", 5, 60))


@dataclass(slots=True, frozen=True)
class Loss:
    """A lease that ended by silence. `waited_ms`: since the last message that named its attempt.

    `handed_over`: somebody took the partition over, or an owner noted an outage, since its lease began.
    """

    pool: str
    task: str
    attempt: int
    windows: int
    window_ms: int
    waited_ms: int
    handed_over: bool

    @property
    def too_early(self) -> bool:
        """Not all windows had passed."""
        return self.waited_ms < self.windows * self.window_ms

    @property
    def too_late(self) -> bool:
        """More than one window came on top, although nothing was handed over."""
        return not self.handed_over and self.waited_ms > (self.windows + 1) * self.window_ms + BATCH_MS


def losses(log: LogReader) -> list[Loss]:
    """Every lease of the log that ended by silence, without what other events held back for a mass expiry."""
    found = list[Loss]()
    for partition in range(log.partitions):
        named = _named(whole_partition(log, Topic.REPORTS, partition))
        found += _losses(whole_partition(log, Topic.EVENTS, partition), named)
    return found


Key = tuple[str, str, int]
"""Pool, task, attempt."""


def _named(reports: Iterator[Record]) -> dict[Key, list[int]]:
    """When messages that name an attempt were appended, in order."""
    named = defaultdict(list)
    for record in reports:
        report = from_json(record.value)
        message = report.get("message", {})
        beats: list[Any] = report.get("beats", [])
        held = [one for beat in beats for one in beat["holding"]] + message.get("holding", [])
        for one in [*held, *([message] if "attempt" in message else [])]:
            named[record.key, one["task"], one["attempt"]].append(record.appended_at)
    return named


def _losses(events: Iterator[Record], named: dict[Key, list[int]]) -> Iterator[Loss]:
    terms: dict[Key, tuple[int, int]] = {}
    began: dict[Key, int] = {}
    taken: dict[str, int] = {}
    held: set[str] = set()
    for record in events:
        event = from_json(record.value)
        name, key = event["type"].partition(".")[0], (record.key, event.get("task", ""), event.get("attempt", 0))
        if name == "TaskAssigned":
            terms[key] = event["windows"], event["lease_ms"] // event["windows"]
        elif name in ("LeaseStarted", "LeaseResumed"):
            began[key] = record.appended_at
        elif name == "OwnershipTaken":
            taken[record.key] = record.appended_at
        elif name == "ExpiryHeld":
            held.add(record.key)
        elif name == "LeaseExpired" and event["reason"] == "missed_windows" and record.key not in held:
            windows, window_ms = terms[key]
            # What came after the end of the last window was too late to count.
            last = max(at for at in named[key] if at < event["last_window"] + window_ms)
            handed_over = taken.get(record.key, 0) > began[key]
            yield Loss(*key, windows, window_ms, record.appended_at - last, handed_over)


def be_robot(url: str, pool: str, name: str) -> None:
    """A robot whose work never ends (in a process of its own)."""
    from fleetlog import Robot

    robot = Robot(name, pool=pool, gateway=url, slots=SLOTS)

    @robot.task("hold")
    def hold(context: Any, payload: Any) -> None:
        time.sleep(3_600)

    robot.run(grace_s=0)


def kill_robots(product: Product, fleets: Sequence[Fleet], robots: int, seed: int) -> None:
    """Robots of each fleet take all that they can hold and are killed, each at a moment of its own within a window."""
    rng, context = random.Random(seed), multiprocessing.get_context("spawn")
    crew: list[tuple[float, SpawnProcess]] = []
    try:
        for fleet in fleets:
            settings = {"window_s": fleet.window_s, "lease_s": fleet.lease_s}
            product.ask("POST", "/v1/pools", {"pool": fleet.pool, "settings": settings})
            for number in range(robots):
                arguments = (product.url, fleet.pool, f"{fleet.pool}-{number}")
                process = context.Process(target=be_robot, args=arguments, daemon=True)
                process.start()
                crew.append((rng.uniform(0, max(5.0, fleet.window_s * 2)), process))
            for number in range(robots * SLOTS):
                body = {"id": f"{fleet.pool}-{number}", "kind": "hold"}
                product.ask("POST", f"/v1/pools/{fleet.pool}/tasks", body)
        count = len(crew) * SLOTS
        wait_until(lambda: product.counts()["RUNNING"] == count, 300)
        began = time.monotonic()
        for moment, process in sorted(crew, key=lambda row: row[0]):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            process.kill()
        wait_until(lambda: product.counts()["RUNNING"] == 0, 600)
    finally:
        for _, process in crew:
            process.kill()
            process.join(10)


def figures(found: Sequence[Loss]) -> list[dict[str, Any]]:
    """For each fleet how many leases were lost, and after how many seconds."""
    rows = []
    for pool in dict.fromkeys(loss.pool for loss in found):
        waited_s = sorted(loss.waited_ms / 1_000 for loss in found if loss.pool == pool)
        row = {"pool": pool, "lost": len(waited_s), "first_s": waited_s[0], "last_s": waited_s[-1]}
        rows.append(row | {"median_s": round(statistics.median(waited_s), 3)})
    return rows


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--robots", type=int, default=10, help="of each of the three pools, with four slots each")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kafka", help="HOST:PORT of a running broker; without it one is started")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetlog-leases-")))
        if given.log == "embedded":
            product = embedded(folder)
        else:
            product = on_kafka(folder, given.kafka or stack.enter_context(Broker()).address)
        stack.callback(product.stop)
        product.start()
        kill_robots(product, FLEETS, given.robots, given.seed)
        reader = product.reader()
        stack.callback(reader.close)
        found = losses(reader)
    wrong = [loss for loss in found if loss.too_early or loss.too_late]
    for row in figures(found):
        print(json.dumps(row))
    for loss in wrong:
        print(f"{'too early' if loss.too_early else 'too late'}: {loss}")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
