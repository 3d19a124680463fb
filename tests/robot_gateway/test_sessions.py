"""What a robot may say when, over both transports; the owner is scripted, so only the gateway's rules are at work."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commands.messages import Hello
from robot_gateway import sessions
from robot_gateway.conformance.raw_robot import RawRobot
from tests.support.site import Site, until

Enter = Callable[..., RawRobot]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A gateway with a scripted owner, without tables."""
    with Site(scripted=True, projector=False, partitions=1) as running:
        yield running


@pytest.fixture(params=["websocket", "polling"])
def enter(site: Site, request: pytest.FixtureRequest) -> Iterator[Enter]:
    """Opens robots with new ids over one of the transports; they leave when the test ends."""
    entered: list[RawRobot] = []

    def one(robot: str | None = None, **settings: Any) -> RawRobot:
        name = robot or f"r{len(entered)}-{time.monotonic_ns()}"
        new: RawRobot = site.robot(name) if request.param == "websocket" else site.polling_robot(name)
        entered.append(new)
        return new

    yield one
    site.owner.on_report = site.owner.accept_report
    for robot in entered:
        robot.leave()


def reports_of(site: Site, robot: RawRobot) -> list[Any]:
    """What has come to the owner from this robot."""
    return [report.message for report in site.owner.reports if report.robot == robot.robot]


def refused(robot: RawRobot, text: str) -> dict[str, Any]:
    """What is said to a message that is refused."""
    robot.send(text)
    return robot.expect("refused")


def hello_with(**changed: Any) -> str:
    """A hello as text."""
    fields = {"type": "hello", "id": "b.0", "slots": 2, "capabilities": [], "holding": [], **changed}
    return json.dumps({name: value for name, value in fields.items() if value is not ...})


# ---- hello ----


def test_hello_goes_to_the_log_as_it_was_said(site: Site, enter: Enter) -> None:
    """With pool, robot, gateway and actor beside it, and a pool may be made by it; unknown fields do no harm."""
    robot = enter()
    welcome = robot.hello(agent="test/1", unknown={"x": 1}, holding=[{"task": "t", "attempt": 3, "started": True}])

    (report,) = [r for r in site.owner.reports if r.robot == robot.robot]
    assert (report.pool, report.gateway, report.actor, report.create) == ("hall-a", site.name, "local", True)
    assert isinstance(report.message, Hello)
    assert report.message.agent == "test/1"
    assert (report.message.holding[0].task, report.message.holding[0].attempt) == ("t", 3)
    assert welcome["payload_max_bytes"] == site.settings.payload_max_bytes
    assert welcome["position"].startswith(site.store.log_id[:8] + "~hall-a@")
    assert welcome["now_at"] > 1_700_000_000_000


def test_nothing_is_said_before_hello(site: Site) -> None:
    """And nothing before the welcome, which tells the epoch. (A poll begins with hello alone.)"""
    with site.robot("hasty") as robot:
        answer = refused(robot, '{"type":"ready","id":"a.1","epoch":1,"seq":1,"n":1}')
        assert (answer["of"], answer["reason"], answer["retry"]) == ("a.1", "hello_first", False)

        site.owner.on_report = lambda report: []
        robot.say_hello()
        robot.say("ready", n=1)
        assert robot.expect("refused")["reason"] == "hello_first"
        until(lambda: reports_of(site, robot))
        assert [m.type for m in reports_of(site, robot)] == ["hello"]
        site.owner.on_report = site.owner.accept_report


def test_a_repeated_hello_gets_its_welcome_again(site: Site, enter: Enter) -> None:
    """The same id means the same session: nothing is forgotten by the gateway."""
    robot = enter()
    first = robot.hello()
    robot.ask("ready", n=1)
    site.owner.on_report = lambda report: [site.owner.welcome(report, epoch=first["epoch"])]
    hello = reports_of(site, robot)[0].id
    robot.send(hello_with(id=hello))

    assert robot.expect("welcome")["epoch"] == first["epoch"]


