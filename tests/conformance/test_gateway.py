"""The gateway row by row of the robot protocol, with the whole product behind it, over both transports.

Each row: right; repeated; with a wrong attempt; by a foreign robot; with an old epoch; with an unknown field; without
a field; one byte too long; and cut off after it was sent.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from robot_gateway.conformance.message_table import ABOUT_ATTEMPTS, ROWS, Fields, Row, Scene, with_value
from robot_gateway.conformance.raw_robot import PollingRobot, RawRobot, WebSocketRobot
from tests.support.fleet import Fleet, until

POOL_NUMBERS = itertools.count(1)
TRANSPORTS: dict[str, type[RawRobot]] = {"websocket": WebSocketRobot, "polling": PollingRobot}
WINDOW_S = 60
"""Long, because these robots beat only when a test says so."""
SHORT_WINDOW_S = 0.5

Enter = Callable[..., RawRobot]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The product, for all tests here; each uses a pool of its own."""
    folder: Path = tmp_path_factory.mktemp("fleet") / "data"
    settings = {"window_s": WINDOW_S, "lease_s": 180, "accept_s": 180, "backoff_first_s": 0, "on_lost": "never"}
    with Fleet(folder, pool=settings, gateway={"heartbeat_gather_ms": 50}) as running:
        yield running


@pytest.fixture
def short_windows(fleet: Fleet, pool: str) -> None:
    """This pool has short windows."""
    settings = {"window_s": SHORT_WINDOW_S, "lease_s": 60}
    made = httpx.post(f"{fleet.url}/v1/pools", json={"pool": pool, "settings": settings}, timeout=60)
    assert made.status_code == 201, made.text


