"""How many task lives a second: submitted, assigned, accepted, completed, all durable, on one machine.

One pipelined submitter (one task a message, at most 1,024 unanswered), robots of 256 slots in processes of their
own with handlers that do nothing. Counted by a referee from the log's own append times.
"""

import json
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.request import urlopen

from fleetlog.bench.product import Product
from streams.port import LogReader, Topic

SLOTS: Final = 256
WAIT_S: Final = 600.0


@dataclass(slots=True)
class Count:
    """What the log says: tasks submitted and completed, and the instants (ms) of the first and the last."""

    submitted: int = 0
    completed: int = 0
    events: int = 0
    first_at: int = 0
    last_at: int = 0

    @property
    def lives_per_s(self) -> float:
        """Completed tasks by the time from the first submission to the last completion."""
        return 1000 * self.completed / max(1, self.last_at - self.first_at)


def measure_lives(product: Product, tasks: int, robots: int) -> dict[str, Any]:
    """Runs `tasks` lives on `robots` robots; `lives_per_s` and what it was counted from."""
    context = multiprocessing.get_context("spawn")
    crew = [context.Process(target=be_robot, args=(product.url, f"bench-{n}"), daemon=True) for n in range(robots)]
    for robot in crew:
        robot.start()
    until_connected(product, robots)
    began = time.monotonic()
    submitter = context.Process(target=submit_all, args=(product.url, tasks), daemon=True)
    submitter.start()
    try:
        count = count_until(product.reader(), tasks)
    finally:
        submitter.join(10)
        for robot in crew:
            robot.terminate()
        for robot in crew:
            robot.join(10)
    return {
        "lives_per_s": round(count.lives_per_s, 1),
        "tasks": tasks,
        "completed": count.completed,
        "events": count.events,
        "seconds": round(time.monotonic() - began, 2),
    }


def be_robot(url: str, name: str) -> None:
    """A robot whose handler does nothing (in a process of its own)."""
    from fleetlog import Robot

    end_with_parent()
    robot = Robot(name, pool="default", gateway=url, slots=SLOTS)

    @robot.task("nothing", run_in="async")
    async def nothing(context: Any, payload: Any) -> None:
        return None

    robot.run(grace_s=1)


def submit_all(url: str, tasks: int) -> None:
    """Submits as fast as 1,024 unanswered ones allow (in a process of its own)."""
    from fleetlog import Submitter

    end_with_parent()
    with Submitter(url) as submitter:
        for number in range(tasks):
            submitter.submit("nothing", {"n": number})


def submit_at(url: str, rate_per_s: float, retry_for_s: float) -> None:
    """Submits evenly for ever (in a process of its own); what has no answer is asked again for `retry_for_s`."""
    from fleetlog import Submitter

    end_with_parent()
    submitter = Submitter(url, retry_for_s=retry_for_s)
    began, number = time.monotonic(), 0
    while True:
        time.sleep(max(0.0, began + number / rate_per_s - time.monotonic()))
        submitter.submit("nothing", {"n": number})
        number += 1


def end_with_parent() -> None:
    """Where the measuring process is killed, this one ends as well."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def count_until(log: LogReader, tasks: int) -> Count:
    """The referee: follows all events until `tasks` tasks are completed."""
    follower = log.follow(Topic.EVENTS, {p: log.beginning(Topic.EVENTS, p) for p in range(log.partitions)})
    count = Count()
    end = time.monotonic() + WAIT_S
    try:
        while count.completed < tasks and time.monotonic() < end:
            for record in follower.poll(10_000, 0.5):
                _count(count, record.header("type"), record.appended_at)
    finally:
        follower.close()
        log.close()
    return count


def _count(count: Count, kind: bytes | None, at: int) -> None:
    count.events += 1
    if kind == b"TaskSubmitted.v1":
        count.submitted += 1
        count.first_at = count.first_at or at
    elif kind == b"TaskCompleted.v1":
        count.completed += 1
        count.last_at = at


def until_connected(product: Product, robots: int) -> None:
    """Waits until so many robots are IDLE."""
    while True:
        with urlopen(f"{product.url}/v1/robots?limit=1000", timeout=10) as answer:  # noqa: S310
            items = json.load(answer)["items"]
        if sum(1 for robot in items if robot["state"] == "IDLE") >= robots:
            return
        time.sleep(0.1)
