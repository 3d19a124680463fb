"""The two transports of a gateway by script: a real WebSocket, and long polling."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL
from robot_gateway.conformance.fake_session import Session

if TYPE_CHECKING:
    from robot_gateway.conformance.fake_gateway import FakeGateway

ENDING_S = 60.0
"""How long a broken connection may take to end."""


class SocketSession(Session):
    """A session over WebSocket."""

    transport = "websocket"

    def __init__(
        self, gateway: FakeGateway, robot: str, pool: str, headers: dict[str, str], sock: socket.socket
    ) -> None:
        super().__init__(gateway, robot, pool, headers)
        self._sock = sock
        self.ponged = threading.Event()
        self._protocol = ServerProtocol(subprotocols=[Subprotocol(PROTOCOL)], max_size=2**24)
        self._lock = threading.Lock()

    def serve(self, request: Request) -> None:
        """The handshake, then messages until the connection ends."""
        self._protocol.receive_data(request.serialize())
        self._protocol.events_received()
        self._protocol.send_response(self._protocol.accept(request))
        self._flush()
        if self._protocol.state is not State.OPEN:
            self.gateway.violations.append(f"a handshake that is none: {self._protocol.handshake_exc}")
            return
        self.gateway.opened(self)
        try:
            while data := self._sock.recv(65536):
                with self._lock:
                    self._protocol.receive_data(data)
                    events = self._protocol.events_received()
                    self._flush()
                for frame in events:
                    if isinstance(frame, Frame) and frame.opcode is Opcode.TEXT:
                        self.take(bytes(frame.data))
                    elif isinstance(frame, Frame) and frame.opcode is Opcode.PONG:
                        self.ponged.set()
        except OSError:
            pass
        finally:
            received = self._protocol.close_rcvd
            self.close_code = received.code if received is not None else None
            self.ended.set()

    def send(self, message: dict[str, Any]) -> None:
        """As in the base class."""
        self.send_raw(json.dumps(message, ensure_ascii=False).encode())

    def send_raw(self, text: bytes) -> None:
        """Send bytes as a text frame, whatever they are."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_text(text)
                self._flush()

    def ping(self) -> None:
        """Send a ping; the pong sets `ponged`."""
        with self._lock:
            self._protocol.send_ping(b"alive")
            self._flush()

    def close(self, code: int, reason: str = "") -> None:
        """As in the base class."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code, reason)
                self._flush()

    def cut(self) -> None:
        """As in the base class."""
        # Linger 0: the other side sees a reset.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.shutdown(socket.SHUT_RDWR)
        self.ended.wait(ENDING_S)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._sock.sendall(data)
            else:
                self._sock.shutdown(socket.SHUT_WR)


class PollSession(Session):
    """A session over long polling."""

    transport = "polling"

    def __init__(self, gateway: FakeGateway, robot: str, pool: str, headers: dict[str, str], session: str) -> None:
        super().__init__(gateway, robot, pool, headers)
        self.session = session
        self.cuts = 0
        self._messages: list[tuple[int, dict[str, Any]]] = []
        self._count = 0
        self._closed: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._polls = 0

    def send(self, message: dict[str, Any]) -> None:
        """As in the base class."""
        with self._changed:
            self._count += 1
            self._messages.append((self._count, message))
            self._changed.notify_all()

    def close(self, code: int, reason: str = "") -> None:
        """As in the base class."""
        with self._changed:
            self._closed = {"closed": code, "reason": reason}
            self._changed.notify_all()

    def cut(self) -> None:
        """The answer to the next poll is lost."""
        with self._changed:
            self.cuts += 1
            self._changed.notify_all()

    def poll(self, asked: dict[str, Any], wait_s: float) -> dict[str, Any] | None:
        """Answer one poll; None when its answer is to be lost."""
        for message in asked["messages"]:
            self.take(json.dumps(message))
        with self._changed:
            self._polls += 1
            mine = self._polls
            self._changed.notify_all()
            self._messages = [(n, m) for n, m in self._messages if n > asked["seen"]]
            self._changed.wait_for(
                lambda: bool(self._messages or self._closed or self.cuts) or self._polls != mine, wait_s
            )
            if self.cuts:
                self.cuts -= 1
                return None
            if self._polls != mine:
                return {"messages": [], "cursor": asked["seen"]}
            if self._closed is not None:
                self.ended.set()
            return {"messages": [m for _, m in self._messages], "cursor": self._count} | (self._closed or {})