def test_a_new_hello_on_the_same_connection_begins_a_new_session(site: Site, enter: Enter) -> None:
    """The owner's `superseded` for the session before is not for the one that took over."""
    robot = enter()
    before = robot.hello()["epoch"]
    gone = {"type": "superseded", "reason": "newer", "closed": 4001, "for_epoch": before}
    site.owner.on_report = lambda report: (
        [gone, *site.owner.accept_report(report)]
        if report.message.type == "hello"
        else site.owner.accept_report(report)
    )
    assert robot.hello()["epoch"] > before
    assert robot.ask("ready", n=1)["type"] == "ack"


# ---- form ----


@pytest.mark.parametrize(
    ("text", "reason", "field"),
    [
        ("{", "malformed_json", None),
        ("[]", "malformed_json", None),
        ('"hello"', "malformed_json", None),
        ('{"id":"a.1"}', "invalid_field", "/type"),
        ('{"type":"dance","id":"a.1"}', "unknown_type", "/type"),
        ('{"type":5,"id":"a.1"}', "unknown_type", "/type"),
        (hello_with(id=...), "invalid_field", "/id"),
        (hello_with(id=""), "invalid_field", "/id"),
        (hello_with(id="i" * 65), "invalid_field", "/id"),
        (hello_with(slots=...), "invalid_field", "/slots"),
        (hello_with(slots=0), "invalid_field", "/slots"),
        (hello_with(slots=1025), "invalid_field", "/slots"),
        (hello_with(slots="2"), "invalid_field", "/slots"),
        (hello_with(slots=True), "invalid_field", "/slots"),
        (hello_with(slots=1.0), "invalid_field", "/slots"),
        (hello_with(capabilities=["x"] * 65), "invalid_field", "/capabilities"),
        (hello_with(capabilities=[""]), "invalid_field", "/capabilities/0"),
        (hello_with(capabilities="gpu"), "invalid_field", "/capabilities"),
        (hello_with(holding=[{"task": "t", "attempt": 0, "started": True}]), "invalid_field", "/holding/0/attempt"),
        (hello_with(holding=[{"task": "t", "attempt": 1}]), "invalid_field", "/holding/0/started"),
        (hello_with(agent="a" * 129), "invalid_field", "/agent"),
        (hello_with(agent="a\0"), "invalid_field", "/agent"),
        (hello_with(fault={"text": "x" * 1001}), "invalid_field", "/fault/text"),
        (hello_with(inline_max_bytes=1023), "invalid_field", "/inline_max_bytes"),
        ('{"type":"hello","id":"a","x":' + "[" * 70 + "]" * 70 + "}", "invalid_field", None),
    ],
)
def test_a_mistake_in_hello_is_named_and_the_connection_goes_on(
    site: Site, text: str, reason: str, field: str | None
) -> None:
    """Reason word and JSON pointer; the robot may mend it and say hello again."""
    with site.robot(f"mistaken-{time.monotonic_ns()}") as robot:
        answer = refused(robot, text)
        assert answer["reason"] == reason
        if field is not None:
            assert answer["field"] == field
        assert robot.hello()["type"] == "welcome"


HERE: dict[str, Any] = {"task": "t", "attempt": 1}
BIG = "x" * (256 * 1024 - 2)


