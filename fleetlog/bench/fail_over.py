"""How long work stands still when something is killed, read from the log's own append times.

Once the robot that holds a task is killed (SIGKILL): until another robot's lease of that task. Then, each round, the
whole product: until the next assignment, while tasks keep coming. Everything stays with the defaults.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic_core import from_json

from fleetlog.bench.lives import be_robot, end_with_parent, submit_at, until_connected
from fleetlog.bench.product import BenchProblem, ProductProcess
from streams.port import LogReader, Record, Topic

WORK_S: Final = 3.0
BETWEEN_S: Final = 2.0
RATE_PER_S: Final = 20.0
WAIT_S: Final = 300.0


def measure_fail_over(product: ProductProcess, rounds: int) -> dict[str, Any]:
    """The seconds of the killed robot's task, and of the killed product in each round."""
    robot_s = _robot_killed(product)
    return {"robot_killed_s": round(robot_s, 2)} | _product_killed(product, rounds)


def _robot_killed(product: ProductProcess) -> float:
    context = multiprocessing.get_context("spawn")
    crew = [context.Process(target=be_slow_robot, args=(product.url, f"slow-{n}"), daemon=True) for n in range(2)]
    for robot in crew:
        robot.start()
    until_connected(product, len(crew))
    watch = _Watch(product.reader())
    try:
        _submit_one(product.url)
        first = watch.until("LeaseStarted.v1")
        # The other one may not have it because it is busy: it has a slot, and nothing else is there to do.
        victim = crew[int(_field(first, "robot").rsplit("-", 1)[1])]
        killed_at = time.time() * 1_000
        victim.kill()
        return (watch.until("LeaseStarted.v1").appended_at - killed_at) / 1_000
    finally:
        watch.close()
        for robot in crew:
            robot.kill()
            robot.join(10)


def _product_killed(product: ProductProcess, rounds: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    working = [
        context.Process(target=be_robot, args=(product.url, "bench-0"), daemon=True),
        context.Process(target=submit_at, args=(product.url, RATE_PER_S, WAIT_S), daemon=True),
    ]
    for process in working:
        process.start()
    until_connected(product, 1)
    gaps_s = []
    try:
        for _ in range(rounds):
            _until_assigned(product)
            time.sleep(BETWEEN_S)
            killed_at = time.time() * 1_000
            product.kill()
            product.start()
            gaps_s.append((_until_assigned(product, killed_at).appended_at - killed_at) / 1_000)
    finally:
        for process in working:
            process.kill()
            process.join(10)
    return {
        "rounds": rounds,
        "product_killed_median_s": round(statistics.median(gaps_s), 2),
        "product_killed_worst_s": round(max(gaps_s), 2),
    }


def _until_assigned(product: ProductProcess, since_ms: float = 0.0) -> Record:
    """The next assignment, of those that were appended after `since_ms`."""
    watch = _Watch(product.reader())
    try:
        return watch.until("TaskAssigned.v1", lambda record: record.appended_at > since_ms)
    finally:
        watch.close()


def be_slow_robot(url: str, name: str) -> None:
    """A robot of one slot whose work takes three seconds (in a process of its own)."""
    from fleetlog import Robot

    end_with_parent()
    robot = Robot(name, pool="default", gateway=url, slots=1)

    @robot.task("slow")
    def slow(context: Any, payload: Any) -> None:
        time.sleep(WORK_S)

    robot.run(grace_s=0)


def _submit_one(url: str) -> None:
    from fleetlog import Submitter

    with Submitter(url) as submitter:
        submitter.submit("slow", {}).result()


def _field(record: Record, name: str) -> str:
    value: str = from_json(record.value)[name]
    return value


class _Watch:
    """The events from now on."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._follower = log.follow(Topic.EVENTS, {p: log.end(Topic.EVENTS, p) for p in range(log.partitions)})
        self._records = self._all()

    def until(self, kind: str, wanted: Callable[[Record], bool] = lambda record: True) -> Record:
        """The next event of that type. Raises BenchProblem where none comes in five minutes."""
        wanted_type = kind.encode()
        return next(record for record in self._records if record.header("type") == wanted_type and wanted(record))

    def _all(self) -> Iterator[Record]:
        give_up = time.monotonic() + WAIT_S
        while time.monotonic() < give_up:
            yield from self._follower.poll(1_000, 0.2)
        raise BenchProblem(f"nothing of that kind came within {WAIT_S:.0f} s")

    def close(self) -> None:
        self._follower.close()
        self._log.close()
