"""hello, assignments, and reports: from the first word of a robot to the ack of its last."""

from __future__ import annotations

from typing import Any

from robot_gateway.conformance.act import HANDLERS, POOL, RESENDS, ROBOT, Act
from robot_gateway.conformance.checking import Message, must, same
from robot_gateway.conformance.fake_session import Session
from robot_gateway.conformance.fake_transports import SocketSession
from robot_gateway.conformance.row import Table

TABLE = Table[Act]()
LONG = {"ms": 60_000}
"""Work that no row waits for."""


def done(session: Session, **fields: Any) -> Message:
    """The report of completed work. Raises Broken."""
    complete = session.expect("complete", **fields)
    result = complete.get("result")
    must(isinstance(result, dict) and result.get("done") is True, 'complete with the result {"done": true}', complete)
    return complete


@TABLE.row("hello/first")
def hello_comes_first(act: Act) -> None:
    """hello is the first message, on the path of the robot's pool and id; nothing follows it before welcome."""
    act.start()
    session = act.gateway.session()
    same((session.pool, session.robot), (POOL, ROBOT), "pool and robot")
    same(session.hello["holding"], [], "holding")
    session.expect_nothing(0.3)
    session.welcome()
    must(session.expect("ready")["n"] >= 1, "ready with n from 1", session.hello)


@TABLE.row("hello/again", RESENDS)
def hello_without_an_answer_is_said_again(act: Act) -> None:
    """No welcome within 5 s: the same hello again, same id. By long polling it has arrived, and the robot polls on."""
    act.start()
    session = act.gateway.session()
    if session.transport == "websocket":
        same(session.expect("hello")["id"], session.hello["id"], "hello with the id")
    session.ready()


@TABLE.row("heartbeat/regular")
def a_heartbeat_comes_every_heartbeat_every_ms(act: Act) -> None:
    """Heartbeats go on by themselves, each with an id of its own, while nothing is held."""
    session = act.begin()
    first, second = session.expect_beat(), session.expect_beat()
    must(first["id"] != second["id"], "a heartbeat with a new id", second)
    same((first["holding"], second["holding"]), ([], []), "holding")


# ---- assign, accept, reject ----


@TABLE.row("accept/starts-after-its-ack", HANDLERS)
def work_starts_only_after_the_ack_of_accept(act: Act) -> None:
    """assign is answered by accept; nothing happens until its ack; then the work is done and reported."""
    session = act.begin()
    session.assign()
    accept = session.expect("accept", task="t1", attempt=1)
    session.expect_nothing(0.5)
    session.ack(accept)
    session.ack(done(session, task="t1", attempt=1))


@TABLE.row("assign/repeated")
def a_repeated_assign_gets_the_same_answer_and_is_done_once(act: Act) -> None:
    """The same assignment again while its accept is open: the same accept, same id; one ack starts the work once."""
    session = act.begin()
    session.assign()
    accept = session.expect("accept")
    session.assign()
    same(session.expect("accept")["id"], accept["id"], "accept with the id")
    session.ack(accept)
    session.ack(session.expect("complete"))
    session.expect_nothing(0.5)


@TABLE.row("assign/repeated-while-running")
def a_repeated_assign_of_running_work_starts_nothing(act: Act) -> None:
    """The same assignment again while it runs: accepted again, done once."""
    session = act.working(payload={"ms": 800})
    session.assign(payload={"ms": 800})
    session.ack(session.expect("accept"))
    session.ack(session.expect("complete"))
    session.expect_nothing(0.5)


@TABLE.row("reject/unknown-kind")
def a_kind_that_it_cannot_do_is_rejected(act: Act) -> None:
    """A kind that the robot cannot do: reject(cannot), and the same again, same id, for a repeat."""
    session = act.begin()
    session.assign(kind="paint")
    reject = session.expect("reject", task="t1", attempt=1, reason="cannot")
    session.assign(kind="paint")
    same(session.expect("reject")["id"], reject["id"], "reject with the id")
    session.ack(reject)


@TABLE.row("reject/no-slot")
def more_than_its_slots_is_rejected(act: Act) -> None:
    """Never more than its slots in use: what comes beyond is rejected as busy."""
    session = act.begin()
    slots = session.hello["slots"]
    for number in range(slots):
        session.start(f"t{number + 1}", payload=LONG)
    beyond = f"t{slots + 1}"
    session.assign(beyond)
    session.ack(session.expect("reject", task=beyond, reason="busy"))


