"""`/v1/submit`: pipelined submissions, their answers, and holding back whoever is faster than the owners."""

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from robot_gateway.submit import SUBMIT_FRAME_BYTES_MAX, SUBMIT_PROTOCOL
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables."""
    with Site(partitions=1) as running:
        yield running


@pytest.fixture
def stream(site: Site) -> Iterator[ClientConnection]:
    """A connection to the site."""
    with opened(site) as connection:
        yield connection


def opened(site: Site) -> Any:
    url = site.url.replace("http", "ws", 1) + "/v1/submit"
    return connect(url, subprotocols=[Subprotocol(SUBMIT_PROTOCOL)], compression=None, max_size=None)


def message(*tasks: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {"type": "submit", "id": str(uuid.uuid4()), "pool": "hall-s", "tasks": list(tasks), **changed}


def ask(stream: ClientConnection, asked: Any) -> dict[str, Any]:
    stream.send(asked if isinstance(asked, str) else json.dumps(asked))
    answer: dict[str, Any] = json.loads(stream.recv(timeout=60))
    return answer


def test_one_task_a_message(site: Site, stream: ClientConnection) -> None:
    """Accepted with the task as it stands; again with the same command id: the same answer, no second task."""
    asked = message({"kind": "weld", "payload": {"x": 1}})

    answer = ask(stream, asked)

    assert (answer["type"], answer["of"]) == ("accepted", asked["id"])
    (entry,) = answer["tasks"]
    assert entry["status"] == 201
    task = entry["task"]
    assert (task["pool"], task["state"], task["changed"]) == ("hall-s", "WAITING", True)
    assert answer["position"].endswith(f"~hall-s@{task['sequence']}")
    again = ask(stream, asked)
    assert again["tasks"][0]["task"]["id"] == task["id"]
    found = site.client.get(f"/v1/pools/hall-s/tasks/{task['id']}", params={"after": answer["position"]})
    assert found.json()["kind"] == "weld"


def test_several_tasks_are_decided_one_by_one(stream: ClientConnection) -> None:
    """A known id with other content is refused alone; the others are accepted."""
    ask(stream, message({"id": "known", "kind": "weld"}))

    tasks = [{"id": "s1", "kind": "weld"}, {"id": "known", "kind": "paint"}, {"id": "known", "kind": "weld"}]
    answer = ask(stream, message(*tasks))

    assert answer["type"] == "accepted"
    assert [entry["status"] for entry in answer["tasks"]] == [201, 409, 200]
    assert answer["tasks"][1]["problem"]["reason"] == "id_conflict"
    assert answer["tasks"][2]["task"]["changed"] is False


def test_all_or_none(stream: ClientConnection) -> None:
    """One command: a conflict refuses all of them."""
    ask(stream, message({"id": "taken", "kind": "weld"}))

    refused = ask(stream, message({"id": "n1", "kind": "weld"}, {"id": "taken", "kind": "x"}, all_or_none=True))
    assert (refused["type"], refused["reason"], refused["field"]) == ("refused", "id_conflict", "/tasks/1/id")
    accepted = ask(stream, message({"id": "n1", "kind": "weld"}, {"id": "n2", "kind": "x"}, all_or_none=True))
    assert [entry["status"] for entry in accepted["tasks"]] == [201, 201]


@pytest.mark.parametrize(
    ("asked", "reason", "field"),
    [
        ("{", "malformed_json", None),
        ("[]", "invalid_field", None),
        (message({"kind": "weld", "prio": 3}), "unknown_field", "/tasks/0/prio"),
        (message({"kind": "weld", "priority": 10}), "invalid_field", "/tasks/0/priority"),
        (message(), "invalid_field", "/tasks"),
        (message(*[{"kind": "w"}] * 1001), "invalid_field", "/tasks"),
        (message({"kind": "weld"}, id="not-a-uuid"), "invalid_field", "/id"),
        (message({"kind": "weld"}, pool="a b"), "invalid_field", "/pool"),
        (message({"kind": "weld"}, type="dance"), "invalid_field", "/type"),
        (message({"kind": "w"}, {"kind": "w", "payload": "x" * 262_143}), "too_large", "/tasks/1/payload"),
        (message({"kind": "w", "payload": "x" * 262_143}), "too_large", "/payload"),
        (message({"kind": "w", "lease_s": 1}), "lease_too_short", "/lease_s"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    stream: ClientConnection, asked: Any, reason: str, field: str | None
) -> None:
    """With reason, field and the id it is about; the connection goes on."""
    answer = ask(stream, asked)

    assert (answer["type"], answer["reason"], answer.get("field")) == ("refused", reason, field)
    if isinstance(asked, dict):
        assert answer["of"] == asked["id"]
    assert ask(stream, message({"kind": "weld"}))["type"] == "accepted"


def test_a_frame_has_a_limit(site: Site) -> None:
    """4 MiB, then the connection ends with 1009.

    Whoever is still sending may see the connection end before that code, so it is tried until one is seen.
    """

    def told() -> int | None:
        with opened(site) as stream, pytest.raises(ConnectionClosed) as raised:
            ask(stream, "x" * (SUBMIT_FRAME_BYTES_MAX + 1))
        return None if raised.value.rcvd is None else raised.value.rcvd.code

    assert until(told, "a close code") == 1009


def test_ten_thousand_pipelined_are_all_answered_once(site: Site) -> None:
    """Far more than may be unanswered: the gateway stops reading, nothing is lost or answered twice."""
    with opened(site) as stream:
        asked = [message({"kind": "weld"}, pool="hall-many") for _ in range(10_000)]
        sender = threading.Thread(target=lambda: [stream.send(json.dumps(one)) for one in asked])
        sender.start()
        answers = [json.loads(stream.recv(timeout=60)) for _ in asked]
        sender.join()

    assert {answer["type"] for answer in answers} == {"accepted"}
    assert sorted(answer["of"] for answer in answers) == sorted(one["id"] for one in asked)
    position = answers[-1]["position"]
    count = site.client.get("/v1/tasks/count", params={"where": "pool=hall-many", "after": position})
    assert count.json()["count"] == 10_000


def test_whoever_is_faster_than_the_owner_is_held_back() -> None:
    """At most 1,024 unanswered; the next ones are not even read, and come through when answers do."""
    with Site(scripted=True, projector=False, partitions=1) as site:
        site.owner.on_command = lambda command: None
        with opened(site) as stream:
            asked = [message({"kind": "weld", "payload": "x" * 1000}) for _ in range(3000)]
            sender = threading.Thread(target=lambda: [stream.send(json.dumps(one)) for one in asked], daemon=True)
            sender.start()
            until(lambda: len(site.owner.commands) >= 1024)
            until(lambda: all(submitter._connection._holding for submitter in site.gateway.submitters))
            seen = len(site.owner.commands)
            assert seen == 1024

            for command in list(site.owner.commands):
                answer = {"status": "accepted", "answer": {"task": command.body.task, "changed": True}}
                site.owner.say(command.pool, answer, to=command.reply_to, of=command.id)
            until(lambda: len(site.owner.commands) == 2048)
            for _ in range(1024):
                assert json.loads(stream.recv(timeout=60))["type"] == "accepted"


def test_a_gateway_that_is_full_says_so() -> None:
    """More commands than may wait for an answer in the whole gateway: gateway_busy, with a time."""
    with Site(scripted=True, projector=False, partitions=1, unanswered_max=2) as site:
        site.owner.on_command = lambda command: None
        with opened(site) as stream:
            stream.send(json.dumps(message({"kind": "a"}, {"kind": "b"})))
            until(lambda: len(site.owner.commands) == 2)
            answer = ask(stream, message({"kind": "c"}))
            assert (answer["reason"], answer["retry"], answer["retry_after_s"]) == ("gateway_busy", True, 1.0)
