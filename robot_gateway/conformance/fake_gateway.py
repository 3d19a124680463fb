"""A gateway by script: a real WebSocket and HTTP long-polling server that says what a row tells it to say.

with FakeGateway() as gateway:          # robots connect to gateway.url
    session = gateway.session()         # the next robot, its hello received
    session.ready()
    session.start("t1")
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeVar

from websockets.datastructures import Headers
from websockets.http11 import Request

from robot_gateway.conformance.checking import Broken
from robot_gateway.conformance.fake_session import Session
from robot_gateway.conformance.fake_transports import PollSession, SocketSession

__all__ = ["FakeGateway", "Session"]

PATIENCE_S = 60.0
"""How long is waited for something that must come, unless another time is set."""
ON_THE_WAY_S = 0.5
"""How long what a robot said before it ended may take to come."""
T = TypeVar("T")


class FakeGateway:
    """The server. `refusals`: (status, problem, headers) for the next handshakes, first come first served.

    `patience_s`: how long is waited for what must come. `violations`: what robots did against the protocol; leaving
    the gateway in peace with any of them raises Broken. `robot_is_gone`: whether waiting has become vain.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.violations: list[str] = []
        self.refusals: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.bodies: dict[str, bytes] = {}
        self.robot_is_gone: Callable[[], bool] = lambda: False
        self._epochs = 0
        self._opened: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._polling: dict[str, PollSession] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        if kind is None and self.violations:
            raise Broken("only messages of the protocol", self.violations[0])

    @property
    def url(self) -> str:
        """Where robots connect."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_epoch(self) -> int:
        """A new epoch, larger than all before."""
        self._epochs += 10
        return self._epochs

    def session(self) -> Session:
        """The next session that a robot opens, its hello received. Raises Broken."""
        session = self.wait_for(self._opened)
        if session is None:
            raise Broken("a connection of the robot", self.nothing)
        session.expect("hello")
        return session

    def wait_for(self, source: queue.SimpleQueue[T]) -> T | None:
        """What comes next from the robot; None after `patience_s`, or soon where it has ended by itself."""
        give_up = time.monotonic() + self.patience_s
        while (left := give_up - time.monotonic()) > 0:
            if self.robot_is_gone():
                left, give_up = min(left, ON_THE_WAY_S), 0.0
            with suppress(queue.Empty):
                return source.get(timeout=min(left, ON_THE_WAY_S))
        return None

    @property
    def nothing(self) -> str:
        """What came when nothing came."""
        return "nothing" if self.robot_is_gone() else f"nothing in {self.patience_s:g} s"

    def no_session(self, for_s: float) -> None:
        """No robot comes for so long. Raises Broken."""
        try:
            session = self._opened.get(timeout=for_s)
        except queue.Empty:
            return
        raise Broken(f"no connection for {for_s:g} s", f"robot {session.robot}")

    def opened(self, session: Session) -> None:
        """A robot has come."""
        self._opened.put(session)

    def poll_session(self, robot: str, pool: str, headers: dict[str, str], asked: dict[str, Any]) -> PollSession | None:
        """The session that a poll belongs to; a new one with a hello."""
        with self._lock:
            known = self._polling.get(robot)
            if known is not None and known.session == asked["session"]:
                return known
            if [m.get("type") for m in asked["messages"]] != ["hello"]:
                return None
            if known is not None:
                known.ended.set()
            session = self._polling[robot] = PollSession(self, robot, pool, headers, asked["session"])
        self.opened(session)
        return session


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Robots that are killed break connections; nobody is told."""


def _handler(gateway: FakeGateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            if self.path in gateway.bodies:
                self._answer(200, gateway.bodies[self.path])
                return
            parts = self.path.split("/")
            if gateway.refusals:
                status, problem, headers = gateway.refusals.pop(0)
                self._answer(status, json.dumps(problem).encode(), headers)
                return
            if len(parts) != 7 or parts[6] != "session":
                self._answer(404, b"{}")
                return
            headers_sent = Headers(self.headers.items())
            session = SocketSession(gateway, parts[5], parts[3], dict(self.headers.items()), self.connection)
            session.serve(Request(self.path, headers_sent))

        def do_POST(self) -> None:
            parts = self.path.split("/")
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if gateway.refusals:
                status, problem, headers = gateway.refusals.pop(0)
                self._answer(status, json.dumps(problem).encode(), headers)
                return
            if set(asked) - {"session", "messages", "seen", "wait_ms"} or len(asked["messages"]) > 100:
                gateway.violations.append(f"not a poll: {asked}")
            session = gateway.poll_session(parts[5], parts[3], dict(self.headers.items()), asked)
            if session is None:
                self._answer(410, json.dumps({"reason": "no_session"}).encode())
                return
            answer = session.poll(asked, min(asked["wait_ms"] / 1000, 0.5))
            if answer is None:
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            self._answer(200, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    return Handler