@TABLE.row("accept/withdrawn")
def a_withdrawn_assignment_is_forgotten(act: Act) -> None:
    """The accept is refused: nothing starts, nothing is named, the next assignment is taken."""
    session = act.begin()
    session.assign()
    session.refuse(session.expect("accept"), "withdrawn")
    session.expect_named()
    session.start("t2")
    session.ack(session.expect("complete", task="t2"))


@TABLE.row("accept/retry")
def an_accept_refused_with_retry_is_sent_again(act: Act) -> None:
    """refused with retry: the same message again after retry_after_ms, under the next number."""
    session = act.begin()
    session.assign()
    accept = session.expect("accept")
    session.refuse(accept, "log_unavailable", retry=True, retry_after_ms=300)
    again = session.expect("accept")
    same(again["id"], accept["id"], "accept with the id")
    must(again["seq"] > accept["seq"], f"a seq above {accept['seq']}", again)
    session.ack(again)
    session.ack(session.expect("complete"))


# ---- final reports ----


@TABLE.row("complete/named-until-its-ack")
def a_report_is_named_until_its_ack(act: Act) -> None:
    """Heartbeats go on naming the attempt until the ack of complete has come, and not after it."""
    session = act.working()
    complete = session.expect("complete")
    session.expect_named(("t1", 1))
    session.ack(complete)
    session.expect_named()


@TABLE.rows("fail/{}", {name: (name,) for name in ("retryable", "fatal")}, HANDLERS)
def a_failure_is_reported_with_its_class(act: Act, failure: str) -> None:
    """Work that fails: fail with its class, and an error with type and message."""
    session = act.working(payload={"ms": 0, "fail": failure})
    fail = session.expect("fail", task="t1", attempt=1, **{"class": failure})
    must(fail["error"]["type"] and fail["error"]["message"], "an error with type and message", fail)
    session.ack(fail)


@TABLE.row("complete/again", RESENDS)
def without_an_answer_a_report_is_sent_again(act: Act) -> None:
    """No ack within 5 s: same id and content, current epoch, next number; a late ack ends it."""
    session = act.working()
    complete = session.expect("complete")
    again = session.expect("complete")
    same({**again, "seq": 0}, {**complete, "seq": 0}, "again")
    must(again["seq"] > complete["seq"], f"a seq above {complete['seq']}", again)
    session.ack(complete, late=True)
    session.expect_named()
    session.expect_nothing(0.3)


@TABLE.row("complete/refused")
def a_refused_report_is_dropped(act: Act) -> None:
    """refused without retry ends the sending, and the attempt is held no more."""
    session = act.working()
    session.refuse(session.expect("complete"), "not_yours")
    session.expect_named()
    session.start("t2")
    session.ack(session.expect("complete", task="t2"))


# ---- form ----


@TABLE.row("form/ping")
def a_ping_is_answered(act: Act) -> None:
    """A WebSocket ping is answered by a pong. (By long polling there are none.)"""
    session = act.begin()
    if isinstance(session, SocketSession):
        session.ping()
        must(session.ponged.wait(act.gateway.patience_s), "a pong", "none")


@TABLE.row("form/unknown-is-ignored")
def what_a_robot_does_not_know_is_passed_over(act: Act) -> None:
    """Unknown messages and unknown fields are ignored; the connection goes on."""
    session = act.begin()
    session.send({"type": "weather", "sky": ["blue", {"deep": [1, 2, {"x": None}]}]})
    session.assign(colour="red", extra={"a": [1, '\\"}]']})
    session.ack(session.expect("accept"), unknown={"nested": True})
    session.ack(session.expect("complete"))


@TABLE.row("form/awkward-texts")
def awkward_texts_arrive_whole(act: Act) -> None:
    """Payloads and labels with escapes, quotes and non-ASCII letters disturb nothing."""
    session = act.begin()
    labels = {"note": 'a "quoted" \\ \u00e9 \U0001f600 \u2028'}
    session.assign(labels=labels, payload={"x": '}"],\\', "ms": 0, "y": "\U0001f600"})
    session.ack(session.expect("accept"))
    session.ack(done(session))
