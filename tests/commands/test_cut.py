"""A snapshot that is written while events go on is true of the moment of its cut."""

import random
from typing import Any

import pytest

from commands.cut import Cut, snapshot_lines
from commands.pool import Pool, Written
from commands.rows import canonical, restore
from tests.support.agents import Turmoil
from tests.support.play import play

STEPS = 300


@pytest.mark.parametrize("seed", range(12))
def test_lines_are_as_of_the_cut(seed: int) -> None:
    """Under every fault, at any speed of writing: line by line what it would have been at once."""
    turmoil, dice = Turmoil(seed, force=seed % 2 == 1), random.Random(seed)
    cut: Cut | None = None
    expected: list[bytes] = []
    written: list[bytes] = []
    lines: Any = iter(())
    compared, speed = 0, 1
    for _ in range(STEPS):
        if cut is None or turmoil.world.state.cut is not cut:  # also where a new owner folded the log anew
            expected, written = list(snapshot_lines(turmoil.world.state)), []
            cut = Cut(turmoil.world.state)
            lines, speed = cut.lines(), dice.choice([1, 3, 20])
        turmoil.step()
        for _ in range(speed):
            line = next(lines, None)
            if line is None:
                assert written == expected
                compared += 1
                cut.end()
                cut = None
                break
            written.append(line)
    assert compared > 3


def test_nothing_is_kept_without_a_cut() -> None:
    """A cut that has ended costs nothing; one made in the middle of a life is restored to that middle."""
    world = play("t+0 robot r1\nt+0 submit t1 target=a\nt+0 accept r1 t1")
    then, cut = canonical(world.state), Cut(world.state)
    world.robots["r1"].complete("t1")
    world.submit("t2")
    [state] = restore(cut.lines(), world.now)
    assert canonical(state) == then != canonical(world.state)
    cut.end()
    assert world.state.cut is None


def test_an_ended_task_that_a_late_report_changes() -> None:
    """The row of an ended task is kept as it was before the report."""
    world = play("t+0 robot r1\nt+0 submit t1\nt+0 accept r1 t1\nt+1 cancel t1")
    world.robots["r1"].stopped("t1", "cancel", attempt=1)
    assert world.state.ended["t1"].state == "CANCELLED"
    lines, cut = list(snapshot_lines(world.state)), Cut(world.state)
    world.robots["r1"].complete("t1", attempt=1)
    assert world.named("ReportedLate")
    assert list(cut.lines()) == lines != list(snapshot_lines(world.state))


def test_deadlines_act_after_a_restore() -> None:
    """A task that only waits and has a deadline: its timer is there again."""
    world = play("t+0 submit t1 start=3:dead")
    state, written = world.restored(), Written()
    assert state.timers.next_at() == world.state.timers.next_at()
    pool = Pool(state, written, world.now)
    pool.advance(world.now + 4_000, world.now + 4_000)
    assert [row.event.name for row in written.events] == ["DeadlinePassed"]
