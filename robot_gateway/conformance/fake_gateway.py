"""A gateway by script: a real WebSocket and HTTP long-polling server that says what a test tells it to say.

It checks each message of a robot against the wire models and the numbering rules; what it finds wrong stands in
`violations`. Heartbeats are answered by themselves unless a test switches that off.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pydantic import ValidationError
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL, ROBOT_FRAME_BYTES_MAX, decode_robot_message

CEILING_S = 60.0
"""No test waits longer than this for something that must come."""


class Session:
    """One session of a robot, over either transport, as the script sees it."""

    may_skip_numbers = False

    def __init__(self, gateway: FakeGateway, robot: str, pool: str, headers: dict[str, str]) -> None:
        self.gateway = gateway
        self.robot = robot
        self.pool = pool
        self.headers = headers
        self.epoch = 0
        self.hello: dict[str, Any] = {}
        self.answer_beats = True
        self.ended = threading.Event()
        self.close_code: int | None = None
        self.beats: list[dict[str, Any]] = []
        self._seq = 0
        self._received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._kept: list[dict[str, Any]] = []
        self._new_beat = threading.Condition()

    # ---- what a test says ----

    def send(self, message: dict[str, Any]) -> None:
        """Say anything."""
        raise NotImplementedError

    def close(self, code: int, reason: str = "") -> None:
        """Close the session with a code of the table."""
        raise NotImplementedError

    def cut(self) -> None:
        """Break the connection without a word."""
        raise NotImplementedError

    def welcome(self, **fields: Any) -> dict[str, Any]:
        """Answer the hello; epoch, window and the rest have defaults."""
        self.epoch = self.gateway.next_epoch()
        self._seq = 0
        message = {
            "type": "welcome",
            "of": self.hello["id"],
            "epoch": self.epoch,
            "protocol": 1,
            "window_ms": 400,
            "heartbeat_every_ms": 200,
            "draining": False,
            "held": [],
            "payload_max_bytes": 262144,
            "now_at": 0,
            "position": "p",
        }
        self.send(message | fields)
        return message | fields

    def assign(self, task: str = "t1", attempt: int = 1, **fields: Any) -> dict[str, Any]:
        """Give the robot a task of kind `work` with the payload {"ms": 0}."""
        message = {
            "type": "assign",
            "assignment_id": f"assignment-{task}-{attempt}",
            "task": task,
            "attempt": attempt,
            "kind": "work",
            "payload": {"ms": 0},
            "idempotency_key": f"key-{task}",
            "labels": {},
            "slot_cost": 1,
            "accept_within_ms": 5000,
            "lease_ms": 15000,
            "stop_after_ms": 15000,
            "failures": 0,
            "lost": 0,
        }
        self.send(message | fields)
        return message | fields

    def ack(self, of: dict[str, Any], **fields: Any) -> None:
        """Acknowledge a message; an accept with its lease."""
        lease = {"lease_ms": 15000, "stop_after_ms": 15000} if of["type"] == "accept" else {}
        message = {"type": "ack", "of": of["id"], "position": "p"} | lease | fields
        self.send({name: value for name, value in message.items() if value is not None})

    def refuse(self, of: dict[str, Any] | None, reason: str, **fields: Any) -> None:
        """Refuse a message."""
        told = {"type": "refused", "of": of and of["id"], "reason": reason, "text": f"refused: {reason}"}
        self.send(told | {"retry": False} | fields)

    def start(self, task: str = "t1", attempt: int = 1, *, lease: dict[str, Any] | None = None, **fields: Any) -> None:
        """Assign, expect the accept, acknowledge it: the robot now works."""
        self.assign(task, attempt, **fields)
        accept = self.expect("accept")
        assert (accept["task"], accept["attempt"]) == (task, attempt)
        self.ack(accept, **(lease or {}))

    # ---- what a test expects ----

    def expect(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message, heartbeats aside; it must be of this type and have these fields."""
        message = self._next(CEILING_S)
        assert message is not None, f"no {kind} came"
        assert message["type"] == kind, f"expected {kind}, got {message}"
        for name, value in fields.items():
            assert message.get(name) == value, f"expected {name}={value!r} in {message}"
        return message

    def expect_of(self, *kinds: str) -> list[dict[str, Any]]:
        """The next messages, one of each of these types, in any order."""
        messages = [self.expect_any() for _ in kinds]
        assert sorted(m["type"] for m in messages) == sorted(kinds), messages
        return sorted(messages, key=lambda m: kinds.index(m["type"]))

    def expect_any(self) -> dict[str, Any]:
        """The next message, heartbeats aside."""
        message = self._next(CEILING_S)
        assert message is not None, "nothing came"
        return message

    def expect_nothing(self, for_s: float) -> None:
        """No message but heartbeats for so long."""
        message = self._next(for_s)
        assert message is None, f"this came: {message}"

    def expect_beat(self, matches: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """A heartbeat that matches, from now on."""
        with self._new_beat:
            seen = len(self.beats)
            deadline = time.monotonic() + CEILING_S
            while True:
                for beat in self.beats[seen:]:
                    if matches(beat):
                        return beat
                seen = len(self.beats)
                assert self._new_beat.wait(deadline - time.monotonic()), "no such heartbeat came"

    def ready(self) -> dict[str, Any]:
        """Welcome the robot and take its ready."""
        self.welcome()
        ready = self.expect("ready")
        self.ack(ready)
        return ready

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        try:
            return self._received.get(timeout=timeout_s)
        except queue.Empty:
            return None

    # ---- what a robot says ----

    def take(self, text: str | bytes) -> None:
        """A message of the robot: check it, answer heartbeats, keep the rest for the script."""
        if len(text) > ROBOT_FRAME_BYTES_MAX:
            self.gateway.violations.append(f"a message of {len(text)} bytes")
        try:
            decode_robot_message(text)
        except ValidationError as problem:
            self.gateway.violations.append(f"not a message of the protocol: {text!r}: {problem}")
            return
        message: dict[str, Any] = json.loads(text)
        self._check_number(message)
        if message["type"] == "hello":
            self.hello = message
        if message["type"] != "heartbeat":
            self._received.put(message)
            return
        if self.answer_beats:
            self.send(self.beat_ack(message))
        with self._new_beat:
            self.beats.append(message)
            self._new_beat.notify_all()

    def beat_ack(self, beat: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """The answer to a heartbeat."""
        answer = {"type": "heartbeat_ack", "of": beat["id"], "stop": [], "cancel": [], "draining": False}
        return answer | {"heartbeat_every_ms": 200} | fields

    def _check_number(self, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            if "epoch" in message:
                self.gateway.violations.append(f"a hello with an epoch: {message}")
            return
        if message.get("epoch") != self.epoch:
            self.gateway.violations.append(f"epoch {message.get('epoch')} instead of {self.epoch}: {message}")
        expected, self._seq = self._seq + 1, int(message.get("seq", 0))
        # What a poll said that never arrived leaves a gap.
        if self._seq < expected or (self._seq > expected and not self.may_skip_numbers):
            self.gateway.violations.append(f"seq {self._seq} instead of {expected}: {message}")


class SocketSession(Session):
    """A session over WebSocket."""

    def __init__(
        self, gateway: FakeGateway, robot: str, pool: str, headers: dict[str, str], sock: socket.socket
    ) -> None:
        super().__init__(gateway, robot, pool, headers)
        self._sock = sock
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
        except OSError:
            pass
        finally:
            received = self._protocol.close_rcvd
            self.close_code = received.code if received is not None else None
            self.ended.set()

    def send(self, message: dict[str, Any]) -> None:
        self.send_raw(json.dumps(message, ensure_ascii=False).encode())

    def send_raw(self, text: bytes) -> None:
        """Send bytes as a text frame, whatever they are."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_text(text)
                self._flush()

    def close(self, code: int, reason: str = "") -> None:
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code, reason)
                self._flush()

    def cut(self) -> None:
        # Linger 0: the other side sees a reset.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.shutdown(socket.SHUT_RDWR)
        self.ended.wait(CEILING_S)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._sock.sendall(data)
            else:
                self._sock.shutdown(socket.SHUT_WR)


class PollSession(Session):
    """A session over long polling."""

    may_skip_numbers = True

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
        with self._changed:
            self._count += 1
            self._messages.append((self._count, message))
            self._changed.notify_all()

    def close(self, code: int, reason: str = "") -> None:
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


class FakeGateway:
    """The server. `refusals`: (status, problem, headers) for the next handshakes, first come first served."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.refusals: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.bodies: dict[str, bytes] = {}
        self._epochs = 0
        self._opened: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._polling: dict[str, PollSession] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        assert self.violations == []

    @property
    def url(self) -> str:
        """Where robots connect."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_epoch(self) -> int:
        """A new epoch, larger than all before."""
        self._epochs += 10
        return self._epochs

    def session(self) -> Session:
        """The next session that a robot opens, its hello received."""
        try:
            session = self._opened.get(timeout=CEILING_S)
        except queue.Empty:
            raise AssertionError("no robot came") from None
        hello = session.expect("hello")
        assert hello is session.hello
        return session

    def no_session(self, for_s: float) -> None:
        """No robot comes for so long."""
        try:
            session = self._opened.get(timeout=for_s)
        except queue.Empty:
            return
        raise AssertionError(f"robot {session.robot} came")

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
        """Robots that are killed break connections; tests print nothing about it."""


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
            """Tests print nothing."""

    return Handler
