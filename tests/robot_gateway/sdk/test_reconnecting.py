"""How long a robot pauses before it connects again, on a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commands.messages import AttemptNotice
from robot_gateway.sdk.engine import Engine
from robot_gateway.sdk.robot import Robot
from robot_gateway.sdk.session import Session, pause_limit_s
from tests.robot_gateway.sdk.test_holdings import Bench


def tries_at(bench: Bench, begun: float, tries: int) -> Iterator[float]:
    """When a robot connects that has the longest pause each time, from `begun` on, after so many tries."""
    at = begun
    while True:
        deadline = bench.holdings.next_own_deadline(at)
        at += pause_limit_s(tries, None if deadline is None else deadline - at)
        tries += 1
        yield at


@pytest.mark.parametrize("tries", [0, 3, 6, 20])
@pytest.mark.parametrize("begun", [0.0, 3.0, 5.0, 8.0])
def test_two_tries_fall_into_what_is_left_of_a_lease(tries: int, begun: float) -> None:
    """However long the outage was and whatever the dice say; the own deadline is at 9.5."""
    bench = Bench()
    bench.run()
    pauses = tries_at(bench, begun, tries)
    next(pauses)
    assert next(pauses) < 9.5


def test_the_first_deadline_counts() -> None:
    """Of two attempts the one that ends first; when that has passed, the other."""
    bench = Bench()
    bench.run("t1")
    bench.at(4).run("t2")
    assert bench.holdings.next_own_deadline(5) == 9.5
    assert bench.holdings.next_own_deadline(9.5) == 13.5
    assert bench.holdings.next_own_deadline(13.5) is None


def test_a_report_without_an_answer_counts() -> None:
    """The lease lasts until it has arrived; after its ack nothing is at stake."""
    bench = Bench()
    bench.run()
    [complete] = bench.end()
    assert bench.holdings.next_own_deadline(1) == 9.5
    bench.ack(complete)
    assert bench.holdings.next_own_deadline(1) is None


def test_a_robot_with_nothing_to_lose_takes_its_time() -> None:
    """Up to 30 s as before, so that thousands do not come at once: nothing held, or the lease over already."""
    bench = Bench()
    assert [pause_limit_s(tries, None) for tries in (0, 1, 2, 3, 6, 50)] == [0.5, 1, 2, 4, 30, 30]
    bench.run()
    bench.holdings.stop(AttemptNotice(task="t1", attempt=1, reason="expired"))
    assert bench.holdings.next_own_deadline(1) is None


def test_pauses_are_drawn_anew_each_time_and_never_before_what_the_gateway_said() -> None:
    """Robots that lost their gateway at one moment come back spread over the whole time; Retry-After is kept."""
    robot = Robot("r1")
    robot.task("work")(lambda ctx, payload: None)
    engine = Engine(robot.config)
    try:
        sessions = [Session(engine) for _ in range(300)]
        for session in sessions:
            session._tries = 4
        pauses = sorted(session._pause_s() for session in sessions)
        assert 0 <= pauses[0] < 1 < 7 < pauses[-1] <= 8
        assert len(set(pauses)) == len(pauses)
        assert {session._tries for session in sessions} == {5}
        for session in sessions:
            session._not_before_s = 60.0
        assert {session._pause_s() for session in sessions} == {60.0}
    finally:
        engine.close()


def test_a_short_lease_is_no_reason_to_hammer() -> None:
    """Never a limit below the first one."""
    assert pause_limit_s(6, 0.2) == pause_limit_s(6, 1.0) == 0.5
    assert pause_limit_s(0, 100.0) == 0.5