@pytest.mark.parametrize(
    ("kind", "fields", "reason", "field"),
    [
        ("ready", {}, "invalid_field", "/n"),
        ("ready", {"n": -1}, "invalid_field", "/n"),
        ("ready", {"n": 1.5}, "invalid_field", "/n"),
        ("update", {}, "invalid_field", "/slots"),
        ("update", {"slots": 0}, "invalid_field", "/slots"),
        ("accept", {"task": "t"}, "invalid_field", "/attempt"),
        ("accept", {"task": "t", "attempt": 2**53}, "invalid_field", "/attempt"),
        ("accept", {"task": "t" * 129, "attempt": 1}, "invalid_field", "/task"),
        ("reject", {**HERE, "reason": "bored"}, "invalid_field", "/reason"),
        ("reject", {**HERE, "reason": "other", "text": "x" * 201}, "invalid_field", "/text"),
        ("heartbeat", {}, "invalid_field", "/holding"),
        ("heartbeat", {"holding": [{**HERE, "progress": 101}]}, "invalid_field", "/holding/0/progress"),
        ("heartbeat", {"holding": [{**HERE, "note": "x" * 201}]}, "invalid_field", "/holding/0/note"),
        ("checkpoint", {**HERE, "number": 0, "value": 1}, "invalid_field", "/number"),
        ("checkpoint", {**HERE, "number": 1}, "invalid_field", "/value"),
        ("stopped", {**HERE, "why": "stop", "checkpoint": {"number": 1}}, "invalid_field", "/checkpoint/value"),
        ("checkpoint", {**HERE, "number": 1, "value": BIG + "y"}, "too_large", "/value"),
        ("complete", {**HERE, "result": BIG + "y"}, "too_large", "/result"),
        ("complete", {**HERE, "result": {"a": ["\0"]}}, "invalid_field", "/result/a/0"),
        ("complete", {**HERE, "result": {"a": 2**53}}, "invalid_field", "/result/a"),
        ("complete", {**HERE, "result": {"a": float("nan")}}, "malformed_json", "/result/a"),
        ("complete", {**HERE, "result": {"a": float("inf")}}, "malformed_json", "/result/a"),
        ("fail", {**HERE, "class": "fatal"}, "invalid_field", "/error"),
        ("fail", {**HERE, "class": "odd", "error": {"type": "E", "message": "m"}}, "invalid_field", "/class"),
        (
            "fail",
            {**HERE, "class": "fatal", "error": {"type": "E" * 129, "message": "m"}},
            "invalid_field",
            "/error/type",
        ),
        (
            "fail",
            {**HERE, "class": "fatal", "error": {"type": "E", "message": "m" * 1001}},
            "invalid_field",
            "/error/message",
        ),
        (
            "fail",
            {**HERE, "class": "fatal", "error": {"type": "E", "message": "m", "detail": "d" * 16 * 1024}},
            "too_large",
            "/error/detail",
        ),
        ("stopped", {**HERE, "why": "bored"}, "invalid_field", "/why"),
        (
            "stopped",
            {**HERE, "why": "stop", "checkpoint": {"number": 1, "value": BIG + "y"}},
            "too_large",
            "/checkpoint/value",
        ),
        ("fault", {"text": "x" * 1001}, "invalid_field", "/text"),
        ("fault", {"text": "x", "code": "c" * 65}, "invalid_field", "/code"),
        ("welcome", {}, "unknown_type", "/type"),
    ],
)
def test_a_mistake_in_any_message_is_named(
    site: Site, enter: Enter, kind: str, fields: dict[str, Any], reason: str, field: str
) -> None:
    """The message does not reach the log; the next one does."""
    robot = enter()
    robot.hello()

    answer = robot.ask(kind, **fields)

    assert (answer["type"], answer["reason"], answer["field"], answer["retry"]) == ("refused", reason, field, False)
    assert robot.ask("ready", n=1)["type"] == "ack"
    assert [m.type for m in reports_of(site, robot)] == ["hello", "ready"]


def test_what_just_fits_is_taken(site: Site, enter: Enter) -> None:
    """256 KiB of result, 16 KiB of detail, 64 levels."""
    robot = enter()
    robot.hello()
    deep: Any = 1
    for _ in range(64):
        deep = [deep]

    assert robot.ask("complete", **HERE, result=BIG)["type"] == "ack"
    assert robot.ask("complete", **HERE, result=deep)["type"] == "ack"
    assert robot.ask("checkpoint", **HERE, number=1, value=None)["type"] == "ack"
    detail = "d" * (16 * 1024 - 2)
    error = {"type": "E", "message": "m", "detail": detail}
    assert robot.ask("fail", **HERE, **{"class": "fatal"}, error=error)["type"] == "ack"


def test_a_lone_surrogate_is_named(site: Site, enter: Enter) -> None:
    """It is no character, and could not be stored."""
    robot = enter()
    robot.hello()
    if hasattr(robot, "poll"):
        answer = robot.poll([r'{"type":"fault","id":"a.1","epoch":1,"seq":1,"text":"\ud800"}'])
        assert (answer.status_code, answer.json()["reason"]) == (422, "invalid_field")
        assert answer.json()["field"] == "/messages/0/text"
    else:
        robot.send(r'{"type":"fault","id":"a.1","epoch":1,"seq":1,"text":"\ud800"}')
        answer_said = robot.expect("refused")
        assert (answer_said["reason"], answer_said["field"]) == ("invalid_field", "/text")


# ---- numbering ----


