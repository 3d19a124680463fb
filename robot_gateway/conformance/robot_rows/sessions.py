"""Sessions that break or are closed: what a robot says in the next one, and when there is none."""

from __future__ import annotations

import time
from typing import Any

from robot_gateway.conformance.act import HANDLERS, Act
from robot_gateway.conformance.checking import must, same, until
from robot_gateway.conformance.fake_session import names
from robot_gateway.conformance.robot_rows.work import LONG
from robot_gateway.conformance.row import Table

TABLE = Table[Act]()
ENDING = {str(code): (code,) for code in (4001, 4002, 4003, 4004)}
PASSING = {str(code): (code,) for code in (1001, 1011, 1012, 1013, 4000, 4008, 4009)}
REFUSED = {
    "protocol_version": (400, "protocol_version"),
    "unauthenticated": (401, "unauthenticated"),
    "forbidden": (403, "forbidden"),
    "no_such_pool": (404, "no_such_pool"),
}
SENTENCE = "the sentence of the gateway"


# ---- reconnecting ----


@TABLE.row("reconnect/run", HANDLERS)
def after_a_cut_hello_names_what_runs_and_the_work_goes_on(act: Act) -> None:
    """After a cut hello names what runs; verdict run: it is not begun again and is reported in the new epoch."""
    session = act.working(payload={"ms": 2500})
    again = act.reconnect(session)
    same(again.hello["holding"], [{"task": "t1", "attempt": 1, "started": True}], "holding")
    must(again.hello["id"] != session.hello["id"], "a hello with a new id", again.hello)
    again.welcome(held=[_verdict("run", lease_ms=15000, stop_after_ms=15000)])
    again.ack(again.expect("ready"))
    again.expect_named(("t1", 1))
    again.ack(again.expect("complete"))


@TABLE.row("reconnect/final-reports-first")
def final_reports_go_first_after_welcome_and_only_then_ready(act: Act) -> None:
    """A report whose ack was lost is named in hello and sent again after welcome, the same, and only then ready."""
    session = act.working()
    complete = session.expect("complete")
    again = act.reconnect(session)
    same(names(again.hello), {("t1", 1)}, "a hello that names")
    again.welcome(held=[_verdict("stop", reason="ended")])
    repeated = again.expect("complete")
    same((repeated["id"], repeated.get("result")), (complete["id"], complete.get("result")), "complete with")
    must(again.expect("ready")["n"] >= 1, "ready with n from 1", again.hello)
    again.ack(repeated)
    again.expect_named()


@TABLE.row("reconnect/accept")
def an_accept_without_answer_is_named_as_not_started(act: Act) -> None:
    """An accept without an answer is named as not started; verdict accept: sent again, the same; its ack starts."""
    session = act.begin()
    session.assign()
    accept = session.expect("accept")
    again = act.reconnect(session)
    same(again.hello["holding"], [{"task": "t1", "attempt": 1, "started": False}], "holding")
    again.welcome(held=[_verdict("accept")])
    repeated, ready = again.expect_of("accept", "ready")
    same(repeated["id"], accept["id"], "accept with the id")
    again.ack(ready)
    again.ack(repeated)
    again.ack(again.expect("complete"))


@TABLE.row("reconnect/stop", HANDLERS)
def verdict_stop_ends_the_work(act: Act) -> None:
    """What hello named and the gateway no longer wants is ended: stopped(stop)."""
    again = act.reconnect(act.working(payload=LONG))
    again.welcome(held=[_verdict("stop", reason="expired")])
    ready, stopped = again.expect_of("ready", "stopped")
    same(stopped["why"], "stop", "stopped with why")
    again.ack(ready)
    again.ack(stopped)


@TABLE.row("reconnect/no-session")
def no_session_is_answered_with_a_new_hello(act: Act) -> None:
    """refused(no_session): hello anew; the refused message comes again in the new epoch, before ready."""
    session = act.working()
    complete = session.expect("complete")
    session.refuse(complete, "no_session")
    again = act.gateway.session()
    must(again.hello["id"] != session.hello["id"], "a hello with a new id", again.hello)
    again.welcome(held=[_verdict("run")])
    repeated, ready = again.expect_of("complete", "ready")
    same(repeated["id"], complete["id"], "complete with the id")
    must(repeated["seq"] < ready["seq"], "complete before ready", ready)
    again.ack(repeated)


def _verdict(word: str, **fields: Any) -> dict[str, Any]:
    """What welcome says about the first attempt."""
    return {"task": "t1", "attempt": 1, "verdict": word} | fields


# ---- the end of a session ----


@TABLE.row("close/superseded")
def a_superseded_robot_ends_and_does_not_come_back(act: Act) -> None:
    """superseded, then close code 4001: the robot does not come back."""
    session = act.begin()
    session.send({"type": "superseded", "reason": "a newer session took over"})
    session.close(4001)
    act.robot.gave_up("newer session")
    act.gateway.no_session(1.0)


@TABLE.rows("close/{}", ENDING)
def codes_that_end_a_robot(act: Act, code: int) -> None:
    """Superseded, two programs, token, retired: the robot does not come back."""
    act.begin().close(code, "because")
    act.robot.gave_up("")
    act.gateway.no_session(1.0)


@TABLE.rows("close/{}", PASSING)
def codes_after_which_a_robot_comes_back(act: Act, code: int) -> None:
    """Every other close code but 1000: the robot reconnects by itself."""
    act.begin().close(code, "because")
    act.gateway.session().ready()


@TABLE.row("close/4006")
def a_robot_that_was_refused_too_often_waits_a_minute(act: Act) -> None:
    """4006: the robot does not come back at once (the minute itself is not waited for)."""
    act.begin().close(4006)
    act.gateway.no_session(2.0)


@TABLE.row("close/moved")
def moved_says_when_to_come_back(act: Act) -> None:
    """moved, then close code 1012: the robot comes back after after_ms, not before."""
    session = act.begin()
    session.send({"type": "moved", "after_ms": 1500})
    time.sleep(0.1)
    session.close(1012)
    act.gateway.no_session(1.0)
    act.gateway.session().ready()


@TABLE.rows("handshake/{}", REFUSED)
def a_refused_handshake_ends_the_robot(act: Act, status: int, reason: str) -> None:
    """What will be refused again (400, 401, 403, 404): the robot does not come back."""
    act.gateway.refusals.append((status, {"reason": reason, "detail": SENTENCE}, {}))
    robot = act.start()
    until(lambda: not act.gateway.refusals, "a connection of the robot", act.gateway.patience_s)
    robot.gave_up(SENTENCE)
    act.gateway.no_session(1.0)


@TABLE.row("handshake/not-ready")
def a_gateway_that_is_not_ready_is_asked_again(act: Act) -> None:
    """503 with Retry-After: the robot comes again by itself."""
    act.gateway.refusals.append((503, {"reason": "log_unavailable", "detail": "later"}, {"Retry-After": "1"}))
    act.begin()
    must(not act.gateway.refusals, "a refused handshake before it", "none")
