"""A WebSocket client for one thread: many messages per system call in both directions, woken by any other thread.

The protocol is that of the `websockets` library (its Sans-I/O layer); only the socket is driven here, because a robot
that finishes thousands of tasks a second cannot afford one system call and one thread switch a message.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from robot_gateway.sdk.errors import FleetlogError, error_of

RECEIVE_BYTES: Final = 256 * 1024
WAITING_BYTES_MAX: Final = 1024 * 1024
"""Above this much unsent data nothing more is taken from the queues of messages."""


class HandshakeRefused(Exception):
    """The gateway answered the handshake with an HTTP status that is no upgrade; `error` is the problem it told."""

    def __init__(self, status: int, error: FleetlogError) -> None:
        super().__init__(f"HTTP {status}: {error.text}")
        self.status = status
        self.error = error


class Closed(Exception):
    """The connection is closed: `code` as in the protocol's table (1006: without a closing frame), and `reason`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed with {code} {reason}".strip())
        self.code = code
        self.reason = reason


class Waker:
    """Lets any thread end another thread's wait in `select`; wakes that come before the wait count too."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.Lock()
        self._set = False

    def fileno(self) -> int:
        """What `select` waits for."""
        return self._reader.fileno()

    def wake(self) -> None:
        """End the wait, now or when it begins."""
        if self._set:
            return
        with self._lock:
            if not self._set:
                self._set = True
                self._writer.send(b"w")

    def reset(self) -> None:
        """Called by the woken thread before it looks at what there is to do."""
        if self._set:
            with self._lock:
                self._reader.recv(64)
                self._set = False

    def close(self) -> None:
        """Give the two sockets back; `wake` does nothing from here on."""
        with self._lock:
            self._set = True
            self._reader.close()
            self._writer.close()


class WebSocket:
    """An open connection; all methods belong to one thread.

    `connect` raises OSError (nobody answers, TLS fails) or HandshakeRefused.
    """

    def __init__(self, sock: socket.socket, protocol: ClientProtocol, waker: Waker) -> None:
        self._sock = sock
        self._protocol = protocol
        self._waker = waker
        self._unsent = bytearray()
        self._parts: list[bytes] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(waker, selectors.EVENT_READ)
        self._events = selectors.EVENT_READ
        self._ended = False

    @classmethod
    def connect(
        cls, url: str, *, subprotocol: str, headers: Mapping[str, str], waker: Waker, timeout_s: float, max_size: int
    ) -> WebSocket:
        """Open `url` (ws or wss) and do the handshake within `timeout_s`; messages above `max_size` bytes close it."""
        uri = parse_uri(url)
        protocol = ClientProtocol(uri, subprotocols=[Subprotocol(subprotocol)], max_size=max_size)
        sock: socket.socket = socket.create_connection((uri.host, uri.port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if uri.secure:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=uri.host)
            request = protocol.connect()
            for name, value in headers.items():
                request.headers[name] = value
            protocol.send_request(request)
            sock.sendall(b"".join(protocol.data_to_send()))
            while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
                _feed(protocol, sock.recv(RECEIVE_BYTES))
            if protocol.handshake_exc is not None:
                raise _refusal(protocol.handshake_exc) from None
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return cls(sock, protocol, waker)

    @property
    def waiting_bytes(self) -> int:
        """How much the network has not taken yet."""
        return len(self._unsent)

    def send(self, messages: Iterable[bytes]) -> None:
        """Send each message as one text frame; what the network does not take now follows in `receive`.

        On a connection that is closing nothing is sent.
        """
        for message in messages:
            if self._protocol.state is not State.OPEN:
                return
            self._protocol.send_text(message)
        self._flush()

    def ping(self) -> None:
        """Ask the other side's protocol layer for a pong, which counts as something that came."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._flush()

    def receive(self, timeout_s: float) -> tuple[list[bytes], bool]:
        """Wait until something comes, somebody wakes, or `timeout_s` is over.

        Returns the messages and whether anything at all came. Raises Closed when the connection has ended; what came
        before that is returned first.
        """
        if self._ended:
            raise self._closed()
        events = self._events_wanted()
        if events != self._events:
            self._selector.modify(self._sock, events)
            self._events = events
        pending = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
        ready = self._selector.select(0 if pending else max(0.0, timeout_s))
        self._waker.reset()
        if self._unsent:
            self._flush()
        if self._ended:
            raise self._closed()
        if pending or any(key.fileobj is self._sock and got & selectors.EVENT_READ for key, got in ready):
            return self._read()
        return [], False

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye as far as the network takes it at once, and let go."""
        try:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code, reason)
                self._flush()
        finally:
            self._selector.close()
            self._sock.close()

    def _events_wanted(self) -> int:
        return selectors.EVENT_READ | selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ

    def _read(self) -> tuple[list[bytes], bool]:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return [], False
        except OSError:
            data = b""
        _feed(self._protocol, data)
        messages = self._messages(self._protocol.events_received())
        self._flush()
        if not data or self._protocol.close_expected():
            self._ended = True
            if not messages:
                raise self._closed()
        return messages, True

    def _messages(self, events: list[Any]) -> list[bytes]:
        messages = []
        for frame in events:
            if not isinstance(frame, Frame):
                continue
            if frame.opcode is Opcode.TEXT and frame.fin:
                messages.append(bytes(frame.data))
            elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(frame.data))
                if frame.fin:
                    messages.append(b"".join(self._parts))
                    self._parts.clear()
        return messages

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._unsent += data  # an empty one asks to close our half, which close() does
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._unsent.clear()
                self._ended = True
                return
            del self._unsent[:sent]

    def _closed(self) -> Closed:
        if self._protocol.state is not State.CLOSED:
            _feed(self._protocol, b"")
        code, reason = self._protocol.close_code, self._protocol.close_reason
        return Closed(1006 if code is None else code, reason or "")


def session_url(gateway: str, path: str) -> str:
    """The WebSocket address of `path` at a gateway given as http(s)://HOST:PORT."""
    parts = urllib.parse.urlsplit(gateway)
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"{gateway} is not the address of a gateway: write http://HOST:PORT or https://HOST:PORT")
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{path}"


def bearer(token: str | None) -> dict[str, str]:
    """The headers that carry `token`."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def _feed(protocol: ClientProtocol, data: bytes) -> None:
    if data:
        protocol.receive_data(data)
    else:
        protocol.receive_eof()


def _refusal(problem: BaseException) -> HandshakeRefused | OSError:
    if not isinstance(problem, InvalidStatus):
        return OSError(f"this is not a gateway of Fleetlog: {problem}")
    response = problem.response
    retry_after = response.headers.get("Retry-After", "")
    try:
        told: dict[str, Any] = json.loads(response.body or b"{}")
    except ValueError:
        told = {}
    reason = told.get("reason") or ("log_unavailable" if response.status_code >= 500 else "no_such_route")
    error = error_of(
        reason,
        str(told.get("detail") or f"the gateway refused the session with HTTP {response.status_code}"),
        retry_after_s=float(retry_after) if retry_after.isdigit() else None,
        field=told.get("field"),
    )
    return HandshakeRefused(response.status_code, error)
