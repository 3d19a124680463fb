"""The time of a pool: at the machine's rate, after the wall clock slowly, over a step only at an operator's word."""

import pytest

from streams.pool_clock import FOLLOWED_SHARE, STEP_MS, PoolClock

START = 1_700_000_000_000
HOUR_MS = 3_600_000


class Machine:
    """A machine whose two clocks are moved by hand."""

    def __init__(self) -> None:
        self.wall, self.boot = START, 5_000.0
        self.clock = PoolClock(lambda: self.wall, lambda: self.boot)

    def passes(self, ms: int, step_ms: int = 0) -> None:
        """Time goes on by `ms`; the wall clock jumps by `step_ms` besides."""
        self.boot += ms
        self.wall += ms + step_ms

    def now(self, pool: str = "hall") -> int:
        """The pool's instant."""
        return self.clock.now(pool, 0)


def test_time_goes_on_at_the_machines_rate() -> None:
    """It starts at the wall clock, or at the pool's last event where that is later, and never falls."""
    machine = Machine()
    assert machine.now() == START
    assert machine.clock.now("ahead", START + 500) == START + 500
    machine.passes(1_000)
    assert machine.now() == START + 1_000
    assert machine.clock.now("hall", START + 9_000) == START + 9_000
    assert machine.now() >= START + 9_000


@pytest.mark.parametrize("step_ms", [STEP_MS // 2, -STEP_MS // 2])
def test_a_small_difference_is_followed_slowly(step_ms: int) -> None:
    """At 1 %, and it is trusted."""
    machine = Machine()
    machine.now()
    machine.passes(0, step_ms)
    machine.now()
    machine.passes(10_000)
    followed = 10_000 * FOLLOWED_SHARE * (1 if step_ms > 0 else -1)
    assert machine.now() == START + 10_000 + followed
    assert machine.clock.distrusted() is None
    assert machine.clock.offset_ms == step_ms


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_is_not_followed_and_said(step_ms: int) -> None:
    """Time goes on at the right rate; a clock that is mended is trusted again."""
    machine = Machine()
    machine.now()
    machine.passes(1_000, step_ms)
    assert machine.now() == START + 1_000
    assert machine.clock.distrusted() == machine.wall
    assert machine.clock.offset_ms == step_ms
    machine.passes(1_000, -step_ms)
    assert machine.now() == START + 2_000
    assert machine.clock.distrusted() is None


def test_an_accepted_step_forward_is_followed_at_once() -> None:
    """In every pool that is behind."""
    machine = Machine()
    machine.now()
    machine.passes(1_000, HOUR_MS)
    machine.now()
    machine.clock.follow_wall()
    machine.passes(1_000)
    assert machine.now() == START + 2_000 + HOUR_MS
    assert machine.clock.distrusted() is None
    assert machine.clock.offset_ms == 0


def test_an_accepted_step_back_is_waited_for() -> None:
    """Time runs 1 % slower until the clocks meet, and is trusted meanwhile; a further step is not."""
    machine = Machine()
    machine.now()
    machine.passes(0, -2 * STEP_MS)
    machine.now()
    machine.clock.follow_wall()
    met_after_ms = round(2 * STEP_MS / FOLLOWED_SHARE)
    for tenth in range(1, 11):
        machine.passes(met_after_ms // 10)
        at = machine.now()
        assert at == pytest.approx(START + tenth * met_after_ms // 10 * (1 - FOLLOWED_SHARE), abs=5)
        assert machine.clock.distrusted() is None
    machine.now()
    assert machine.clock.offset_ms == pytest.approx(0, abs=5)
    machine.passes(1_000, -2 * STEP_MS)
    machine.now()
    assert machine.clock.distrusted() is not None


def test_one_pool_that_is_far_ahead_is_said() -> None:
    """Whichever pool was drawn last; until it is forgotten."""
    machine = Machine()
    machine.clock.now("ahead", START + HOUR_MS)
    machine.now()
    assert machine.clock.offset_ms == -HOUR_MS
    assert machine.clock.distrusted() == START
    machine.clock.forget("ahead")
    assert machine.clock.distrusted() is None
