"""What only WebSockets have: the handshake, frames that are none of the protocol, pings, and nobody who says hello."""

from __future__ import annotations

from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL
from robot_gateway.conformance.checking import Broken, Message, must, read_message, same
from robot_gateway.conformance.gateway_rows.speaking import closed_with
from robot_gateway.conformance.raw_robot import RawRobot, WebSocketRobot
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import Scene

TABLE = Table[Scene]()
WEBSOCKET = "websocket"
"""The mark of rows that are about WebSockets alone."""
FRAMES = {
    "binary": (Frame(Opcode.BINARY, b"{}"), 1003),
    "in-parts": (Frame(Opcode.TEXT, b'{"type":', fin=False), 1002),
    "not-utf8": (Frame(Opcode.TEXT, b"\xff\xfe"), 1007),
}
VERSIONS = {"unknown": ("fleetlog.robot.v0",), "none": (None,)}


@TABLE.rows("handshake/version-{}", VERSIONS, WEBSOCKET)
def a_robot_must_offer_the_protocol(scene: Scene, version: str | None) -> None:
    """A handshake for another version of the protocol, or for none: 400 with the reason protocol_version."""
    offered = [] if version is None else [Subprotocol(version)]
    try:
        with _connect(scene, offered):
            raise Broken("a refused handshake", "a WebSocket")
    except InvalidStatus as refused:
        response = refused.response
        same(response.status_code, 400, "HTTP")
        same(Message(read_message(response.body or b""))["reason"], "protocol_version", "the reason")


@TABLE.row("frames/ping", WEBSOCKET)
def pings_are_answered_and_compression_is_not_spoken(scene: Scene) -> None:
    """A ping is answered; permessage-deflate is not agreed to."""
    with _connect(scene, [Subprotocol(PROTOCOL)], compression="deflate") as connection:
        must(connection.ping().wait(scene.patience_s), "a pong", "none")
        headers = {} if connection.response is None else connection.response.headers
        must("Sec-WebSocket-Extensions" not in headers, "no extension", str(headers))


@TABLE.rows("frames/{}", FRAMES, WEBSOCKET)
def a_frame_that_is_none(scene: Scene, frame: Frame, code: int) -> None:
    """A frame that is binary, in parts, or no UTF-8: the connection is closed with the code of the table."""
    robot = _over_websocket(scene.robot)
    robot.connection.socket.sendall(frame.serialize(mask=True))
    closed_with(robot, code)


@TABLE.row("session/no-hello", WEBSOCKET)
def no_hello_is_the_end(scene: Scene) -> None:
    """No hello within 10 s: close code 4000."""
    closed_with(scene.enter(), 4000)


def _connect(scene: Scene, offered: list[Subprotocol], compression: str | None = None) -> ClientConnection:
    robot = scene.robot_id()
    token = scene.gateway.robot_token
    return connect(
        f"{scene.gateway.url.replace('http', 'ws', 1)}/v1/pools/{scene.pool}/robots/{robot}/session",
        subprotocols=offered,
        additional_headers={} if token is None else {"Authorization": f"Bearer {token}"},
        compression=compression,
        open_timeout=scene.patience_s,
    )


def _over_websocket(robot: RawRobot) -> WebSocketRobot:
    if not isinstance(robot, WebSocketRobot):
        raise TypeError("this row is about WebSockets")
    return robot