def test_numbers_grow_and_epochs_are_current(site: Site, enter: Enter) -> None:
    """A number not above the last, no number, another epoch, no epoch: refused, and nothing reaches the log."""
    robot = enter()
    epoch = robot.hello()["epoch"]
    robot.say("ready", n=1)
    robot.say("ready", n=2)
    robot.expect("ack")
    robot.expect("ack")

    def said(**fields: Any) -> tuple[str, str | None]:
        message = {"type": "ready", "id": robot.next_id(), "n": 0, **fields}
        answer = refused(robot, json.dumps(message))
        assert answer["of"] == message["id"]
        return answer["reason"], answer.get("field")

    assert said(epoch=epoch, seq=2) == ("invalid_field", "/seq")
    assert said(epoch=epoch, seq=1) == ("invalid_field", "/seq")
    assert said(epoch=epoch) == ("invalid_field", "/seq")
    assert said(epoch=epoch, seq=0) == ("invalid_field", "/seq")
    assert said(epoch=epoch - 1, seq=3) == ("no_session", "/epoch")
    assert said(epoch=epoch + 1, seq=3) == ("no_session", "/epoch")
    assert said(seq=3) == ("invalid_field", "/epoch")
    assert [m.type for m in reports_of(site, robot)] == ["hello", "ready", "ready"]
    robot._seq = 9
    assert robot.ask("ready", n=0)["type"] == "ack"


# ---- what the owner says ----


def test_what_the_owner_says_is_passed_on_as_it_is(site: Site, enter: Enter) -> None:
    """Fields that this version does not know as well; positions are filled in where they belong."""
    robot = enter()
    robot.hello()
    assign = {
        "type": "assign",
        "assignment_id": "a",
        "task": "t",
        "attempt": 1,
        "kind": "weld",
        "payload": {"ü": [1.5, None, "x" * 2000]},
        "idempotency_key": "i",
        "labels": {},
        "slot_cost": 1,
        "accept_within_ms": 5000,
        "lease_ms": 15000,
        "failures": 0,
        "lost": 0,
        "from_the_future": True,
    }
    site.owner.tell("hall-a", robot.robot, assign)
    assert robot.expect("assign") == assign
    site.owner.tell("hall-a", robot.robot, {"type": "ack", "of": "x", "late": True})
    ack = robot.expect("ack")
    assert (ack["of"], ack["late"]) == ("x", True)
    assert ack["position"].startswith(site.store.log_id[:8] + "~hall-a@")


def test_large_bodies_come_as_paths_where_that_was_asked(site: Site, enter: Enter) -> None:
    """Payload and checkpoint each by their own size."""
    robot = enter()
    robot.hello(inline_max_bytes=1024)
    assign = {
        "type": "assign",
        "task": "t",
        "attempt": 1,
        "payload": "x" * 1022,
        "checkpoint": {"number": 4, "value": 1},
    }
    site.owner.tell("hall-a", robot.robot, assign)
    assert robot.expect("assign") == assign

    assign |= {"payload": "x" * 1023, "checkpoint": {"number": 4, "value": "x" * 1023}}
    site.owner.tell("hall-a", robot.robot, assign)
    got = robot.expect("assign")
    assert got["payload_url"] == "/v1/pools/hall-a/tasks/t/payload"
    assert got["checkpoint"] == {"number": 4, "url": "/v1/pools/hall-a/tasks/t/checkpoints/4"}
    assert "payload" not in got


def test_what_is_for_another_epoch_or_gateway_is_not_passed_on(site: Site, enter: Enter) -> None:
    """Late messages for a session that is over must not reach the one after it."""
    robot = enter()
    epoch = robot.hello()["epoch"]
    stop = {"type": "stop", "task": "t", "attempt": 1, "reason": "expired"}
    site.owner.say("hall-a", stop, to=site.name, robot=robot.robot, epoch=epoch - 1)
    site.owner.say("hall-a", stop, to="another-gateway", robot=robot.robot, epoch=epoch)
    site.owner.say("hall-a", stop, to=site.name, robot="somebody", epoch=epoch)
    site.owner.tell("hall-a", robot.robot, {**stop, "task": "mine"})

    assert robot.expect("stop")["task"] == "mine"


# ---- heartbeats ----