@pytest.fixture(params=list(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> str:
    """WebSocket, or long polling."""
    return str(request.param)


@pytest.fixture
def pool() -> str:
    """A pool that no other test uses."""
    return f"pool-{next(POOL_NUMBERS)}"


@pytest.fixture
def enter(fleet: Fleet, transport: str, pool: str) -> Iterator[Enter]:
    """Makes robots of this pool over this transport, before their hello."""
    robots: list[RawRobot] = []

    def make(robot: str = "r1") -> RawRobot:
        robots.append(TRANSPORTS[transport](fleet.url, pool, robot))
        return robots[-1]

    yield make
    for robot in robots:
        robot.leave()


@pytest.fixture
def scene(fleet: Fleet, pool: str, enter: Enter) -> Scene:
    """Robot r1 of this pool, welcome, with room for two tasks."""
    robot = enter()
    robot.hello()
    assert robot.ask("ready", n=2)["type"] == "ack"
    return Scene(robot, fleet.client(pool), pool)


def say(robot: RawRobot, kind: str, fields: Fields, **changed: Any) -> Fields:
    """Say a message that may be wrong in `changed` (id, epoch, seq); `...` leaves a field out. Gives it as said."""
    robot._seq += 1
    message = {"type": kind, "id": robot.next_id(), "epoch": robot.epoch, "seq": robot._seq, **fields, **changed}
    message = {name: value for name, value in message.items() if value is not ...}
    robot.send(json.dumps(message))
    return message


def answer(robot: RawRobot, message: Fields) -> Fields:
    """What is answered to a message."""
    return robot.expect_where(lambda m: m.get("of") == message["id"])


def ask(robot: RawRobot, kind: str, fields: Fields, **changed: Any) -> Fields:
    """Say it and give what is answered."""
    return answer(robot, say(robot, kind, fields, **changed))


def cut(robot: RawRobot) -> None:
    """Break the connection right after the last message was handed to the network."""
    if isinstance(robot, PollingRobot):
        host, port = robot.url.removeprefix("http://").split(":")
        body = json.dumps(
            {"session": robot.session, "seen": robot.seen, "messages": [json.loads(m) for m in robot.outbox]}
        )
        head = (
            f"POST /v1/pools/{robot.pool}/robots/{robot.robot}/poll HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(head.encode() + body.encode())
        return
    connection: ClientConnection = robot.connection  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # the gateway may have closed it already, as after bye
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        connection.socket.shutdown(socket.SHUT_WR)


def comparable(message: Fields) -> Fields:
    """An answer without what may differ between two of them."""
    return {name: value for name, value in message.items() if name not in ("of", "position")}


# ---- every row ----


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_right(scene: Scene, row: Row) -> None:
    """The message is acknowledged, with a position."""
    told = ask(scene.robot, row.kind, row.message(scene))
    assert told["type"] == "ack", told
    assert told["position"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_repeated(scene: Scene, row: Row) -> None:
    """Sent again with the same id and the next number, and again under a new id: the same answer, one event."""
    fields = row.message(scene)
    said = say(scene.robot, row.kind, fields)
    first = answer(scene.robot, said)
    second = ask(scene.robot, row.kind, fields, id=said["id"])
    third = ask(scene.robot, row.kind, fields)
    assert first["type"] == "ack"
    assert comparable(first) == comparable(second) == comparable(third)
    if row.once is not None:
        assert len(scene.events(row.once, third["position"])) == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_an_old_epoch(scene: Scene, row: Row) -> None:
    """refused(no_session); nothing happens, and the same in the right epoch is taken."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, fields, epoch=scene.robot.epoch - 1)
    assert (told["type"], told["reason"], told["field"]) == ("refused", "no_session", "/epoch")
    assert ask(scene.robot, row.kind, fields)["type"] == "ack"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_an_old_number(scene: Scene, row: Row) -> None:
    """A seq not above the last: refused(invalid_field)."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, fields, seq=1)
    assert (told["type"], told["reason"], told["field"]) == ("refused", "invalid_field", "/seq")
    assert ask(scene.robot, row.kind, fields)["type"] == "ack"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_an_unknown_field(scene: Scene, row: Row) -> None:
    """Ignored."""
    told = ask(scene.robot, row.kind, row.message(scene) | {"colour": {"deep": [1, None]}})
    assert told["type"] == "ack"


@pytest.mark.parametrize(
    ("row", "missing"), [(row, name) for row in ROWS for name in ("id", "epoch", "seq", *row.required)], ids=str
)
def test_a_missing_field(scene: Scene, row: Row, missing: str) -> None:
    """refused(invalid_field) with a pointer to it; the connection goes on."""
    fields = row.message(scene)
    message = say(scene.robot, row.kind, fields, **{missing: ...})
    told = scene.robot.expect_where(lambda m: m["type"] == "refused" and m["of"] == message.get("id"))
    reason = "no_session" if missing == "epoch" else "invalid_field"
    assert (told["reason"], told["field"]) in {(reason, f"/{missing}"), ("invalid_field", f"/{missing}")}
    assert ask(scene.robot, row.kind, fields)["type"] == "ack"


@pytest.mark.parametrize(
    ("row", "place", "fits", "too_long"),
    [(row, *case) for row in ROWS for case in row.too_long],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else getattr(value, "kind", ""),
)
def test_one_too_many(scene: Scene, row: Row, place: str, fits: Any, too_long: Any) -> None:
    """What is one longer than allowed is refused with the field; what just fits is taken."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, with_value(fields, place, too_long))
    assert told["type"] == "refused"
    assert told["reason"] in ("invalid_field", "too_large")
    assert told["field"] == place
    assert ask(scene.robot, row.kind, with_value(fields, place, fits))["type"] == "ack"


@pytest.mark.parametrize("row", ABOUT_ATTEMPTS, ids=lambda row: row.kind)
@pytest.mark.parametrize("wrong", ["later", "unknown"])
def test_a_wrong_attempt(scene: Scene, row: Row, wrong: str) -> None:
    """An attempt that never was, a task that nobody knows: a reason of the row; the right one is still taken."""
    fields = row.message(scene)
    other = {"attempt": fields["attempt"] + 1} if wrong == "later" else {"task": "nobody-knows-it"}
    told = ask(scene.robot, row.kind, fields | other)
    assert told["type"] == "refused"
    allowed = row.refusals if wrong == "later" else row.refusals | {"unknown_task"}
    assert told["reason"] in allowed, told
    assert told["retry"] is False
    assert ask(scene.robot, row.kind, fields)["type"] == "ack"


@pytest.mark.parametrize("row", ABOUT_ATTEMPTS, ids=lambda row: row.kind)
def test_a_foreign_robot(scene: Scene, enter: Enter, row: Row) -> None:
    """Somebody else's attempt: refused(not_yours); its own robot is still heard."""
    fields = row.message(scene)
    other = enter("r2")
    other.hello()
    told = ask(other, row.kind, fields)
    assert (told["type"], told["reason"]) == ("refused", "not_yours")
    assert ask(scene.robot, row.kind, fields)["type"] == "ack"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_a_cut_after_the_message(scene: Scene, enter: Enter, row: Row) -> None:
    """The connection breaks after the send: whether it arrived or not, after a new hello the repeat is taken, once."""
    fields = row.message(scene)
    said = say(scene.robot, row.kind, fields)
    cut(scene.robot)
    again = enter()
    held = {name: fields[name] for name in ("task", "attempt") if name in fields}
    welcome = again.hello(holding=[{**held, "started": row.kind not in ("accept", "reject")}] if held else [])
    assert welcome["epoch"] > scene.robot.epoch
    told = ask(again, row.kind, fields, id=said["id"])
    assert told["type"] == "ack", told
    if row.once is not None:
        assert len(scene.events(row.once, told["position"])) == 1


# ---- hello ----


def test_welcome_says_what_the_robot_needs(enter: Enter) -> None:
    """All required fields of welcome."""
    welcome = enter().hello()
    assert welcome["protocol"] == 1
    assert (welcome["window_ms"], welcome["heartbeat_every_ms"]) == (60_000, 30_000)
    assert welcome["draining"] is False
    assert welcome["held"] == []
    assert welcome["payload_max_bytes"] == 262144
    assert welcome["epoch"] >= 1
    assert welcome["now_at"] > 0
    assert welcome["position"]


def test_a_repeated_hello_gets_its_welcome_again(fleet: Fleet, pool: str, enter: Enter) -> None:
    """Same id, same session: the same epoch, no further event."""
    robot = enter()
    said = robot.say_hello()
    first = robot.expect("welcome")
    robot.send(json.dumps({"type": "hello", "id": said, "slots": 2, "capabilities": ["gpu"], "holding": []}))
    assert robot.expect("welcome")["epoch"] == first["epoch"]


def test_hello_first(enter: Enter, fleet: Fleet, transport: str) -> None:
    """Anything before hello is refused: hello_first (WebSocket), 410 no_session (a poll without session)."""
    robot = enter()
    robot.epoch = 1
    message = say(robot, "ready", {"n": 1})
    if isinstance(robot, PollingRobot):
        told = robot.poll(robot.outbox)
        assert (told.status_code, told.json()["reason"]) == (410, "no_session")
        robot.outbox.clear()
    else:
        assert answer(robot, message)["reason"] == "hello_first"
    robot.session = "11111111-2222-4333-8444-555555555555"  # type: ignore[attr-defined]
    assert robot.hello()["type"] == "welcome"


@pytest.mark.parametrize("missing", ["id", "slots", "capabilities", "holding"])
def test_hello_without_a_field(enter: Enter, missing: str, transport: str) -> None:
    """refused(invalid_field); a right hello then is welcome."""
    robot = enter()
    hello = {"type": "hello", "id": robot.next_id(), "slots": 2, "capabilities": [], "holding": []}
    del hello[missing]
    robot.send(json.dumps(hello))
    told = robot.expect("refused")
    assert (told["of"], told["reason"], told["field"]) == (hello.get("id"), "invalid_field", f"/{missing}")
    assert robot.hello()["type"] == "welcome"


@pytest.mark.parametrize(
    ("place", "fits", "too_long"),
    [
        ("/id", "i" * 64, "i" * 65),
        ("/slots", 1024, 1025),
        ("/capabilities", ["c"] * 64, ["c"] * 65),
        ("/agent", "a" * 128, "a" * 129),
        ("/fault", {"text": "x" * 1000}, {"text": "x" * 1001}),
    ],
    ids=["id", "slots", "capabilities", "agent", "fault"],
)
def test_hello_one_too_many(enter: Enter, place: str, fits: Any, too_long: Any) -> None:
    """What is one longer than allowed is refused with the field; what just fits is welcome."""
    robot = enter()
    hello = {"type": "hello", "id": robot.next_id(), "slots": 2, "capabilities": [], "holding": []}
    robot.send(json.dumps(with_value(hello, place, too_long)))
    told = robot.expect("refused")
    assert told["reason"] == "invalid_field"
    assert told["field"].startswith(place)
    robot.send(json.dumps(with_value(hello, place, fits)))
    assert robot.expect("welcome")


def test_a_newer_session_supersedes(scene: Scene, enter: Enter) -> None:
    """superseded, then 4001, to the older session."""
    enter().hello()
    closed = scene.robot.expect_closed()
    assert closed.code == 4001
    assert any(m["type"] == "superseded" and m["reason"] for m in scene.robot.inbox)


def test_two_programs(enter: Enter, fleet: Fleet, pool: str) -> None:
    """The sixth takeover within a minute by another program: two_programs and 4002; the current session goes on."""
    for _ in range(5):
        enter().hello()
    current = enter()
    current.hello()
    intruder = enter()
    intruder.say_hello()
    closed = intruder.expect_closed()
    assert closed.code == 4002
    assert current.ask("ready", n=1)["type"] == "ack"
    state = until(lambda: fleet.robot_state("r1", pool).get("state") == "ERROR", "ERROR")
    assert state


def test_attempts_that_hello_does_not_name_are_lost(scene: Scene, enter: Enter) -> None:
    """RUNNING, not named: LeaseExpired(not_held) at once."""
    scene.running()
    enter().hello()
    [expired] = until(lambda: scene.events("LeaseExpired"), "the expiry")
    assert expired["reason"] == "not_held"


def test_verdicts_on_what_hello_names(scene: Scene, enter: Enter) -> None:
    """RUNNING: run. ASSIGNED: accept, and the assignment comes again with what is left of its time. Else: stop."""
    runs, assigned = scene.running(), scene.assigned()
    again = enter()
    holding = [
        {**runs, "started": True},
        {**assigned, "started": False},
        {"task": "gone", "attempt": 4, "started": True},
    ]
    welcome = again.hello(holding=holding)
    verdicts = {held["task"]: held for held in welcome["held"]}
    assert verdicts[runs["task"]]["verdict"] == "run"
    assert verdicts[assigned["task"]]["verdict"] == "accept"
    assert (verdicts["gone"]["verdict"], verdicts["gone"]["reason"]) == ("stop", "unknown")
    assign = again.expect("assign")
    assert (assign["task"], assign["attempt"]) == (assigned["task"], assigned["attempt"])
    assert 0 < assign["accept_within_ms"] <= 180_000


def test_a_cancel_is_said_again_after_hello(scene: Scene, enter: Enter) -> None:
    """A cancel that was asked before the cut follows the welcome."""
    about = scene.running()
    scene.client.cancel(about["task"], reason="no longer wanted")
    scene.robot.expect("cancel")
    again = enter()
    again.hello(holding=[{**about, "started": True}])
    assert again.expect("cancel")["task"] == about["task"]


# ---- heartbeat ----


def test_a_heartbeat_is_answered(scene: Scene) -> None:
    """heartbeat_ack with all its fields, naming nothing and naming an attempt."""
    told = ask(scene.robot, "heartbeat", {"holding": []})
    assert told["type"] == "heartbeat_ack"
    assert (told["stop"], told["cancel"], told["draining"]) == ([], [], False)
    assert told["heartbeat_every_ms"] == 30_000
    about = scene.running()
    told = ask(scene.robot, "heartbeat", {"holding": [{**about, "progress": 40, "note": "half", "colour": 1}]})
    assert told["stop"] == []
    until(lambda: scene.client.task(about["task"]).raw.get("progress") == 40, "the progress")


def test_wrong_entries_of_a_heartbeat_are_answered_with_stop(scene: Scene, enter: Enter) -> None:
    """An unknown task, a wrong attempt, somebody else's: `stop`, again in each heartbeat_ack while it is named."""
    about = scene.running()
    other = enter("r2")
    other.hello()
    wrong = [
        (scene.robot, {"task": "nobody-knows-it", "attempt": 1}),
        (scene.robot, {**about, "attempt": 7}),
        (other, about),
    ]
    for robot, entry in wrong:
        ask(robot, "heartbeat", {"holding": [entry]})
        stop = robot.expect_where(lambda m, entry=entry: m["type"] == "stop" and entry.items() <= m.items())  # type: ignore[misc]
        assert stop["reason"] in ("unknown", "newer_attempt", "ended")
        told = ask(robot, "heartbeat", {"holding": [entry]})
        assert [{name: s[name] for name in ("task", "attempt")} for s in told["stop"]] == [entry]
        assert ask(robot, "heartbeat", {"holding": []})["stop"] == []


@pytest.mark.parametrize("missing", ["holding", "holding/0/task", "holding/0/attempt"])
def test_a_heartbeat_without_a_field(scene: Scene, missing: str) -> None:
    """refused(invalid_field) with the pointer; the next one is answered."""
    fields = {"holding": [{"task": "t", "attempt": 1}]}
    told = ask(scene.robot, "heartbeat", with_value(fields, missing, ...))
    assert (told["type"], told["reason"], told["field"]) == ("refused", "invalid_field", f"/{missing}")
    assert ask(scene.robot, "heartbeat", {"holding": []})["type"] == "heartbeat_ack"


@pytest.mark.parametrize(("name", "value"), [("progress", 101), ("note", "n" * 201), ("attempt", 2**53)])
def test_a_heartbeat_one_too_many(scene: Scene, name: str, value: Any) -> None:
    """refused(invalid_field) with the pointer."""
    told = ask(scene.robot, "heartbeat", {"holding": [{"task": "t", "attempt": 1, name: value}]})
    assert (told["reason"], told["field"]) == ("invalid_field", f"/holding/0/{name}")


def test_a_heartbeat_with_an_old_epoch(scene: Scene) -> None:
    """refused(no_session)."""
    assert ask(scene.robot, "heartbeat", {"holding": []}, epoch=0)["reason"] == "no_session"


# ---- the attempt's own rules ----


def test_assign_says_what_the_robot_needs(scene: Scene, fleet: Fleet) -> None:
    """All required fields of assign; the idempotency key is the id of TaskSubmitted, assignment_id of TaskAssigned."""
    handle = scene.client.submit("weld", {"seam": 3}, labels={"line": "3"}, target="dock-7")
    assign = scene.robot.expect("assign")
    events = {event["type"]: event for event in scene.client.history(handle.id)}
    assert assign["idempotency_key"] == events["TaskSubmitted.v1"]["id"]
    assert assign["assignment_id"] == events["TaskAssigned.v1"]["id"]
    assert (assign["task"], assign["attempt"], assign["kind"]) == (handle.id, 1, "weld")
    assert assign["payload"] == {"seam": 3}
    assert (assign["target"], assign["labels"], assign["slot_cost"]) == ("dock-7", {"line": "3"}, 1)
    assert (assign["failures"], assign["lost"]) == (0, 0)
    assert assign["lease_ms"] == 180_000
    assert 0 < assign["accept_within_ms"] <= 180_000


def test_the_ack_of_accept_says_the_lease(scene: Scene) -> None:
    """lease_ms always; stop_after_ms = lease for requeue, absent for never (the pool's policy here)."""
    told = ask(scene.robot, "accept", scene.assigned())
    assert told["lease_ms"] == 180_000
    assert "stop_after_ms" not in told
    scene.client.submit("weld", on_lost="requeue")
    assign = scene.robot.expect("assign")
    told = ask(scene.robot, "accept", {"task": assign["task"], "attempt": assign["attempt"]})
    assert told["stop_after_ms"] == told["lease_ms"] == 180_000


def test_never_more_than_ready(scene: Scene) -> None:
    """ready(2): two tasks, the third only when one has ended; ready(0): nothing more."""
    first, _ = scene.running(), scene.running()
    scene.client.submit("weld")
    assert ask(scene.robot, "heartbeat", {"holding": []})
    assert not [m for m in scene.robot.inbox if m["type"] == "assign"]
    assert ask(scene.robot, "complete", first)["type"] == "ack"
    third = scene.robot.expect("assign")
    assert ask(scene.robot, "ready", {"n": 0})["type"] == "ack"
    assert ask(scene.robot, "reject", {"task": third["task"], "attempt": third["attempt"], "reason": "busy"})
    assert ask(scene.robot, "heartbeat", {"holding": []})
    assert not [m for m in scene.robot.inbox if m["type"] == "assign"]


@pytest.mark.parametrize("kind", ["checkpoint", "complete", "fail", "stopped"])
def test_what_needs_an_accept(scene: Scene, kind: str) -> None:
    """Before accept: refused(not_accepted)."""
    row = next(row for row in ROWS if row.kind == kind)
    assert ask(scene.robot, kind, row.fields | scene.assigned())["reason"] == "not_accepted"


def test_reject_after_accept(scene: Scene) -> None:
    """refused(already_accepted)."""
    assert ask(scene.robot, "reject", scene.running() | {"reason": "busy"})["reason"] == "already_accepted"


def test_a_withdrawn_assignment(scene: Scene) -> None:
    """Not accepted in time: withdrawn and assigned again; the older accept is refused, the newer taken."""
    scene.client.submit("weld", accept_s=0.5)
    first, second = scene.robot.expect("assign"), scene.robot.expect("assign")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    told = ask(scene.robot, "accept", {"task": first["task"], "attempt": 1})
    assert told["reason"] in ("withdrawn", "not_current")
    told = ask(scene.robot, "accept", {"task": first["task"], "attempt": second["attempt"]})
    assert told["type"] == "ack" or told["reason"] in ("withdrawn", "not_current")


def test_checkpoints_one_a_second(scene: Scene) -> None:
    """A second number at once: refused(too_fast) with a time; after it, taken; an older number is a repeat."""
    about = scene.running()
    assert ask(scene.robot, "checkpoint", about | {"number": 1, "value": 1})["type"] == "ack"
    told = ask(scene.robot, "checkpoint", about | {"number": 2, "value": 2})
    assert (told["reason"], told["retry"]) == ("too_fast", True)
    assert 0 < told["retry_after_ms"] <= 1000
    until(lambda: ask(scene.robot, "checkpoint", about | {"number": 2, "value": 2})["type"] == "ack", "the second one")
    repeated = ask(scene.robot, "checkpoint", about | {"number": 1, "value": 1})
    assert repeated["type"] == "ack"
    assert len(scene.events("CheckpointSaved", repeated["position"])) == 2


def test_a_checkpoint_goes_to_the_next_attempt(scene: Scene) -> None:
    """The value saved by a stopped attempt comes with the next assignment."""
    about = scene.running()
    ask(scene.robot, "checkpoint", about | {"number": 1, "value": {"offset": 7}})
    ask(scene.robot, "stopped", about | {"why": "shutdown"})
    assign = scene.robot.expect("assign")
    assert assign["attempt"] == 2
    assert assign["checkpoint"] == {"number": 1, "value": {"offset": 7}}


def test_late_reports_are_acknowledged_as_late(scene: Scene) -> None:
    """complete about an attempt whose task was completed by a newer one: ack with late, and on record."""
    about = scene.running()
    scene.client.release(about["task"], reason="test", force=True)
    scene.robot.expect("stop")
    newer = scene.robot.expect("assign")
    told = ask(scene.robot, "complete", about | {"result": 1})
    assert told["type"] == "ack"
    assert told["late"] is True
    assert newer["attempt"] == 2
    assert len(scene.events("ReportedLate", told["position"])) == 1


@pytest.mark.parametrize("verb", ["cancel", "release"])
def test_cancel_and_stop_reach_the_robot(scene: Scene, verb: str) -> None:
    """cancel -> `cancel`, again in heartbeat_ack while it is named; release -> `stop`(released)."""
    about = scene.running()
    if verb == "cancel":
        scene.client.cancel(about["task"], reason="no longer wanted")
        assert scene.robot.expect("cancel")["task"] == about["task"]
        told = ask(scene.robot, "heartbeat", {"holding": [about]})
        assert [(c["task"], c["attempt"]) for c in told["cancel"]] == [(about["task"], about["attempt"])]
        assert ask(scene.robot, "stopped", about | {"why": "cancel"})["type"] == "ack"
        assert scene.client.wait(about["task"], timeout_s=60).state == "CANCELLED"
    else:
        scene.client.release(about["task"], reason="stuck")
        stop = scene.robot.expect("stop")
        assert (stop["task"], stop["reason"]) == (about["task"], "released")
        assert ask(scene.robot, "stopped", about | {"why": "stop"})["type"] == "ack"


def test_fewer_slots_than_are_in_use(scene: Scene) -> None:
    """update: refused(slots_in_use), retryable."""
    scene.running(), scene.running()
    told = ask(scene.robot, "update", {"slots": 1})
    assert (told["reason"], told["retry"]) == ("slots_in_use", True)
    assert ask(scene.robot, "update", {})["reason"] == "invalid_field"


def test_fault_and_recovered(scene: Scene, fleet: Fleet) -> None:
    """fault: ERROR, nothing new; recovered: taken once, then refused(not_in_error)."""
    assert ask(scene.robot, "recovered", {})["reason"] == "not_in_error"
    assert ask(scene.robot, "fault", {"text": "no gas"})["type"] == "ack"
    until(lambda: fleet.robot_state("r1", scene.pool)["state"] == "ERROR", "ERROR")
    assert ask(scene.robot, "recovered", {"colour": 1})["type"] == "ack"
    assert ask(scene.robot, "recovered", {})["reason"] == "not_in_error"
    assert ask(scene.robot, "recovered", {}, epoch=0)["reason"] == "no_session"


def test_bye(scene: Scene, fleet: Fleet) -> None:
    """ack, then 1000; assigned work goes back, running work too (the robot says that it works on nothing)."""
    about = scene.running()
    said = say(scene.robot, "bye", {"colour": 1})
    closed = scene.robot.expect_closed()
    assert closed.code == 1000
    assert any(m["type"] == "ack" and m["of"] == said["id"] for m in scene.robot.inbox)
    until(lambda: fleet.robot_state("r1", scene.pool)["state"] == "OFFLINE", "OFFLINE")
    [stopped] = until(lambda: scene.events("AttemptStopped"), "the end of the attempt")
    assert (stopped["task"], stopped["why"]) == (about["task"], "bye")


def test_a_cut_after_bye(scene: Scene, enter: Enter) -> None:
    """bye arrives although nobody hears its answer; the next hello is a new session."""
    say(scene.robot, "bye", {})
    cut(scene.robot)
    assert enter().hello()["epoch"] > scene.robot.epoch


# ---- form ----


@pytest.mark.parametrize("text", ['{"type": "ready"', "[1]", '"ready"'])
def test_malformed_json(scene: Scene, text: str, transport: str) -> None:
    """refused(malformed_json) with `of` null; by polling the whole poll is malformed: 400 or 422."""
    if isinstance(scene.robot, PollingRobot):
        told = scene.robot.poll([text])
        assert told.status_code in (400, 422)
        assert told.json()["reason"] in ("malformed_json", "invalid_field")
    else:
        scene.robot.send(text)
        told_by_frame = scene.robot.expect("refused")
        assert (told_by_frame["of"], told_by_frame["reason"]) == (None, "malformed_json")
    assert ask(scene.robot, "ready", {"n": 1})["type"] == "ack"


def test_an_unknown_type(scene: Scene) -> None:
    """refused(unknown_type); the connection goes on."""
    assert ask(scene.robot, "dance", {})["reason"] == "unknown_type"
    assert ask(scene.robot, "ready", {"n": 1})["type"] == "ack"


def test_the_largest_message(scene: Scene, transport: str) -> None:
    """512 KiB are taken (unknown fields count), one byte more closes the connection (1009) or is refused."""
    ready = {"type": "ready", "id": "a.1", "epoch": scene.robot.epoch, "seq": 101, "n": 1, "pad": ""}
    padding = 512 * 1024 - len(json.dumps(ready))
    scene.robot.send(json.dumps(ready | {"pad": "p" * padding}))
    assert answer(scene.robot, ready)["type"] == "ack"
    scene.robot.send(json.dumps(ready | {"seq": 102, "pad": "p" * (padding + 1)}))
    if transport == "websocket":
        assert scene.robot.expect_closed().code == 1009
    else:
        assert answer(scene.robot, ready)["reason"] == "too_large"


def test_too_fast(scene: Scene) -> None:
    """More than 100 messages a second (two slots): refused(too_fast) with a time, retryable."""
    for _ in range(250):
        say(scene.robot, "heartbeat", {"holding": []})
        if isinstance(scene.robot, PollingRobot) and len(scene.robot.outbox) == 100:
            scene.robot.inbox.extend(scene.robot.receive())
    told = scene.robot.expect_where(lambda m: m["type"] == "refused")
    assert (told["reason"], told["retry"]) == ("too_fast", True)
    assert told["retry_after_ms"] > 0
    while scene.robot.receive():
        """What is not read would hold up the closing handshake."""


def test_a_retired_robot(scene: Scene, fleet: Fleet) -> None:
    """The operator retires it: 4004."""
    path = f"{fleet.url}/v1/pools/{scene.pool}/robots/r1/retire"
    assert httpx.post(path, json={"reason": "sold"}, timeout=60).status_code == 200
    assert scene.robot.expect_closed().code == 4004


def test_draining_is_told(scene: Scene, fleet: Fleet) -> None:
    """After drain a heartbeat_ack says draining."""
    path = f"{fleet.url}/v1/pools/{scene.pool}/robots/r1/drain"
    assert httpx.post(path, json={"reason": "maintenance"}, timeout=60).status_code == 200
    until(lambda: ask(scene.robot, "heartbeat", {"holding": []})["draining"], "draining")


@pytest.mark.usefixtures("short_windows")
def test_silence_of_six_windows(enter: Enter) -> None:
    """4008 over WebSocket; by polling 410 no_session at the next poll."""
    robot = enter()
    assert robot.hello()["window_ms"] == 1000 * SHORT_WINDOW_S
    if isinstance(robot, PollingRobot):
        time.sleep(6 * SHORT_WINDOW_S + 1.5)
        told = robot.poll([])
        assert (told.status_code, told.json()["reason"]) == (410, "no_session")
    else:
        assert robot.expect_closed().code == 4008


# ---- long polling ----


def test_messages_come_again_until_they_are_seen(fleet: Fleet, pool: str) -> None:
    """seen: what is above it comes again with each poll, what is up to it never."""
    robot = PollingRobot(fleet.url, pool, "r1")
    try:
        robot.hello()
        seen = robot.seen
        robot.poll([json.dumps({"type": "ready", "id": "a.1", "epoch": robot.epoch, "seq": 1, "n": 1})])
        first = robot.poll([], wait_ms=1000).json()
        second = robot.poll([], wait_ms=1000).json()
        assert [m["of"] for m in first["messages"]] == [m["of"] for m in second["messages"]] == ["a.1"]
        assert robot.poll([], seen=first["cursor"]).json()["messages"] == []
        assert first["cursor"] > seen
    finally:
        robot.leave()


def test_a_newer_poll_ends_the_older_with_an_empty_list(fleet: Fleet, pool: str) -> None:
    """One waiting poll a session."""
    robot = PollingRobot(fleet.url, pool, "r1")
    try:
        robot.hello()
        waiting: list[Any] = []
        thread = threading.Thread(target=lambda: waiting.append(robot.poll([], wait_ms=25_000)))
        thread.start()
        robot.poll([], wait_ms=0)
        thread.join(60)
        assert waiting[0].json()["messages"] == []
    finally:
        robot.leave()


@pytest.mark.usefixtures("short_windows")
def test_a_poll_is_answered_after_half_a_window(fleet: Fleet, pool: str) -> None:
    """Whatever wait_ms says: at latest heartbeat_every_ms after it came."""
    robot = PollingRobot(fleet.url, pool, "r1")
    try:
        robot.hello()
        begun = time.monotonic()
        assert robot.poll([], wait_ms=25_000).json()["messages"] == []
        assert time.monotonic() - begun < 20
    finally:
        robot.leave()
