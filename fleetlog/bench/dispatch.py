"""What a life of a task costs the core while many tasks wait, how much memory a waiting task takes, and snapshots.

Decide, evolve and encode together, through the same `Pool` as the owner's, without a log. Each measurement is a fresh
process: `python -m fleetlog.bench.dispatch`, with what to measure as JSON.
"""

import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from fleetlog.bench.product import BenchProblem
from fleetlog.bench.waiting_pool import WaitingPool
from streams.port import Snapshot
from streams.snapshots import LINES_AT_ONCE, Making
from streams.takeover import restored

BETWEEN_SLICES: Final = 10
"""Lives between two slices of a snapshot."""


@dataclass(slots=True, frozen=True)
class Case:
    """So many waiting tasks, targets and robots; `lives` are measured."""

    tasks: int
    targets: int
    robots: int
    lives: int


def measure_dispatch(tasks: Sequence[int], targets: Sequence[int], robots: Sequence[int], lives: int) -> Iterator[Any]:
    """A figure for each case, then what they come to: the worst of each."""
    found = []
    for some_targets, some_robots, some_tasks in product(targets, robots, sorted(tasks)):
        figures = _in_a_fresh_process(Case(some_tasks, some_targets, some_robots, lives))
        found.append(figures)
        yield figures
    yield _together(found, min(tasks), max(tasks))


def _in_a_fresh_process(case: Case) -> dict[str, Any]:
    command = [sys.executable, "-m", "fleetlog.bench.dispatch", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchProblem(f"{case} could not be measured: {done.stderr.strip().splitlines()[-1]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _together(found: list[dict[str, Any]], fewest: int, most: int) -> dict[str, Any]:
    def of(tasks: int) -> list[dict[str, Any]]:
        return [figures for figures in found if figures["tasks"] == tasks]

    ratios = [many["us_per_life"] / few["us_per_life"] for few, many in zip(of(fewest), of(most), strict=True)]
    worst = {name: max(figures[name] for figures in of(most)) for name in _WORST}
    return {f"cost_ratio_{_short(most)}_to_{_short(fewest)}": round(max(ratios), 2), **worst}


_WORST: Final = ("bytes_per_waiting_task", "snapshot_s", "snapshot_pause_ms", "snapshot_pause_busy_ms", "restore_s")


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if number % size == 0:
            return f"{number // size}{letter}"
    return str(number)


def measure(case: Case) -> dict[str, Any]:
    """One case, in this process. Times are processor time; the longest pause is told by the clock as well."""
    pool = WaitingPool(case.targets, case.robots)
    pool.register()
    gc.collect()
    before = _resident_bytes()
    pool.fill(case.tasks)
    gc.collect()
    taken = _resident_bytes() - before
    pool.begin(case.tasks)
    pool.live(case.lives // 4)
    lives, busy_s = pool.lives, pool.busy_s
    pool.live(case.lives)
    us_per_life = 1e6 * (pool.busy_s - busy_s) / (pool.lives - lives)
    return {
        **asdict(case),
        "us_per_life": round(us_per_life, 1),
        "bytes_per_waiting_task": round(taken / case.tasks),
        **_snapshot(pool),
    }


class Slices:
    """The time that making a snapshot takes from dispatch: all of it, and the longest piece at once."""

    def __init__(self) -> None:
        self.busy_s = self.longest_s = self.longest_busy_s = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """One piece."""
        began, began_busy = time.perf_counter(), time.process_time()
        yield
        busy_s = time.process_time() - began_busy
        self.busy_s += busy_s
        self.longest_busy_s = max(self.longest_busy_s, busy_s)
        self.longest_s = max(self.longest_s, time.perf_counter() - began)


def _snapshot(pool: WaitingPool) -> dict[str, Any]:
    """Made in slices while lives go on, then restored."""
    then = (pool.pool.state.queue.waiting, len(pool.pool.state.commands))
    slices = Slices()
    with slices.timed():
        making = Making([pool.pool.state], 1, "bench", pool.now)
    snapshot = None
    while snapshot is None:
        with slices.timed():
            snapshot = making.go_on(LINES_AT_ONCE)
        pool.batch(BETWEEN_SLICES)
    restore_s = _restore_s(snapshot, pool.now, then)
    return {
        "snapshot_s": round(slices.busy_s, 2),
        "snapshot_bytes": sum(map(len, snapshot.chunks)),
        "snapshot_pause_ms": round(1000 * slices.longest_s, 1),
        "snapshot_pause_busy_ms": round(1000 * slices.longest_busy_s, 1),
        "restore_s": round(restore_s, 2),
    }


def _restore_s(snapshot: Snapshot, now: int, then: tuple[int, int]) -> float:
    began = time.process_time()
    [state] = restored(snapshot, now)
    took_s = time.process_time() - began
    if (state.queue.waiting, len(state.commands)) != then:
        raise BenchProblem("the snapshot does not hold what the pool held")
    return took_s


def _resident_bytes() -> int:
    """The memory of this process; where the system does not tell it, the most it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))
