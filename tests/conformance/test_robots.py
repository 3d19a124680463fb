"""Robots against a scripted gateway, row by row of the robot protocol: the SDK in all its ways to run handlers, the
shell robot (WebSocket), and the robot in C (long polling).

`FakeGateway` itself checks every message of a robot against the wire models, the epoch and the numbers, in each test.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from robot_gateway.conformance.fake_gateway import FakeGateway, Session
from tests.support.robots_under_test import RobotUnderTest, start, start_program

ROBOTS = ["thread", "shell", "c"]
"""Every row is played against the SDK, the shell robot and the robot in C ..."""
ALL_WAYS = ["thread", "process", "async", "shell", "c"]
"""... and what touches handlers against every way of the SDK to run them."""
LONG = {"ms": 60_000}
"""Work that no test waits for."""

Row = Callable[..., None]


def played(by: list[str] = ROBOTS) -> Callable[[Row], Row]:
    """Play a row with all these robots at the same time, each with a gateway of its own.

    The row may ask for `gateway`, `how` (which robot), `robot` (started, one slot) and `session` (welcome, ready);
    its other parameters are pytest's.
    """

    def decorate(row: Row) -> Row:
        asked = inspect.signature(row).parameters
        given_here = {"gateway", "how", "robot", "session"} & set(asked)

        def test(**given: Any) -> None:
            with ThreadPoolExecutor(len(by)) as plays:
                ended = {how: plays.submit(play, row, how, given_here, given) for how in by}
            for how, play_of in ended.items():
                problem = play_of.exception()
                if problem is not None:
                    problem.add_note(f"played by: {how}")
                    raise problem

        test.__name__, test.__doc__ = row.__name__, row.__doc__
        outer = [parameter for name, parameter in asked.items() if name not in given_here]
        test.__signature__ = inspect.Signature(outer)  # type: ignore[attr-defined]
        return test

    return decorate


def play(row: Row, how: str, wanted: set[str], given: dict[str, Any]) -> None:
    """One row with one robot; the gateway must have seen no violation of the protocol."""
    with FakeGateway() as gateway:
        parts: dict[str, Any] = {"gateway": gateway, "how": how}
        if wanted & {"robot", "session"}:
            parts["robot"] = start(how, gateway.url)
        try:
            if "session" in wanted:
                parts["session"] = gateway.session()
                parts["session"].ready()
            row(**{name: parts[name] for name in wanted}, **given)
        finally:
            if "robot" in parts:
                parts["robot"].stop()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends again after 1 s instead of 5 (the robot in C does after 5)."""
    monkeypatch.setattr("robot_gateway.sdk.outbox.RESEND_AFTER_S", 1.0)
    monkeypatch.setattr("robot_gateway.sdk.session.RESEND_AFTER_S", 1.0)


def names(beat: dict[str, Any]) -> set[tuple[str, int]]:
    """The attempts that a heartbeat or hello names."""
    return {(held["task"], held["attempt"]) for held in beat["holding"]}


def is_done(message: dict[str, Any]) -> bool:
    """Whether it is the report of completed work."""
    return message["type"] == "complete" and message["result"]["done"] is True


# ---- hello, welcome, ready ----


@played()
def test_hello_comes_first_and_says_what_the_robot_is(gateway: FakeGateway, robot: RobotUnderTest) -> None:
    """hello: slots, capabilities, holding (empty), agent; on the path of its pool and robot, without epoch."""
    session = gateway.session()
    assert (session.pool, session.robot) == ("default", "r1")
    assert session.hello["slots"] == 1
    assert session.hello["capabilities"] == ["kind:work"]
    assert session.hello["holding"] == []
    assert session.hello["agent"]
    session.expect_nothing(0.3)  # nothing before welcome
    session.welcome()
    assert session.expect("ready")["n"] == 1


@pytest.mark.usefixtures("soon")
@played()
def test_hello_without_an_answer_is_said_again(gateway: FakeGateway, robot: RobotUnderTest, how: str) -> None:
    """No welcome within 5 s: the same hello, same id. By long polling the hello has arrived, and the robot polls on."""
    session = gateway.session()
    if how != "c":
        again = session.expect("hello")
        assert again["id"] == session.hello["id"]
    session.ready()


