"""Saying messages that may be wrong, and breaking connections, as the rows for gateways do."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from robot_gateway.conformance.checking import Message, must, same
from robot_gateway.conformance.raw_robot import PollingRobot, RawRobot, WebSocketRobot

Fields = dict[str, Any]


def say(robot: RawRobot, kind: str, fields: Fields, **changed: Any) -> Fields:
    """Say a message that may be wrong in `changed` (id, epoch, seq); `...` leaves a field out. Gives it as said."""
    message = {"type": kind, "id": robot.next_id(), "epoch": robot.epoch, "seq": robot.next_number(), **fields}
    message = {name: value for name, value in (message | changed).items() if value is not ...}
    robot.send(json.dumps(message))
    return message


def answer(robot: RawRobot, message: Fields) -> Message:
    """What is answered to a message. Raises Broken."""
    return robot.answer_to(message["id"])


def ask(robot: RawRobot, kind: str, fields: Fields, **changed: Any) -> Message:
    """Say it and give what is answered. Raises Broken."""
    return answer(robot, say(robot, kind, fields, **changed))


def acked(told: Message) -> Message:
    """The answer, which must be an ack. Raises Broken."""
    must(told["type"] == "ack", "ack", told)
    return told


def refused(told: Message, *reasons: str, field: str | None = None, retry: bool | None = None) -> Message:
    """The answer, which must be a refusal for one of these reasons. Raises Broken."""
    wanted = f"refused({' or '.join(reasons)})" + ("" if field is None else f" with field {field}")
    must(told["type"] == "refused" and told["reason"] in reasons, wanted, told)
    must(field is None or told.get("field") == field, wanted, told)
    if retry is not None:
        same(told["retry"], retry, "refused with retry")
    return told


def closed_with(robot: RawRobot, code: int) -> None:
    """The gateway closes the session with this code. Raises Broken."""
    closed = robot.expect_closed()
    must(closed.code == code, f"close code {code}", f"{closed.code} {closed.reason}")


def cut(robot: RawRobot) -> None:
    """Break the connection right after the last message was handed to the network."""
    if isinstance(robot, PollingRobot):
        _poll_and_go(robot)
    elif isinstance(robot, WebSocketRobot):
        _hang_up(robot.connection.socket)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the gateway may have closed it already, as after bye
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        connection.shutdown(socket.SHUT_WR)


def _poll_and_go(robot: PollingRobot) -> None:
    """Send a poll and do not wait for its answer."""
    parts = urlsplit(robot.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    said = [json.loads(message) for message in robot.outbox]
    body = json.dumps({"session": robot.session, "seen": robot.seen, "messages": said})
    path = f"{parts.path}/v1/pools/{robot.pool}/robots/{robot.robot}/poll"
    connection = kind(parts.hostname or "", parts.port, timeout=robot.patience_s)
    with contextlib.closing(connection):
        connection.request("POST", path, body, {"Content-Type": "application/json", **robot.headers})


def comparable(message: Fields) -> Fields:
    """An answer without what may differ between two of them."""
    return {name: value for name, value in message.items() if name not in ("of", "position")}
