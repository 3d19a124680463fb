"""`fleetlog bench dispatch` in small: what it says, and that its pool does what it is measured for."""

import json
from pathlib import Path

import pytest

from commands.rows import canonical
from fleetlog.bench.dispatch import Case, measure
from fleetlog.bench.waiting_pool import WaitingPool
from streams.snapshots import Making
from streams.takeover import restored
from tests.fleetlog.conftest import CommandLine, program

FIGURES = {
    "us_per_life",
    "bytes_per_waiting_task",
    "snapshot_s",
    "snapshot_bytes",
    "snapshot_pause_ms",
    "snapshot_pause_busy_ms",
    "restore_s",
}


def test_a_line_for_each_case_and_what_they_come_to(tmp_path: Path) -> None:
    """With --json: every case with its figures, then one object with the ratio and the worst of the rest."""
    words = ["bench", "dispatch", "--json", "--tasks", "50,200", "--targets", "1,20", "--robots", "10", "--lives", "40"]
    done = program(*words, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    *cases, together = map(json.loads, done.stdout.splitlines())
    assert [(case["tasks"], case["targets"], case["robots"]) for case in cases] == [
        (50, 1, 10), (200, 1, 10), (50, 20, 10), (200, 20, 10),
    ]  # fmt: skip
    for case in cases:
        assert set(case) == {"tasks", "targets", "robots", "lives", *FIGURES}
        assert case["us_per_life"] > 0
        assert case["snapshot_bytes"] > 200 * case["tasks"]
    ratio = max(many["us_per_life"] / few["us_per_life"] for few, many in (cases[:2], cases[2:]))
    assert together["cost_ratio_200_to_50"] == round(ratio, 2)
    assert together["snapshot_pause_ms"] == max(cases[1]["snapshot_pause_ms"], cases[3]["snapshot_pause_ms"])


@pytest.mark.parametrize("words", ["1000,many", "", "0"])
def test_a_list_of_numbers_is_asked_for(words: str, cli: CommandLine) -> None:
    """Anything else is a wrong call, said in a sentence."""
    done = cli("bench", "dispatch", "--tasks", words)
    assert done.code == 2
    assert "is not a list of numbers" in done.err


@pytest.mark.parametrize(("targets", "robots"), [(1, 3), (30, 3), (30, 150)])
def test_the_number_of_waiting_tasks_is_constant(targets: int, robots: int) -> None:
    """Filled, begun, and alive: each life is submitted, assigned, accepted and completed, nothing is lost or late."""
    pool = WaitingPool(targets, robots)
    pool.register()
    pool.fill(60)
    pool.begin(60)
    state = pool.pool.state
    waiting, running = state.queue.waiting, len(state.running)
    assert waiting >= 60
    assert 0 < running == len(state.running) <= targets
    pool.live(80)
    assert pool.lives >= 80
    assert state.queue.waiting + len(state.running) + _assigned(pool) == waiting + running
    assert all(task.failures == task.lost == 0 for task in state.tasks.values())
    assert not state.ended or {row.state for row in state.ended.values()} == {"COMPLETED"}
    making, snapshot = Making([state], 1, "x", 0), None
    then = canonical(state)
    while snapshot is None:
        snapshot = making.go_on(20)
        pool.batch(2)
    [again] = restored(snapshot, pool.now)
    assert canonical(again) == then


def _assigned(pool: WaitingPool) -> int:
    return sum(task.state == "ASSIGNED" for task in pool.pool.state.tasks.values())


def test_one_case_can_be_measured_here() -> None:
    """The same figures, in this process."""
    assert set(measure(Case(30, 5, 3, 20))) == {"tasks", "targets", "robots", "lives", *FIGURES}
