"""I, F19 and F24: bad input over HTTP and WebSocket. Each is refused with the field and the reason, and everything else
goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fleetlog.cli import run
from tests.support.hall import PATH, POOL, WINDOW_S, Hall, Hand

JSON = {"Content-Type": "application/json"}
Asked = tuple[str, str, bytes]


@pytest.fixture(scope="module")
def shared() -> Iterator[Hall]:
    """A pool that all bad input is said to."""
    with Hall() as made:
        yield made


@pytest.fixture
def hall(request: pytest.FixtureRequest) -> Iterator[Hall]:
    """A pool for one test, with the settings that it asks for."""
    with Hall(**getattr(request, "param", {})) as made:
        yield made


def task_with(**fields: Any) -> Asked:
    """The submission of a task that would be fine without these fields."""
    return "POST", "/tasks", json.dumps({"kind": "weld", **fields}).encode()


def raw(text: str) -> Asked:
    """A submission with this as its payload, as it is."""
    return "POST", "/tasks", b'{"kind":"weld","payload":%b}' % text.encode()


def schedule(**fields: Any) -> Asked:
    """A schedule that would be fine with another pattern."""
    return "PUT", "/schedules/s1", json.dumps({"task": {"kind": "weld"}, **fields}).encode()


REQUESTS: dict[str, tuple[Asked, str, str | None]] = {
    "payload too large": (task_with(payload="x" * 262_200), "too_large", "/payload"),
    "not JSON": (("POST", "/tasks", b'{"kind": weld}'), "malformed_json", None),
    "NUL in a string": (raw('"a\\u0000b"'), "invalid_field", "/payload"),
    "lone surrogate": (raw('"\\ud800"'), "invalid_field", "/payload"),
    "id of 10,000 characters": (task_with(id="x" * 10_000), "invalid_field", "/id"),
    "number out of range": (task_with(priority=10), "invalid_field", "/priority"),
    "number beyond what readers hold": (raw("9007199254740993"), "invalid_field", "/payload"),
    "NaN": (raw("NaN"), "malformed_json", "/payload"),
    "NaN for a time": (("POST", "/tasks", b'{"kind":"weld","lease_s":NaN}'), "malformed_json", "/lease_s"),
    "negative time": (task_with(lease_s=-15), "invalid_field", "/lease_s"),
    "lease below three windows": (task_with(lease_s=14), "lease_too_short", "/lease_s"),
    "cron that never fires": (schedule(cron="0 0 30 2 *"), "never_fires", "/cron"),
    "unknown field": (task_with(priorty=1), "unknown_field", "/priorty"),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_i1_bad_requests(shared: Hall, what: str) -> None:
    """The field and the reason; no traceback, nothing in the log, and the next request on the connection is served."""
    (method, path, body), reason, field = REQUESTS[what]
    before = len(shared.records())
    answer = shared.site.client.request(method, PATH + path, content=body, headers=JSON)
    problem = answer.json()
    assert 400 <= answer.status_code < 500, answer.text
    assert (problem["reason"], problem.get("field")) == (reason, field), problem
    assert problem["detail"]
    assert "Traceback" not in answer.text
    assert len(shared.records()) == before
    assert shared.submit(f"after-{list(REQUESTS).index(what)}")["state"] == "WAITING"


ABOUT = '"task":"t1","attempt":1'
LONG = "x" * 10_000
MESSAGES: dict[str, tuple[str, str, str | None]] = {
    "result too large": (f'"type":"complete",{ABOUT},"result":"{27 * LONG}"', "too_large", "/result"),
    "not JSON": ('"type":"ready","n":one', "malformed_json", None),
    "NUL in a string": (f'"type":"complete",{ABOUT},"result":"\\u0000"', "invalid_field", "/result"),
    "lone surrogate": (f'"type":"complete",{ABOUT},"result":"\\ud800"', "invalid_field", "/result"),
    "id of 10,000 characters": (f'"type":"accept","attempt":1,"task":"{LONG}"', "invalid_field", "/task"),
    "unknown kind": ('"type":"dance"', "unknown_type", "/type"),
    "number out of range": ('"type":"accept","task":"t1","attempt":9007199254740993', "invalid_field", "/attempt"),
    "NaN": (f'"type":"complete",{ABOUT},"result":NaN', "malformed_json", "/result"),
    "negative number": ('"type":"ready","n":-1', "invalid_field", "/n"),
}


def test_i1_bad_messages(shared: Hall) -> None:
    """All of them in one session, in which a task runs: each is named, the session goes on, the task is completed."""
    shared.submit("i1", priority=9)
    robot = shared.robot("i1")
    robot.accept("i1")
    before = len(shared.records())
    for what, (text, reason, field) in MESSAGES.items():
        robot.send(f'{{"id":"{robot.next_id()}","epoch":{robot.epoch},"seq":{robot.next_number()},{text}}}')
        answer = robot.expect("refused")
        assert (answer["reason"], answer.get("field")) == (reason, field), (what, answer)
        assert robot.beat()["type"] == "heartbeat_ack"
    assert len(shared.records()) == before
    assert robot.complete("i1")["type"] == "ack"


def test_i2_somebody_elses_and_nobodys(hall: Hall) -> None:
    """The same id with other content; reports about somebody else's attempt; a heartbeat of a robot that never said
    hello: refused, and the attempt of the one who has it goes on."""
    hall.submit("t1")
    answer = hall.site.client.post(f"{PATH}/tasks", json={"id": "t1", "kind": "weld", "priority": 1})
    assert (answer.status_code, answer.json()["reason"]) == (409, "id_conflict")
    owner = hall.robot("r1")
    owner.accept("t1")
    other = hall.robot("r2")
    error = {"error": {"type": "jam", "message": "stuck"}, "class": "fatal"}
    for kind, fields in (("complete", {}), ("fail", error), ("stopped", {"why": "stop"}),
                         ("checkpoint", {"number": 1, "value": 1}), ("reject", {"reason": "busy"})):  # fmt: skip
        refused = other.ask(kind, task="t1", attempt=1, **fields)
        assert (refused["type"], refused["reason"]) == ("refused", "not_yours"), kind
    other.ask("heartbeat", holding=[{"task": "t1", "attempt": 1}])
    with Hand(hall.site.url, "nobody") as nobody:
        refused = nobody.ask("heartbeat", holding=[{"task": "t1", "attempt": 1}])
        assert (refused["type"], refused["reason"]) == ("refused", "hello_first")
    hall.settle()
    assert [hall.task("t1")[name] for name in ("state", "robot", "attempt")] == ["RUNNING", "r1", 1]
    hall.wait(4 * WINDOW_S, other)
    [expired] = hall.events("LeaseExpired")
    assert (expired.task, expired.robot) == ("t1", "r1")
    assert hall.site.client.get(f"{PATH}/robots/nobody").json()["reason"] == "no_such_robot"


def test_i3_a_robot_that_never_accepts(hall: Hall) -> None:
    """It is given a task three times, says nothing and beats on: then it is in ERROR, and all is done by another.

    A client that reads slowly or not at all: test_i3_a_robot_that_does_not_read_is_dropped and its neighbours.
    """
    deaf = hall.robot("deaf")
    hall.submit("t1")
    hall.submit("t2")
    hall.wait(3 * 5.0 + WINDOW_S, deaf)
    assert [event.reason for event in hall.events("RobotFaulted")] == ["does_not_accept"]
    assert hall.robot_card("deaf")["state"] == "ERROR"
    good = hall.robot("good")
    for task in ("t1", "t2"):
        good.accept(task)
        assert good.complete(task)["type"] == "ack"
    assert [hall.task(task)["failures"] + hall.task(task)["lost"] for task in ("t1", "t2")] == [0, 0]


@pytest.mark.parametrize("hall", [{"accept_ms": 600_000}], indirect=True)
def test_i3_a_robot_that_accepts_and_rejects_in_a_loop(hall: Hall) -> None:
    """Everything is done by another meanwhile; that it said no counts as no failure. Ten times in a row: ERROR."""
    bad = hall.robot("bad")
    for number in range(12):
        hall.submit(f"t{number}")
    accepted = 0
    while hall.robot_card("bad")["state"] != "ERROR":
        given = bad.expect("assign")
        about = {"task": given["task"], "attempt": given["attempt"]}
        if accepted < 2:
            assert bad.ask("accept", **about)["type"] == "ack"
            assert bad.ask("reject", **about, reason="busy")["type"] == "refused"
            assert bad.ask("stopped", **about, why="shutdown")["type"] == "ack"
            accepted += 1
            continue
        assert bad.ask("reject", **about, reason="busy")["type"] == "ack"
    [fault] = hall.events("RobotFaulted")
    assert fault.reason == "does_not_accept"
    good = hall.robot("good", slots=12)
    hall.wait(12 * WINDOW_S, good)
    for number in range(12):
        good.accept(f"t{number}")
        assert good.complete(f"t{number}")["type"] == "ack"
    assert {hall.task(f"t{number}")["failures"] for number in range(12)} == {0}


def test_f19_a_lease_below_three_windows_and_settings_that_cannot_be(
    hall: Hall, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at submission with the least there is, and as a setting of a pool; robots are told to beat twice a
    window; a program with impossible settings does not start, and says which."""
    answer = hall.site.client.post(f"{PATH}/tasks", json={"kind": "weld", "lease_s": 14.999})
    problem = answer.json()
    assert (answer.status_code, problem["reason"], problem["field"]) == (422, "lease_too_short", "/lease_s")
    assert "15" in problem["detail"]
    assert hall.submit("fits", lease_s=15)["state"] == "WAITING"
    answer = hall.site.client.patch(PATH, json={"settings": {"window_s": 5, "lease_s": 14}})
    assert answer.status_code == 422, answer.text
    assert "three windows" in answer.json()["detail"]
    welcome = hall.robot("r1").welcome
    assert 2 * welcome["heartbeat_every_ms"] == welcome["window_ms"] == 1_000 * WINDOW_S
    for name, value, said in (
        ("FLEETLOG_POOL_LEASE_S", "4", "at least three windows"),
        ("FLEETLOG_POOL_WINDOW_S", "0.5", "window_s must be at least 1"),
        ("FLEETLOG_GATEWAY_HEARTBEAT_GATHER_MS", "9000", "window_s must be at least 36: heartbeats are gathered"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert run(["up", "--listen", "127.0.0.1:0", "--data", "/dev/null/never"]) == 2
        told = capsys.readouterr().err
        assert said in told, told
        assert "Traceback" not in told


def test_f24_a_bad_request_stops_nobody(hall: Hall) -> None:
    """Malformed: refused. Unsatisfiable: said, in the answer and as an event. The next task is dispatched as ever."""
    robot = hall.robot("r1", slots=3)
    for body in (b'{"kind":"weld","priority":77}', b'{"kind":', b'{"kind":"weld","requirement":["gpu>="]}'):
        answer = hall.site.client.post(f"{PATH}/tasks", content=body, headers=JSON)
        assert 400 <= answer.status_code < 500, answer.text
    assert "teleport" in hall.submit("odd", requirement=["teleport"])["unsatisfiable"]
    [said] = hall.events("RequirementUnsatisfiable")
    assert (said.first_task, said.missing) == ("odd", ["teleport"])
    for number in range(3):
        hall.submit(f"t{number}")
        assert robot.accept(f"t{number}") == 1
    assert hall.why("odd")["holds"][0]["reason"] == "unsatisfiable"
    assert run(["why", "odd", "--gateway", hall.site.url, "--pool", POOL]) == 0
