"""The form of messages, their size and their rate; and what only long polling has."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx

from robot_gateway.conformance.checking import Broken, Message, must, read_message, same
from robot_gateway.conformance.gateway_rows.speaking import acked, answer, ask, closed_with, refused, say
from robot_gateway.conformance.raw_robot import PollingRobot
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import Scene

TABLE = Table[Scene]()
POLLING = "polling"
"""The mark of rows that are about long polling alone."""
MALFORMED = {"cut-off": ('{"type": "ready"',), "array": ("[1]",), "string": ('"ready"',)}
ANSWERED_WITHIN_S = 20


@TABLE.rows("form/malformed-{}", MALFORMED)
def malformed_json(scene: Scene, text: str) -> None:
    """No JSON object: refused(malformed_json) with `of` null; by polling the whole poll is refused, 400 or 422."""
    robot = scene.robot
    if isinstance(robot, PollingRobot):
        told = robot.poll([text])
        reason = Message(read_message(told.content))["reason"]
        must(told.status_code in (400, 422), "HTTP 400 or 422", f"HTTP {told.status_code}")
        must(reason in ("malformed_json", "invalid_field"), "malformed_json or invalid_field", reason)
    else:
        robot.send(text)
        same(refused(robot.expect("refused"), "malformed_json")["of"], None, "refused of")
    acked(ask(robot, "ready", {"n": 1}))


@TABLE.row("form/unknown-type")
def an_unknown_type(scene: Scene) -> None:
    """A type that the protocol does not have: refused(unknown_type); the connection goes on."""
    refused(ask(scene.robot, "dance", {}), "unknown_type")
    acked(ask(scene.robot, "ready", {"n": 1}))


@TABLE.row("form/largest-message")
def the_largest_message(scene: Scene) -> None:
    """512 KiB are taken, unknown fields included; one byte more: close code 1009, by polling refused(too_large)."""
    robot = scene.robot
    ready = {"type": "ready", "id": f"{robot.boot}.large", "epoch": robot.epoch, "seq": 101, "n": 1, "pad": ""}
    padding = 512 * 1024 - len(json.dumps(ready))
    robot.send(json.dumps(ready | {"pad": "p" * padding}))
    acked(answer(robot, ready))
    robot.send(json.dumps(ready | {"seq": 102, "pad": "p" * (padding + 1)}))
    if isinstance(robot, PollingRobot):
        refused(answer(robot, ready), "too_large")
    else:
        closed_with(robot, 1009)


@TABLE.row("form/too-fast")
def too_fast(scene: Scene) -> None:
    """More than 100 messages a second: refused(too_fast) with a time, retryable."""
    robot = scene.robot
    for _ in range(250):
        say(robot, "heartbeat", {"holding": []})
        if isinstance(robot, PollingRobot) and len(robot.outbox) == 100:
            robot.inbox.extend(robot.receive())
    told = refused(robot.expect("refused"), "too_fast", retry=True)
    must(told["retry_after_ms"] > 0, "retry_after_ms", told)
    while robot.receive():
        """What is not read would hold up the closing handshake."""


@TABLE.row("form/refused-too-often")
def a_hundred_refusals_end_the_session(scene: Scene) -> None:
    """99 refused messages in a minute are borne, the next one ends the session: close code 4006."""
    robot = scene.enter()
    robot.hello(slots=64)
    for _ in range(99):
        say(robot, "dance", {})
    for _ in range(99):
        refused(robot.expect("refused"), "unknown_type")
    acked(ask(robot, "ready", {"n": 1}))
    say(robot, "dance", {})
    closed_with(robot, 4006)


# ---- long polling ----


STRICT = {
    "session": ({"session": 5}, "/session"),
    "seen": ({"seen": -1}, "/seen"),
    "wait": ({"wait_ms": 25_001}, "/wait_ms"),
    "unknown-field": ({"wait": 1}, "/wait"),
}


@TABLE.rows("poll/strict-{}", STRICT, POLLING)
def a_poll_is_strict(scene: Scene, changed: dict[str, Any], field: str) -> None:
    """A field of a poll that is out of range, of another type or unknown: 422 with a pointer to it."""
    told = _polling(scene).poll([], **changed)
    body = Message(read_message(told.content))
    same((told.status_code, body["field"]), (422, field), "HTTP status and field")


@TABLE.row("poll/hundred-messages", POLLING)
def a_poll_holds_a_hundred_messages(scene: Scene) -> None:
    """A hundred messages in one poll are taken, one more is refused with a pointer: 422 /messages."""
    robot = _polling(scene)
    beats = [
        json.dumps({"type": "heartbeat", "id": robot.next_id(), "epoch": robot.epoch, "seq": n + 1, "holding": []})
        for n in range(101)
    ]
    told = robot.poll(beats)
    body = Message(read_message(told.content))
    same((told.status_code, body["field"]), (422, "/messages"), "HTTP status and field")
    _list(robot.poll(beats[:100]))


@TABLE.row("poll/again-until-seen", POLLING)
def messages_come_again_until_they_are_seen(scene: Scene) -> None:
    """What is above `seen` comes again with each poll, what is up to it never."""
    robot = _polling(scene)
    seen = robot.seen
    message = {"type": "ready", "id": robot.next_id(), "epoch": robot.epoch, "seq": 1, "n": 1}
    robot.poll([json.dumps(message)])
    first = _list(robot.poll([], wait_ms=1000))
    second = _list(robot.poll([], wait_ms=1000))
    told = [[m.get("of") for m in answer["messages"]] for answer in (first, second)]
    same(told, [[message["id"]], [message["id"]]], "in two polls answers to")
    same(_list(robot.poll([], seen=first["cursor"]))["messages"], [], "after it was seen")
    must(first["cursor"] > seen, f"a cursor above {seen}", first)


@TABLE.row("poll/newer-ends-older", POLLING)
def a_newer_poll_ends_the_older_with_an_empty_list(scene: Scene) -> None:
    """One waiting poll a session: a newer one ends the older with an empty list."""
    robot = _polling(scene)
    waiting: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: waiting.append(robot.poll([], wait_ms=25_000)), daemon=True)
    thread.start()
    robot.poll([], wait_ms=0)
    thread.join(scene.patience_s)
    if not waiting:
        raise Broken("an answer to the older poll", "none")
    same(_list(waiting[0])["messages"], [], "to the older poll")


@TABLE.row("poll/answered-in-time", POLLING)
def a_poll_is_answered_after_half_a_window(scene: Scene) -> None:
    """Every poll is answered heartbeat_every_ms after it came at latest, whatever wait_ms says."""
    robot = _polling(scene, short_windows=True)
    begun = time.monotonic()
    same(_list(robot.poll([], wait_ms=25_000))["messages"], [], "to the poll")
    took_s = time.monotonic() - begun
    must(took_s < ANSWERED_WITHIN_S, "an answer after half a second", f"one after {took_s:.1f} s")


def _polling(scene: Scene, *, short_windows: bool = False) -> PollingRobot:
    robot = scene.enter(short_windows=short_windows)
    if not isinstance(robot, PollingRobot):
        raise TypeError("this row is about long polling")
    robot.hello()
    return robot


def _list(response: httpx.Response) -> Any:
    """The answer to a poll."""
    body = read_message(response.content)
    must(response.status_code == 200, "HTTP 200", f"HTTP {response.status_code} {body}")
    return body