def test_heartbeats_are_gathered_after_the_reports_before_them(site: Site, enter: Enter) -> None:
    """One record for all of them, in the log after what the robots said before; each is answered."""
    first, second = enter(), enter()
    first.hello()
    second.hello()
    site.owner.heartbeats.clear()

    first.say("accept", **HERE)
    beat = first.say("heartbeat", holding=[{**HERE, "progress": 7, "note": "n"}])
    assert first.expect("heartbeat_ack")["of"] == beat
    assert second.ask("heartbeat", holding=[])["type"] == "heartbeat_ack"

    def by_robot() -> dict[str, Any]:
        return {b.robot: b for record in list(site.owner.heartbeats) for b in record.beats}

    until(lambda: {first.robot, second.robot} <= by_robot().keys())  # answered when in the log, read a little later
    beats = by_robot()
    mine = beats[first.robot]
    assert (mine.epoch, mine.seq) == (first.epoch, 2)
    assert [(h.task, h.attempt, h.progress, h.note) for h in mine.holding] == [("t", 1, 7, "n")]
    assert beats[second.robot].holding == []
    assert {record.gateway for record in site.owner.heartbeats} == {site.name}


def test_open_stops_and_cancels_are_said_again_while_they_are_named(site: Site, enter: Enter) -> None:
    """A notice may be lost; the heartbeat that still names the attempt shows it."""
    robot = enter()
    robot.hello()
    site.owner.tell("hall-a", robot.robot, {"type": "stop", "task": "a", "attempt": 1, "reason": "expired"})
    site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": "b", "attempt": 2, "reason": "no need"})
    site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": "c", "attempt": 3})
    robot.expect("stop")
    robot.expect("cancel")
    robot.expect("cancel")
    both = [{"task": "a", "attempt": 1}, {"task": "b", "attempt": 2}]

    for _ in range(2):
        ack = robot.ask("heartbeat", holding=both)
        assert ack["stop"] == [{"task": "a", "attempt": 1, "reason": "expired"}]
        assert ack["cancel"] == [{"task": "b", "attempt": 2, "reason": "no need"}]
    assert robot.ask("heartbeat", holding=[])["stop"] == []
    ack = robot.ask("heartbeat", holding=both)
    assert (ack["stop"], ack["cancel"]) == ([], [])


def test_notes_of_the_owner_change_what_heartbeats_say(site: Site, enter: Enter) -> None:
    """Draining and the rhythm come with every heartbeat_ack; the note itself is not for the robot."""
    robot = enter()
    robot.hello()
    note = {"type": "session_note", "draining": True, "heartbeat_every_ms": 700}
    site.owner.tell("hall-a", robot.robot, note)
    site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": "x", "attempt": 1})
    robot.expect("cancel")

    ack = robot.ask("heartbeat", holding=[])
    assert (ack["draining"], ack["heartbeat_every_ms"]) == (True, 700)
    assert not any(message["type"] == "session_note" for message in robot.inbox)


# ---- trouble with the log ----


def test_a_log_that_is_away_loses_nothing(site: Site, enter: Enter) -> None:
    """The robot is told to send again, and then it goes through; such refusals do not end the session."""
    robot = enter()
    robot.hello()
    site.store.away = True
    try:
        for _ in range(3):
            answer = robot.ask("complete", **HERE)
            assert (answer["reason"], answer["retry"], answer["retry_after_ms"]) == ("log_unavailable", True, 1000)
        assert robot.ask("heartbeat", holding=[])["reason"] == "log_unavailable"
    finally:
        site.store.away = False
    assert robot.ask("complete", **HERE)["type"] == "ack"


# ---- limits ----


def test_too_fast_is_refused_with_a_time(site: Site) -> None:
    """Over the larger of 100 and 50 x slots messages a second. It may be said again, so it ends no session."""
    with site.robot("hurried") as robot:
        robot.hello(slots=1)
        for _ in range(400):
            robot.say("ready", n=1)
        answers = [robot.expect_where(lambda m: m["type"] in ("ack", "refused")) for _ in range(400)]
        refusals = [answer for answer in answers if answer["type"] == "refused"]
        assert {(r["reason"], r["retry"], r["retry_after_ms"]) for r in refusals} == {("too_fast", True, 1000)}
        assert len(refusals) > 100
        until(lambda: robot.ask("ready", n=1)["type"] == "ack")
    assert len(reports_of(site, robot)) > 100


