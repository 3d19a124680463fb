"""Robots against a gateway by script, row by row of the robot protocol: the SDK in all its ways to run handlers, the
shell robot (WebSocket), and the robot in C (long polling).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from robot_gateway.conformance.act import HANDLERS, RESENDS, SIGNALS, Act, RobotUnderTest
from robot_gateway.conformance.robot_rows import ROBOT_ROWS
from robot_gateway.conformance.robot_rows.work import LONG
from robot_gateway.conformance.row import Row
from tests.support.robots_under_test import start, start_program

ROBOTS = ["thread", "shell", "c"]
"""Every row is played against the SDK, the shell robot and the robot in C ..."""
ALL_WAYS = ["thread", "process", "async", "shell", "c"]
"""... what touches handlers against every way of the SDK to run them ..."""
PROGRAMS = ["thread", "process", "shell", "c"]
"""... and what needs signals against programs."""

Start = Callable[[str, str], RobotUnderTest]


def played(play: Callable[[Act], None], by: list[str], begin: Start = start) -> None:
    """Plays it with all these robots at the same time, each with a gateway of its own."""

    def one(how: str) -> None:
        with Act(lambda gateway: begin(how, gateway)) as act:
            play(act)

    with ThreadPoolExecutor(len(by)) as plays:
        ended = {how: plays.submit(one, how) for how in by}
    for how, play_of in ended.items():
        problem = play_of.exception()
        if problem is not None:
            problem.add_note(f"played by: {how}")
            raise problem


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the SDK send again after 1 s instead of 5 (the robot in C does after 5)."""

    def set_it() -> None:
        monkeypatch.setattr("robot_gateway.sdk.outbox.RESEND_AFTER_S", 1.0)
        monkeypatch.setattr("robot_gateway.sdk.session.RESEND_AFTER_S", 1.0)

    return set_it


@pytest.mark.parametrize("row", ROBOT_ROWS, ids=str)
def test_row(row: Row[Act], soon: Callable[[], None]) -> None:
    """Each row, as its own words say."""
    if RESENDS in row.marks:
        soon()
    if SIGNALS in row.marks:
        played(row.play, PROGRAMS, start_program)
    else:
        played(row.play, ALL_WAYS if HANDLERS in row.marks else ROBOTS)


# ---- what our own robots do beyond the protocol ----


def test_hello_says_what_the_robot_is() -> None:
    """One slot, the kinds that it has handlers for, and which software it is."""

    def play(act: Act) -> None:
        act.start()
        hello = act.gateway.session().hello
        assert (hello["slots"], hello["capabilities"]) == (1, ["kind:work"])
        assert hello["agent"]

    played(play, ROBOTS)


def test_after_the_grace_the_work_is_stopped() -> None:
    """SIGTERM with a grace that is too short: stopped(shutdown), bye."""

    def play(act: Act) -> None:
        session = act.working(payload=LONG)
        session.expect_named(("t1", 1))
        act.robot.terminate()
        session.ack(session.expect("ready", n=0))
        session.ack(session.expect("stopped", why="shutdown"))
        session.ack(session.expect("bye"))
        assert act.robot.exit_code() == 0

    ways = ["thread", "process", "async", "shell"]
    played(play, ways, lambda how, gateway: start_program(how, gateway, grace_s=0.2))


def test_a_second_sigterm_ends_at_once() -> None:
    """No grace, no bye: the exit code says SIGTERM."""

    def play(act: Act) -> None:
        session = act.working(payload=LONG)
        session.expect_named(("t1", 1))
        act.robot.terminate()
        session.ack(session.expect("ready", n=0))
        act.robot.terminate()
        assert act.robot.exit_code() == 143

    played(play, PROGRAMS, start_program)