@played()
def test_a_heartbeat_comes_every_heartbeat_every_ms(session: Session) -> None:
    """Heartbeats go on by themselves, each with an id of its own, while nothing is held."""
    first, second = session.expect_beat(), session.expect_beat()
    assert first["id"] != second["id"]
    assert first["holding"] == second["holding"] == []


# ---- assign, accept, reject ----


@played(ALL_WAYS)
def test_work_starts_only_after_the_ack_of_accept(session: Session) -> None:
    """assign -> accept; nothing happens until its ack; then the work is done and reported."""
    session.assign()
    accept = session.expect("accept", task="t1", attempt=1)
    session.expect_nothing(0.5)
    session.ack(accept)
    complete = session.expect("complete", task="t1", attempt=1)
    assert is_done(complete)
    session.ack(complete)


@played()
def test_a_repeated_assign_gets_the_same_answer_and_is_done_once(session: Session) -> None:
    """The same assignment again while its accept is open: the same accept, same id; one ack starts the work once."""
    session.assign()
    accept = session.expect("accept")
    session.assign()
    again = session.expect("accept")
    assert again["id"] == accept["id"]
    session.ack(accept)
    complete = session.expect("complete")
    session.ack(complete)
    session.expect_nothing(0.5)


@played()
def test_a_repeated_assign_of_running_work_starts_nothing(session: Session) -> None:
    """The same assignment again while it runs: accepted again, done once."""
    session.start(payload={"ms": 800})
    session.assign(payload={"ms": 800})
    session.ack(session.expect("accept"))
    session.ack(session.expect("complete"))
    session.expect_nothing(0.5)


@played()
def test_a_kind_without_handler_is_rejected(session: Session) -> None:
    """reject(cannot), and the same again for a repeat."""
    session.assign(kind="paint")
    reject = session.expect("reject", task="t1", attempt=1, reason="cannot")
    session.assign(kind="paint")
    assert session.expect("reject")["id"] == reject["id"]
    session.ack(reject)


@played()
def test_more_than_its_slots_is_rejected(session: Session) -> None:
    """Never more than n slots in use: what comes beyond is rejected as busy."""
    session.start(payload=LONG)
    session.assign("t2")
    session.ack(session.expect("reject", task="t2", reason="busy"))


@played()
def test_a_withdrawn_assignment_is_forgotten(session: Session) -> None:
    """The accept is refused: nothing starts, nothing is named, the next assignment is taken."""
    session.assign()
    session.refuse(session.expect("accept"), "withdrawn")
    assert names(session.expect_beat()) == set()
    session.start("t2")
    session.ack(session.expect("complete", task="t2"))


@played()
def test_an_accept_refused_with_retry_is_sent_again(session: Session) -> None:
    """refused with retry: the same message again after retry_after_ms, under the next number."""
    session.assign()
    accept = session.expect("accept")
    session.refuse(accept, "log_unavailable", retry=True, retry_after_ms=300)
    again = session.expect("accept")
    assert again["id"] == accept["id"]
    assert again["seq"] > accept["seq"]
    session.ack(again)
    session.ack(session.expect("complete"))


# ---- final reports ----


@played()
def test_a_report_is_named_until_its_ack(session: Session) -> None:
    """complete: heartbeats go on naming the attempt until the ack has come, and not after it."""
    session.start()
    complete = session.expect("complete")
    session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
    session.ack(complete)
    session.expect_beat(lambda beat: names(beat) == set())


@pytest.mark.parametrize("failure", ["retryable", "fatal"])
@played(ALL_WAYS)
def test_a_failure_is_reported_with_its_class(session: Session, failure: str) -> None:
    """fail: class and error with type and message."""
    session.start(payload={"ms": 0, "fail": failure})
    fail = session.expect("fail", task="t1", attempt=1)
    assert fail["class"] == failure
    assert fail["error"]["type"]
    assert fail["error"]["message"]
    session.ack(fail)