def test_more_slots_may_say_more(site: Site) -> None:
    """300 messages at once are fine with 8 slots."""
    with site.robot("busy") as robot:
        robot.hello(slots=8)
        for _ in range(300):
            robot.say("ready", n=1)
        for _ in range(300):
            assert robot.expect_where(lambda m: m["type"] in ("ack", "refused"))["type"] == "ack"


def test_a_hundred_refusals_within_a_minute_end_the_session(site: Site, enter: Enter) -> None:
    """Ninety-nine do not; neither do refusals that are nobody's mistake."""
    robot = enter()
    robot.hello(slots=64)
    site.owner.on_report = lambda report: [
        {"type": "refused", "of": report.message.id, "reason": "withdrawn", "text": "gone", "retry": False}
    ]
    for n in range(1, 41):
        assert robot.ask("accept", task="t", attempt=n)["reason"] == "withdrawn"
    for _ in range(99):
        robot.send('{"type":"dance","id":"x"}')
    for _ in range(99):
        robot.expect_where(lambda m: m.get("reason") == "unknown_type")
    site.owner.on_report = site.owner.accept_report
    assert robot.ask("ready", n=1)["type"] == "ack"

    robot.send('{"type":"dance","id":"x"}')
    assert robot.expect_closed().code == 4006


def test_no_hello_is_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """4000 after 10 s; whatever else was said."""
    monkeypatch.setattr(sessions, "HELLO_WITHIN_S", 0.2)
    with site.robot("mute") as robot:
        robot.send('{"type":"ready","id":"a","epoch":1,"seq":1,"n":1}')
        assert robot.expect_closed().code == 4000


def test_silence_of_six_windows_is_the_end(site: Site, enter: Enter) -> None:
    """4008, counted in the windows of the pool."""
    site.owner.on_report = lambda report: [site.owner.welcome(report, window_ms=50)]
    robot = enter()
    robot.hello()
    if hasattr(robot, "poll"):
        until(lambda: robot.robot not in {s.robot for s in site.gateway.sessions}, "the session's end")
        answer = robot.poll([])
        assert (answer.status_code, answer.json()["reason"]) == (410, "no_session")
    else:
        assert robot.expect_closed().code == 4008


# ---- ends ----


def test_ends_that_the_owner_decides(site: Site, enter: Enter) -> None:
    """Superseded, retired, two programs: each with its code; afterwards the session is forgotten."""
    robot = enter()
    robot.hello()
    site.owner.tell("hall-a", robot.robot, {"type": "superseded", "reason": "newer", "closed": 4001})
    assert robot.expect("superseded")["reason"] == "newer"
    closed = robot.expect_closed()
    assert (closed.code, closed.reason) == (4001, "newer")

    retired = enter()
    retired.hello()
    site.owner.tell("hall-a", retired.robot, {"type": "session_note", "closed": 4004})
    assert retired.expect_closed().code == 4004

    site.owner.on_report = lambda report: [
        {
            "type": "refused",
            "of": report.message.id,
            "reason": "two_programs",
            "text": "two programs",
            "retry": False,
            "closed": 4002,
        }
    ]
    twin = enter()
    twin.say_hello()
    assert twin.expect_closed().code == 4002
    names = {robot.robot, retired.robot, twin.robot}
    until(lambda: not names & {session.robot for session in site.gateway.sessions})
    assert not names & {key[1] for key in site.gateway._by_epoch}
    assert not names & {key[1] for key in site.gateway._by_hello}


def test_a_robot_that_leaves_is_forgotten(site: Site) -> None:
    """Without a word: the connection's end is the session's."""
    robot = site.robot("leaver")
    robot.hello()
    assert any(session.robot == "leaver" for session in site.gateway.sessions)
    robot.leave()
    until(lambda: not any(session.robot == "leaver" for session in site.gateway.sessions))


def test_moved_comes_before_the_end() -> None:
    """A gateway that stops tells its robots when to come back, then closes with 1012."""
    with Site(scripted=True, projector=False) as site:
        robot = site.robot("r1")
        robot.hello()
        polling = site.polling_robot("r2")
        polling.hello()
    assert robot.expect("moved")["after_ms"] == 500
    assert robot.expect_closed().code == 1012
    robot.leave()
    polling.leave()
