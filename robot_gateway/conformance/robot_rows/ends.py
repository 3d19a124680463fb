"""How work ends before it is done: cancel, stop, the robot's own deadline, a newer attempt, SIGTERM."""

from __future__ import annotations

import time
from typing import Any

from robot_gateway.conformance.act import HANDLERS, SIGNALS, Act
from robot_gateway.conformance.checking import must, same
from robot_gateway.conformance.fake_session import Session, names
from robot_gateway.conformance.robot_rows.work import LONG, done
from robot_gateway.conformance.row import Table

TABLE = Table[Act]()
SHORT = {"lease_ms": 1500, "stop_after_ms": 1500}
WAYS = {name: (name,) for name in ("message", "heartbeat_ack")}


# ---- cancel and stop ----


@TABLE.rows("cancel/{}", WAYS, HANDLERS)
def cancel_ends_the_work(act: Act, by: str) -> None:
    """cancel, as a message or in a heartbeat_ack: the work ends, stopped(cancel)."""
    session = act.working(payload=LONG)
    notice = {"task": "t1", "attempt": 1, "reason": "asked"}
    if by == "message":
        session.send({"type": "cancel", **notice})
    else:
        _say_with_next_beat(session, cancel=[notice])
    session.ack(session.expect("stopped", task="t1", attempt=1, why="cancel"))


@TABLE.rows("stop/{}", WAYS, HANDLERS)
def stop_ends_the_work_at_once(act: Act, by: str) -> None:
    """stop, as a message or in a heartbeat_ack: the work ends at once, stopped(stop)."""
    session = act.working(payload=LONG)
    notice = {"task": "t1", "attempt": 1, "reason": "expired"}
    if by == "message":
        session.send({"type": "stop", **notice})
    else:
        _say_with_next_beat(session, stop=[notice])
    session.ack(session.expect("stopped", task="t1", attempt=1, why="stop"))


@TABLE.rows("stop/another-{}", {"task": ({"task": "t2"},), "attempt": ({"attempt": 2},)})
def a_stop_for_another_attempt_stops_nothing(act: Act, wrong: dict[str, Any]) -> None:
    """stop and cancel with a wrong task or attempt are about somebody else: the work goes on."""
    session = act.working(payload={"ms": 800})
    notice: dict[str, Any] = {"task": "t1", "attempt": 1} | wrong
    session.send({"type": "stop", "reason": "expired", **notice})
    session.send({"type": "cancel", **notice})
    session.ack(done(session))


@TABLE.row("stop/before-the-ack")
def a_stop_before_the_ack_starts_nothing(act: Act) -> None:
    """stop while the accept is open: the ack that comes then starts nothing, stopped(stop)."""
    session = act.begin()
    session.assign(payload=LONG)
    accept = session.expect("accept")
    session.send({"type": "stop", "task": "t1", "attempt": 1, "reason": "released"})
    session.ack(accept)
    session.ack(session.expect("stopped", why="stop"))


def _say_with_next_beat(session: Session, **lists: Any) -> None:
    """Answer the next heartbeat with stops or cancels."""
    session.answer_beats = False
    session.send(session.beat_ack(session.expect_beat(), **lists))
    session.answer_beats = True


# ---- the own deadline ----


@TABLE.row("deadline/without-answers", HANDLERS)
def without_answers_the_robot_ends_the_work_by_its_own_clock(act: Act) -> None:
    """No heartbeat is answered: stopped(own_deadline) 0.95 of stop_after_ms after the accept was sent, not earlier."""
    session = act.begin()
    session.answer_beats = False
    session.assign(payload=LONG)
    accept = session.expect("accept")
    heard = time.monotonic()
    session.ack(accept, **SHORT)
    session.ack(session.expect("stopped", why="own_deadline"))
    after_s = time.monotonic() - heard
    must(after_s > 0.95 * 1.5 - 0.2, "stopped after 1.4 s", f"one after {after_s:.2f} s")