@pytest.mark.usefixtures("soon")
@played()
def test_without_an_answer_a_report_is_sent_again(session: Session) -> None:
    """No ack within 5 s: same id and content, current epoch, next number; a late ack ends it."""
    session.start()
    complete = session.expect("complete")
    again = session.expect("complete")
    assert {**again, "seq": 0} == {**complete, "seq": 0}
    assert again["seq"] > complete["seq"]
    session.ack(complete, late=True)
    session.expect_beat(lambda beat: names(beat) == set())
    session.expect_nothing(0.3)


@played()
def test_a_refused_report_is_dropped(session: Session) -> None:
    """refused without retry ends the sending, and the attempt is held no more."""
    session.start()
    session.refuse(session.expect("complete"), "not_yours")
    session.expect_beat(lambda beat: names(beat) == set())
    session.start("t2")
    session.ack(session.expect("complete", task="t2"))


# ---- cancel and stop ----


@pytest.mark.parametrize("by", ["message", "heartbeat_ack"])
@played(ALL_WAYS)
def test_cancel_ends_the_work(session: Session, by: str) -> None:
    """cancel, as a message or in a heartbeat_ack: stopped(cancel)."""
    session.start(payload=LONG)
    notice = {"task": "t1", "attempt": 1, "reason": "asked"}
    if by == "message":
        session.send({"type": "cancel", **notice})
    else:
        say_with_next_beat(session, cancel=[notice])
    session.ack(session.expect("stopped", task="t1", attempt=1, why="cancel"))


@pytest.mark.parametrize("by", ["message", "heartbeat_ack"])
@played(ALL_WAYS)
def test_stop_ends_the_work_at_once(session: Session, by: str) -> None:
    """stop, as a message or in a heartbeat_ack: stopped(stop)."""
    session.start(payload=LONG)
    notice = {"task": "t1", "attempt": 1, "reason": "expired"}
    if by == "message":
        session.send({"type": "stop", **notice})
    else:
        say_with_next_beat(session, stop=[notice])
    session.ack(session.expect("stopped", task="t1", attempt=1, why="stop"))


@pytest.mark.parametrize("wrong", [{"task": "t2"}, {"attempt": 2}])
@played()
def test_a_stop_for_another_attempt_stops_nothing(session: Session, wrong: dict[str, Any]) -> None:
    """stop and cancel with a wrong task or attempt are about somebody else."""
    session.start(payload={"ms": 800})
    notice: dict[str, Any] = {"task": "t1", "attempt": 1} | wrong
    session.send({"type": "stop", "reason": "expired", **notice})
    session.send({"type": "cancel", **notice})
    assert is_done(session.expect("complete"))


@played()
def test_a_stop_before_the_ack_starts_nothing(session: Session) -> None:
    """stop while the accept is open: the ack that comes then starts nothing."""
    session.assign(payload=LONG)
    accept = session.expect("accept")
    session.send({"type": "stop", "task": "t1", "attempt": 1, "reason": "released"})
    session.ack(accept)
    session.ack(session.expect("stopped", why="stop"))


def say_with_next_beat(session: Session, **lists: Any) -> None:
    """Answer the next heartbeat with stops or cancels."""
    session.answer_beats = False
    session.send(session.beat_ack(session.expect_beat(), **lists))
    session.answer_beats = True


# ---- the own deadline ----

SHORT = {"lease_ms": 1500, "stop_after_ms": 1500}


@played(ALL_WAYS)
def test_without_answers_the_robot_ends_the_work_by_its_own_clock(session: Session) -> None:
    """0.95 of stop_after_ms after the first sending of the accept: stopped(own_deadline), not much earlier."""
    session.answer_beats = False
    session.assign(payload=LONG)
    accept = session.expect("accept")
    heard = time.monotonic()
    session.ack(accept, **SHORT)
    session.ack(session.expect("stopped", why="own_deadline"))
    assert time.monotonic() - heard > 0.95 * 1.5 - 0.2


