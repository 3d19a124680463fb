"""Requests that fuzzing found: numbers and cursors beyond all sense are refused with a word and a place."""

import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from projections.cursors import make_cursor
from robot_gateway.submit import SUBMIT_PROTOCOL
from tests.support.site import Site, until

POOL = "/v1/pools/hall-a"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables; one task, and a schedule of each sort."""
    with Site(partitions=1, after_wait_s=0.2) as running:
        running.settled(running.submit(id="t1"))
        task = {"kind": "weld"}
        running.client.put(
            f"{POOL}/schedules/cron", json={"cron": "0 0 * * *", "zone": "Pacific/Kiritimati", "task": task}
        )
        running.client.put(f"{POOL}/schedules/every", json={"every_s": 3600, "task": task})
        until(lambda: running.client.get(f"{POOL}/schedules/every").status_code == 200, "a schedule")
        yield running


def refused(answer: Any, status: int, reason: str, field: str | None = None) -> Any:
    problem = answer.json()
    assert (answer.status_code, problem["reason"], problem.get("field")) == (status, reason, field), answer.text
    return problem["detail"]


@pytest.mark.parametrize("value", [1e308, 1e305, 9_007_199_254_740_991])
@pytest.mark.parametrize("name", ["window_s", "lease_s", "backoff_max_s", "ageing_s"])
def test_a_duration_beyond_all_sense(site: Site, name: str, value: float) -> None:
    """A setting of more seconds than milliseconds can be counted in is refused like any that is too long."""
    said = refused(site.client.patch(POOL, json={"settings": {name: value}}), 422, "invalid_field", f"/settings/{name}")
    assert name in said
    said = refused(
        site.client.post("/v1/pools", json={"pool": f"p-{uuid.uuid4()}", "settings": {name: value}}),
        422,
        "invalid_field",
        f"/settings/{name}",
    )
    assert name in said


def test_the_range_of_a_duration_is_told_in_its_unit(site: Site) -> None:
    """Seconds, as the setting is given."""
    said = refused(
        site.client.patch(POOL, json={"settings": {"lease_s": 0.25}}), 422, "invalid_field", "/settings/lease_s"
    )
    assert said == "lease_s: must lie between 1.5 s and 86400 s"


@pytest.mark.parametrize("value", [True, "5", [5], None, {}])
def test_a_duration_that_is_no_number(site: Site, value: Any) -> None:
    """Is refused as that, and not as a setting that does not exist."""
    said = refused(
        site.client.patch(POOL, json={"settings": {"lease_s": value}}), 422, "invalid_field", "/settings/lease_s"
    )
    assert "lease_s" in said


@pytest.mark.parametrize(
    "text", [b"[" * 1500, b"[" * 700 + b"]" * 700, b'{"a":' * 250 + b"1" + b"}" * 250, b"[1,1e999,2,3]", b"[1,2]"]
)
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/robots", "/v1/events", f"{POOL}/tasks/t1/history", "/v1/pools"])
def test_a_made_up_cursor(site: Site, path: str, text: bytes) -> None:
    """With a right checksum and anything in it: refused, however deep."""
    cursor = urlsafe_b64encode(crc32(text).to_bytes(4, "big") + text).rstrip(b"=").decode()
    if len(cursor) <= 2000 or path == "/v1/events":
        refused(site.client.get(path, params={"cursor": cursor}), 400, "bad_cursor")


@pytest.mark.parametrize("behind", [-1, -(2**62)])
def test_a_history_from_before_its_beginning(site: Site, behind: int) -> None:
    """Even with the right checksum and list."""
    cursor = make_cursor("history\nhall-a\nt1", [behind], time.time_ns() // 1_000_000)
    refused(site.client.get(f"{POOL}/tasks/t1/history", params={"cursor": cursor}), 400, "bad_cursor")


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59Z", "9999-12-30T00:00:00Z", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("schedule", ["cron", "every"])
def test_a_schedule_at_the_end_of_the_calendar(site: Site, schedule: str, since: str) -> None:
    """There the list of firings ends."""
    answer = site.client.get(f"{POOL}/schedules/{schedule}/next", params={"since": since, "count": 100})
    assert answer.status_code == 200, answer.text
    assert all(item["instant"] > "9999-12-2" for item in answer.json()["items"])


SPELLINGS = {
    "4d9a4a3e-8f3a-4a7e-9c0e-2f1a1f0f9b11": True,
    "4D9A4A3E-8F3A-4A7E-9C0E-2F1A1F0F9B12": True,
    "4d9a4a3e8f3a4a7e9c0e2f1a1f0f9b13": True,
    "+d9a4a3e8f3a4a7e9c0e2f1a1f0f9b11": False,
    "4_9a4a3e8f3a4a7e9c0e2f1a1f0f9b11": False,
    "4d9a4a3e-8f3a4a7e9c0e2f1a1f0f9b11": False,
    "{4d9a4a3e-8f3a-4a7e-9c0e-2f1a1f0f9b11}": False,
    "urn:" * 400 + "4d9a4a3e8f3a4a7e9c0e2f1a1f0f9b11": False,
    "-" * 4000 + "4d9a4a3e8f3a4a7e9c0e2f1a1f0f9b11": False,
}


@pytest.mark.parametrize(("key", "fits"), SPELLINGS.items())
def test_a_command_id_is_spelt_as_a_uuid(site: Site, key: str, fits: bool) -> None:
    """Nothing that can be read as one in some way or other: it stands in every event that the command causes."""
    answer = site.client.post(f"{POOL}/tasks", json={"kind": "weld"}, headers={"Idempotency-Key": key})
    if fits:
        assert answer.status_code == 201
    else:
        refused(answer, 422, "invalid_field", "/Idempotency-Key")


def test_an_endless_command_id_on_the_stream(site: Site) -> None:
    """It is refused, and its thousand tasks are not stored with it in each."""
    url = site.url.replace("http", "ws", 1) + "/v1/submit"
    asked = {"type": "submit", "pool": "hall-a", "all_or_none": True, "tasks": [{"kind": "weld"}] * 1000}
    with connect(url, subprotocols=[Subprotocol(SUBMIT_PROTOCOL)], compression=None) as stream:
        for digits in ("-" * 800_000 + uuid.uuid4().hex, "٠" * 32):
            stream.send(json.dumps(asked | {"id": digits}))
            answer = json.loads(stream.recv(timeout=60))
            assert (answer["type"], answer["reason"], answer["field"]) == ("refused", "invalid_field", "/id")


GROWN = [1e15] * 14_000
"""1e15 is four characters when it is sent, and 18 when it is stored."""


def sent_short(message: Any) -> str:
    """As a robot sends it that writes numbers as short as they can be."""
    return json.dumps(message).replace("1000000000000000.0", "1e15")


def test_what_a_robot_saves_is_measured_as_it_is_stored(site: Site) -> None:
    """Checkpoint, result and detail: too_large with the place, before anything reaches the log; the session goes on."""
    site.submit(pool="grown", id="t1", payload="x" * 262_000)
    with site.robot("r1", pool="grown") as robot:
        robot.hello()
        robot.say("ready", n=1)
        robot.expect("assign")
        robot.ask("accept", task="t1", attempt=1)
        about = {"task": "t1", "attempt": 1}
        for kind, fields, place in (
            ("checkpoint", {"number": 1, "value": GROWN}, "/value"),
            ("stopped", {"why": "shutdown", "checkpoint": {"number": 1, "value": GROWN}}, "/checkpoint/value"),
            ("complete", {"result": GROWN}, "/result"),
            (
                "fail",
                {"class": "fatal", "error": {"type": "E", "message": "m", "detail": GROWN[:1000]}},
                "/error/detail",
            ),
        ):
            message: dict[str, Any] = {
                "type": kind,
                "id": robot.next_id(),
                "epoch": robot.epoch,
                "seq": robot.next_number(),
            }
            robot.send(sent_short(message | about | fields))
            answer = robot.answer_to(message["id"])
            assert (answer["type"], answer["reason"], answer["field"]) == ("refused", "too_large", place)
        # What is within the limit comes back with the payload, in one message.
        message = {"type": "checkpoint", "id": robot.next_id(), "epoch": robot.epoch, "seq": robot.next_number()}
        robot.send(sent_short(message | about | {"number": 1, "value": GROWN[:13_700]}))
        assert robot.answer_to(message["id"])["type"] == "ack"
        robot.ask("stopped", **about, why="shutdown")
        again = robot.expect("assign")
        assert (len(again["payload"]), len(again["checkpoint"]["value"])) == (262_000, 13_700)


def test_a_result_that_an_operator_gives_is_measured_as_it_is_stored(site: Site) -> None:
    """As a robot's is."""
    body = sent_short({"reason": "done by hand", "result": GROWN})
    answer = site.client.post(f"{POOL}/tasks/t1/resolve", content=body, headers={"Content-Type": "application/json"})
    refused(answer, 413, "too_large", "/result")