@TABLE.row("deadline/moves-with-answers")
def answered_heartbeats_move_the_own_deadline(act: Act) -> None:
    """Work that takes twice stop_after_ms is done when heartbeats are answered."""
    session = act.working(payload={"ms": 3000}, lease=SHORT)
    session.ack(session.expect("complete"))


@TABLE.row("deadline/old-answers")
def a_late_answer_counts_from_the_sending_of_its_heartbeat(act: Act) -> None:
    """Answering an old heartbeat over and over does not keep the work alive: stopped(own_deadline)."""
    session = act.begin()
    session.answer_beats = False
    session.start(payload=LONG, lease=SHORT)
    old = session.expect_named(("t1", 1))
    for _ in range(8):
        session.send(session.beat_ack(old))
        time.sleep(0.05)
    session.ack(session.expect("stopped", why="own_deadline"))


@TABLE.row("deadline/late-ack", HANDLERS)
def an_ack_that_comes_too_late_starts_nothing(act: Act) -> None:
    """The ack of accept after 0.95 of stop_after_ms from its first sending: stopped(own_deadline)."""
    session = act.begin()
    session.assign(payload={"ms": 0})
    accept = session.expect("accept")
    time.sleep(1.1)
    session.ack(accept, lease_ms=1000, stop_after_ms=1000)
    session.ack(session.expect("stopped", why="own_deadline"))


@TABLE.row("deadline/none")
def without_stop_after_ms_there_is_no_own_deadline(act: Act) -> None:
    """An ack of accept without stop_after_ms: the work goes on without answers."""
    session = act.begin()
    session.answer_beats = False
    session.start(payload={"ms": 1500}, lease={"lease_ms": 500, "stop_after_ms": None})
    session.ack(session.expect("complete"))


@TABLE.row("deadline/without-connection", HANDLERS)
def work_ends_at_its_deadline_while_there_is_no_connection(act: Act) -> None:
    """The own deadline does not wait for a gateway; stopped(own_deadline) is told when there is one again."""
    session = act.begin()
    session.answer_beats = False
    session.start(payload=LONG, lease=SHORT)
    act.gateway.refusals += [(503, {"reason": "log_unavailable", "detail": "away"}, {"Retry-After": "1"})] * 2
    if session.transport == "polling":  # the same session goes on, and what was not taken is sent again
        session.ack(session.expect("stopped", why="own_deadline"))
        return
    session.cut()
    again = act.gateway.session()
    held = {"task": "t1", "attempt": 1, "verdict": "run", **SHORT}
    again.welcome(held=[held])
    stopped, _ = again.expect_of("stopped", "ready")
    same(stopped["why"], "own_deadline", "stopped with why")


# ---- one task, one piece of work ----


@TABLE.row("assign/newer-attempt", HANDLERS)
def a_newer_attempt_does_not_run_beside_the_older(act: Act) -> None:
    """The same task under a newer number: the older attempt ends first, or the newer is rejected as busy."""
    session = act.working(payload=LONG)
    session.assign(attempt=2, payload={"ms": 0})
    first = session.expect_any()
    if first["type"] == "reject":
        same((first["attempt"], first["reason"]), (2, "busy"), "reject of")
        return
    told = (first["type"], first["attempt"], first.get("why"))
    same(told, ("stopped", 1, "stop"), "reject(busy), or first")
    session.ack(first)
    session.ack(session.expect("accept", attempt=2))
    session.ack(session.expect("complete", attempt=2))


# ---- signals ----


@TABLE.row("bye/after-sigterm", SIGNALS)
def sigterm_lets_the_work_end_and_says_bye(act: Act) -> None:
    """SIGTERM: ready(0), what is assigned then is rejected as busy, the running work ends, bye, exit code 0."""
    session = act.working(payload={"ms": 1500})
    session.expect_beat(lambda beat: names(beat) == {("t1", 1)})
    act.robot.terminate()
    session.ack(session.expect("ready", n=0))
    session.assign("t2")
    session.ack(session.expect("reject", task="t2", reason="busy"))
    session.ack(session.expect("complete"))
    session.ack(session.expect("bye"))
    session.close(1000)
    same(act.robot.exit_code(), 0, "exit code")
