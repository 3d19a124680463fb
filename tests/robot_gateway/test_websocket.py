"""Frames: what is no message ends the connection with its code, and whoever does not read is dropped."""

import json
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from commands.messages import CLOSE_CODES, PROTOCOL, ROBOT_FRAME_BYTES_MAX
from robot_gateway import websocket
from robot_gateway.conformance.raw_robot import WebSocketRobot
from robot_gateway.tokens import new_token, write_tokens
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A gateway with a scripted owner that lets little wait for a slow reader."""
    with Site(scripted=True, projector=False, partitions=1, send_buffer_bytes=65_536) as running:
        yield running


def new_robot(site: Site) -> WebSocketRobot:
    return site.robot(f"r-{time.monotonic_ns()}")


def raw_frame(robot: WebSocketRobot, frame: Frame) -> None:
    """Puts one frame on the wire, whatever the client library thinks of it."""
    robot.connection.socket.sendall(frame.serialize(mask=True))


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Frame(Opcode.BINARY, b"{}"), 1003),
        (Frame(Opcode.TEXT, b'{"type":', fin=False), 1002),
        (Frame(Opcode.CONT, b"x"), 1002),
        (Frame(Opcode.TEXT, b"\xff\xfe"), 1007),
        (Frame(Opcode.TEXT, b"x" * (ROBOT_FRAME_BYTES_MAX + 1)), 1009),
    ],
)
def test_what_is_no_message_ends_the_connection(site: Site, frame: Frame, code: int) -> None:
    """Each with the code of the table; the session is forgotten."""
    with new_robot(site) as robot:
        robot.hello()
        raw_frame(robot, frame)
        assert robot.expect_closed().code == code
    until(lambda: robot.robot not in {session.robot for session in site.gateway.sessions})


def test_the_largest_frame_is_read(site: Site) -> None:
    """512 KiB exactly."""
    with new_robot(site) as robot:
        robot.hello()
        text = '{"type":"dance","id":"a.1","x":"' + "x" * (ROBOT_FRAME_BYTES_MAX - 34) + '"}'
        assert len(text) == ROBOT_FRAME_BYTES_MAX
        robot.send(text)
        assert robot.expect("refused")["reason"] == "unknown_type"


def test_pings_are_answered_and_compression_is_not_spoken(site: Site) -> None:
    """A ping is no sign of life, but it is answered; permessage-deflate is not agreed to."""
    url = f"{site.url.replace('http', 'ws', 1)}/v1/pools/hall-a/robots/pinger/session"
    with connect(url, subprotocols=[Subprotocol(PROTOCOL)], compression="deflate") as connection:
        assert connection.ping().wait(60)
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers
        assert connection.subprotocol == PROTOCOL


def test_many_frames_in_one_read_are_all_handled_in_order(site: Site) -> None:
    """A burst arrives as one piece of bytes; the answers come in order."""
    with new_robot(site) as robot:
        robot.hello(slots=64)
        ids = [robot.next_id() for _ in range(500)]
        frames = [
            Frame(
                Opcode.TEXT,
                json.dumps({"type": "ready", "id": of, "epoch": robot.epoch, "seq": n + 1, "n": 1}).encode(),
            )
            for n, of in enumerate(ids)
        ]
        robot.connection.socket.sendall(b"".join(frame.serialize(mask=True) for frame in frames))
        assert [robot.expect("ack")["of"] for _ in ids] == ids


def test_a_frame_may_come_in_pieces(site: Site) -> None:
    """Byte by byte, as a slow link brings it."""
    with new_robot(site) as robot:
        robot.hello()
        text = json.dumps({"type": "ready", "id": "p.1", "epoch": robot.epoch, "seq": 1, "n": 1}).encode()
        for byte in Frame(Opcode.TEXT, text).serialize(mask=True):
            robot.connection.socket.sendall(bytes([byte]))
        assert robot.expect("ack")["of"] == "p.1"


class Deaf:
    """A robot that says hello and then reads nothing any more."""

    def __init__(self, site: Site) -> None:
        self.name = f"deaf-{uuid.uuid4().hex[:8]}"
        host, port = site.url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.connect((host, int(port)))
        self.socket.sendall(
            f"GET /v1/pools/hall-a/robots/{self.name}/session HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.socket.recv(4096):
            pass
        hello = {"type": "hello", "id": "d.0", "slots": 1, "capabilities": [], "holding": []}
        self.socket.sendall(Frame(Opcode.TEXT, json.dumps(hello).encode()).serialize(mask=True))
        until(lambda: ("hall-a", self.name) in site.owner.epochs)

    def close_code(self) -> int:
        """Reads everything up to the close frame: its code."""
        data = b""
        while not data.endswith(CLOSE_CODES[4009][0].encode()) and (piece := self._read()):
            data += piece
        at = data.rindex(b"\x88")
        code: int = struct.unpack(">H", data[at + 2 : at + 4])[0]
        return code

    def _read(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""


def test_i3_a_robot_that_does_not_read_is_dropped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the bytes that may wait: 4009, and the others are served all the while."""
    monkeypatch.setattr(websocket, "CLOSING_S", 60.0)
    deaf = Deaf(site)
    with new_robot(site) as robot:
        robot.hello()
        for n in range(200):
            site.owner.tell("hall-a", deaf.name, long_cancel(n))
        until(lambda: deaf.name not in {session.robot for session in site.gateway.sessions}, "its end")
        assert robot.ask("ready", n=1)["type"] == "ack"
    assert deaf.close_code() == 4009
    deaf.socket.close()


def test_i3_a_robot_that_reads_nothing_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where little waits: after 10 s."""
    monkeypatch.setattr(websocket, "STALLED_S", 0.3)
    monkeypatch.setattr(websocket, "CLOSING_S", 60.0)
    with Site(scripted=True, projector=False, partitions=1, send_buffer_bytes=2**30) as site:
        deaf = Deaf(site)
        for n in range(200):
            site.owner.tell("hall-a", deaf.name, long_cancel(n))
        until(lambda: not site.gateway.sessions, "its end")
        assert deaf.close_code() == 4009
        deaf.socket.close()


def test_a_withdrawn_token_ends_its_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    """4003 within seconds of the token's removal from the file; other tokens' sessions go on."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    first, first_entry = new_token("first", "robot")
    second, second_entry = new_token("second", "robot")
    write_tokens(path, [first_entry, second_entry])
    with Site(scripted=True, partitions=1, tokens=path, projector=False) as site:
        site.gateway.reads.pool_refusal = no_refusal  # type: ignore[method-assign]
        with site.robot("r1", token=first) as gone, site.robot("r2", token=second) as stays:
            gone.hello()
            stays.hello()
            write_tokens(path, [second_entry])
            assert gone.expect_closed().code == 4003
            assert stays.ask("ready", n=1)["type"] == "ack"


def long_cancel(number: int) -> dict[str, Any]:
    """A message of 50,000 bytes."""
    return {"type": "cancel", "task": f"t{number}", "attempt": 1, "reason": "x" * 50_000}


async def no_refusal(pool: str) -> None:
    """Every pool exists."""