@played()
def test_answered_heartbeats_move_the_own_deadline(session: Session) -> None:
    """Work that takes twice stop_after_ms is done when heartbeats are answered."""
    session.start(payload={"ms": 3000}, lease=SHORT)
    session.ack(session.expect("complete"))


@played()
def test_a_late_answer_counts_from_the_sending_of_its_heartbeat(session: Session) -> None:
    """Answering an old heartbeat over and over does not keep the work alive."""
    session.answer_beats = False
    session.start(payload=LONG, lease=SHORT)
    old = session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
    for _ in range(8):
        session.send(session.beat_ack(old))
        time.sleep(0.05)
    session.ack(session.expect("stopped", why="own_deadline"))


@played(ALL_WAYS)
def test_an_ack_that_comes_too_late_starts_nothing(session: Session) -> None:
    """The ack of accept after 0.95 of stop_after_ms from its first sending: stopped(own_deadline)."""
    session.assign(payload={"ms": 0})
    accept = session.expect("accept")
    time.sleep(1.1)
    session.ack(accept, lease_ms=1000, stop_after_ms=1000)
    session.ack(session.expect("stopped", why="own_deadline"))


@played()
def test_without_stop_after_ms_there_is_no_own_deadline(session: Session) -> None:
    """`ask` and `never` give none: the work goes on without answers."""
    session.answer_beats = False
    session.start(payload={"ms": 1500}, lease={"lease_ms": 500, "stop_after_ms": None})
    session.ack(session.expect("complete"))


# ---- reconnecting ----


@played(ALL_WAYS)
def test_after_a_cut_hello_names_what_runs_and_the_work_goes_on(
    gateway: FakeGateway, session: Session, how: str
) -> None:
    """verdict run: the work is not begun again and is reported in the new epoch."""
    session.start(payload={"ms": 2500})
    again = reconnect(gateway, session, how)
    assert again.hello["holding"] == [{"task": "t1", "attempt": 1, "started": True}]
    assert again.hello["id"] != session.hello["id"]
    again.welcome(held=[verdict("run", lease_ms=15000, stop_after_ms=15000)])
    again.ack(again.expect("ready"))
    again.expect_beat(lambda beat: names(beat) == {("t1", 1)})
    again.ack(again.expect("complete"))


@played()
def test_final_reports_go_first_after_welcome_and_only_then_ready(
    gateway: FakeGateway, session: Session, how: str
) -> None:
    """A report whose ack was lost is named in hello and sent again, the same, before ready."""
    session.start()
    complete = session.expect("complete")
    again = reconnect(gateway, session, how)
    assert names(again.hello) == {("t1", 1)}
    again.welcome(held=[verdict("stop", reason="ended")])
    repeated = again.expect("complete")
    assert (repeated["id"], repeated["result"]) == (complete["id"], complete["result"])
    assert again.expect("ready")["n"] == 1
    again.ack(repeated)
    again.expect_beat(lambda beat: names(beat) == set())


@played()
def test_an_accept_without_answer_is_named_as_not_started(gateway: FakeGateway, session: Session, how: str) -> None:
    """verdict accept: the accept is sent again, the same, and its ack starts the work."""
    session.assign()
    accept = session.expect("accept")
    again = reconnect(gateway, session, how)
    assert again.hello["holding"] == [{"task": "t1", "attempt": 1, "started": False}]
    again.welcome(held=[verdict("accept")])
    repeated, ready = again.expect_of("accept", "ready")
    assert repeated["id"] == accept["id"]
    again.ack(ready)
    again.ack(repeated)
    again.ack(again.expect("complete"))


@played(ALL_WAYS)
def test_verdict_stop_ends_the_work(gateway: FakeGateway, session: Session, how: str) -> None:
    """What hello named and the gateway no longer wants is ended: stopped(stop)."""
    session.start(payload=LONG)
    again = reconnect(gateway, session, how)
    again.welcome(held=[verdict("stop", reason="expired")])
    ready, stopped = again.expect_of("ready", "stopped")
    assert stopped["why"] == "stop"
    again.ack(ready)
    again.ack(stopped)


@played(ALL_WAYS)
def test_work_ends_at_its_deadline_while_there_is_no_connection(
    gateway: FakeGateway, session: Session, how: str
) -> None:
    """The own deadline does not wait for a gateway; it is told when there is one again."""
    session.answer_beats = False
    session.start(payload=LONG, lease=SHORT)
    gateway.refusals += [(503, {"reason": "log_unavailable", "detail": "away"}, {"Retry-After": "1"})] * 2
    if how == "c":
        # The same session goes on, and what was not taken is sent again.
        session.ack(session.expect("stopped", why="own_deadline"))
        return
    session.cut()
    again = gateway.session()
    again.welcome(held=[verdict("run", lease_ms=1500, stop_after_ms=1500)])
    stopped, _ = again.expect_of("stopped", "ready")
    assert stopped["why"] == "own_deadline"


@played()
def test_no_session_is_answered_with_a_new_hello(gateway: FakeGateway, session: Session) -> None:
    """refused(no_session): hello anew; the refused message comes again in the new epoch."""
    session.start()
    complete = session.expect("complete")
    session.refuse(complete, "no_session")
    again = gateway.session()
    assert again.hello["id"] != session.hello["id"]
    again.welcome(held=[verdict("run")])
    repeated, ready = again.expect_of("complete", "ready")
    assert repeated["id"] == complete["id"]
    assert repeated["seq"] < ready["seq"]
    again.ack(repeated)


def reconnect(gateway: FakeGateway, session: Session, how: str) -> Session:
    """Break the session so that the robot says hello anew. By long polling a lost answer alone does not."""
    if how == "c":
        session.close(1012)
    else:
        session.cut()
    return gateway.session()


def verdict(word: str, **fields: Any) -> dict[str, Any]:
    """What welcome says about the first attempt."""
    return {"task": "t1", "attempt": 1, "verdict": word} | fields


# ---- the end of a session ----


@played()
def test_a_superseded_robot_ends_and_does_not_come_back(
    gateway: FakeGateway, robot: RobotUnderTest, session: Session
) -> None:
    """superseded: an error, no reconnect."""
    session.send({"type": "superseded", "reason": "a newer session took over"})
    session.close(4001)
    assert "newer session" in robot.ends_with_error()
    gateway.no_session(1.0)


@pytest.mark.parametrize("code", [4001, 4002, 4003, 4004])
@played()
def test_codes_that_end_a_robot(gateway: FakeGateway, robot: RobotUnderTest, session: Session, code: int) -> None:
    """Superseded, two programs, token, retired: an error, no reconnect."""
    session.close(code, "because")
    assert robot.ends_with_error()
    gateway.no_session(1.0)


@pytest.mark.parametrize("code", [1001, 1011, 1012, 1013, 4000, 4008, 4009])
@played()
def test_codes_after_which_a_robot_comes_back(gateway: FakeGateway, session: Session, code: int) -> None:
    """All others but 1000: it reconnects by itself."""
    session.close(code, "because")
    gateway.session().ready()


@played()
def test_a_robot_that_was_refused_too_often_waits_a_minute(gateway: FakeGateway, session: Session) -> None:
    """4006: not at once (the minute itself is not waited for here)."""
    session.close(4006)
    gateway.no_session(2.0)


@played()
def test_moved_says_when_to_come_back(gateway: FakeGateway, session: Session) -> None:
    """moved, then 1012: not before after_ms."""
    session.send({"type": "moved", "after_ms": 1500})
    time.sleep(0.1)
    session.close(1012)
    gateway.no_session(1.0)
    gateway.session().ready()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(400, "protocol_version"), (401, "unauthenticated"), (403, "forbidden"), (404, "no_such_pool")],
)
@played()
def test_a_refused_handshake_ends_the_robot(gateway: FakeGateway, how: str, status: int, reason: str) -> None:
    """What will be refused again ends the robot with the gateway's sentence."""
    gateway.refusals.append((status, {"reason": reason, "detail": "the sentence of the gateway"}, {}))
    robot = start(how, gateway.url)
    try:
        assert "the sentence of the gateway" in robot.ends_with_error()
    finally:
        robot.stop()


@played()
def test_a_gateway_that_is_not_ready_is_asked_again(gateway: FakeGateway, how: str) -> None:
    """503 with Retry-After: again by itself."""
    gateway.refusals.append((503, {"reason": "log_unavailable", "detail": "later"}, {"Retry-After": "1"}))
    robot = start(how, gateway.url)
    try:
        gateway.session().ready()
    finally:
        robot.stop()


@played()
def test_what_a_robot_does_not_know_is_passed_over(session: Session) -> None:
    """Unknown messages and unknown fields: ignored, the connection goes on."""
    session.send({"type": "weather", "sky": ["blue", {"deep": [1, 2, {"x": None}]}]})
    session.assign(colour="red", extra={"a": [1, '\\"}]']})
    accept = session.expect("accept")
    session.ack(accept, unknown={"nested": True})
    session.ack(session.expect("complete"))


@played()
def test_awkward_texts_arrive_whole(session: Session) -> None:
    """Payloads and labels with escapes, quotes and non-ASCII letters disturb nothing."""
    labels = {"note": 'a "quoted" \\ \u00e9 \U0001f600 \u2028'}
    session.assign(labels=labels, payload={"x": '}"],\\', "ms": 0, "y": "\U0001f600"})
    session.ack(session.expect("accept"))
    assert is_done(session.expect("complete"))


# ---- one task, one handler ----


@played(ALL_WAYS)
def test_a_newer_attempt_does_not_run_beside_the_older(session: Session) -> None:
    """The same task again under a newer number: the older ends first (or the newer is rejected as busy)."""
    session.start(payload=LONG)
    session.assign(attempt=2, payload={"ms": 0})
    first = session.expect_any()
    if first["type"] == "reject":
        assert (first["attempt"], first["reason"]) == (2, "busy")
        return
    assert (first["type"], first["attempt"], first["why"]) == ("stopped", 1, "stop")
    session.ack(first)
    accept = session.expect("accept", attempt=2)
    session.ack(accept)
    session.ack(session.expect("complete", attempt=2))


# ---- signals ----


@played(["thread", "process", "shell", "c"])
def test_sigterm_lets_the_work_end_and_says_bye(gateway: FakeGateway, how: str) -> None:
    """SIGTERM: ready(0), the running work ends within the grace, its report, bye, exit code 0."""
    robot = start_program(how, gateway.url)
    try:
        session = gateway.session()
        session.ready()
        session.start(payload={"ms": 1500})
        session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
        robot.terminate()
        session.ack(session.expect("ready", n=0))
        session.assign("t2")
        session.ack(session.expect("reject", task="t2", reason="busy"))
        session.ack(session.expect("complete"))
        session.ack(session.expect("bye"))
        session.close(1000)
        assert robot.exit_code() == 0
    finally:
        robot.stop()


@played(["thread", "process", "async", "shell"])
def test_after_the_grace_the_work_is_stopped(gateway: FakeGateway, how: str) -> None:
    """SIGTERM with a grace that is too short: stopped(shutdown), bye."""
    robot = start_program(how, gateway.url, grace_s=0.2)
    try:
        session = gateway.session()
        session.ready()
        session.start(payload=LONG)
        session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
        robot.terminate()
        session.ack(session.expect("ready", n=0))
        session.ack(session.expect("stopped", why="shutdown"))
        session.ack(session.expect("bye"))
        assert robot.exit_code() == 0
    finally:
        robot.stop()


@played(["thread", "process", "shell", "c"])
def test_a_second_sigterm_ends_at_once(gateway: FakeGateway, how: str) -> None:
    """No grace, no bye: the exit code says SIGTERM."""
    robot = start_program(how, gateway.url)
    try:
        session = gateway.session()
        session.ready()
        session.start(payload=LONG)
        session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
        robot.terminate()
        session.ack(session.expect("ready", n=0))
        robot.terminate()
        assert robot.exit_code() == 143
    finally:
        robot.stop()
