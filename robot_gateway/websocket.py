"""WebSockets: the handshake with its refusals, frames in and out, slow readers. For robots and `/v1/submit`.

uvicorn hands every upgrade to a `WebSocketConnection`, which works on bytes as they arrive: all frames of one read
are handled in one go, and what they cause goes out in one write at the end of the loop's turn. There is no task, no
queue and no await per message. The WebSocket protocol itself is the `websockets` library's.
"""

import asyncio
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from websockets.datastructures import Headers
from websockets.exceptions import HeaderLineTooLong, RequestLineTooLong, TooManyHeaders
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from commands.messages import CLOSE_CODES, PROTOCOL, ROBOT_FRAME_BYTES_MAX
from commands.reasons import Refusal
from commands.vocabulary import is_name
from robot_gateway.problems import problem_response
from robot_gateway.submit import SUBMIT_FRAME_BYTES_MAX, SUBMIT_PROTOCOL, SubmitStream
from robot_gateway.tokens import Principal

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway

logger = logging.getLogger("fleetlog.gateway")

SESSION_PATH: Final = re.compile(r"/v1/pools/([^/]+)/robots/([^/]+)/session\Z")
SUBMIT_PATH: Final = "/v1/submit"
STALLED_S: Final = 10.0
_TOO_LARGE: Final = (HeaderLineTooLong, RequestLineTooLong, TooManyHeaders)
CLOSING_S: Final = 5.0


class Handler(Protocol):
    """What lives on a connection: a robot's session, or a stream of submissions."""

    def receive(self, raw: bytes) -> None:
        """One text message has come."""

    def close(self, code: int, reason: str) -> None:
        """Ends it from our side; closes the connection."""

    def end(self) -> None:
        """The connection has gone."""


class WebSocketConnection(asyncio.Protocol):
    """One connection, from its handshake to its end; also the `Channel` of what lives on it."""

    def __init__(self, gateway: "Gateway", config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        """The signature is uvicorn's, but for the gateway."""
        self._gateway = gateway
        self._server_state = server_state
        self._loop = asyncio.get_running_loop()
        self._websocket = ServerProtocol(
            subprotocols=[Subprotocol(PROTOCOL), Subprotocol(SUBMIT_PROTOCOL)], max_size=ROBOT_FRAME_BYTES_MAX
        )
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._entering: asyncio.Task[None] | None = None
        self._closing = False
        self._flushing = False
        self._stalled_since: float | None = None
        self._backlog: deque[bytes] = deque()
        self._holding = False  # the handler wants nothing more for now

    # ---- asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """uvicorn gives its transport over."""
        self._transport = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have closed."""
        self._server_state.connections.discard(self)
        self._closing = True
        if self._entering is not None:
            self._entering.cancel()
        if self._handler is not None:
            self._handler.end()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: every whole frame in them is handled now."""
        self._websocket.receive_data(data)
        unreadable = self._websocket.handshake_exc
        if unreadable is not None and self._handler is None and not self._closing:
            self._refuse_unreadable(unreadable)
            return
        for event in self._websocket.events_received():
            if isinstance(event, Request):
                self._greet(event)
            elif not self._closing:
                self._frame(event)
        self._flush_soon()
        if self._websocket.parser_exc is not None and not self._closing:
            # A bad frame: the library has queued the close frame with its code (1002, 1007, 1009).
            self._finish()

    def eof_received(self) -> bool:
        """Half-open connections are not kept."""
        return False

    def pause_writing(self) -> None:
        """The other side reads more slowly than we write."""
        self._stalled_since = time.monotonic()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._stalled_since = None

    def shutdown(self) -> None:
        """uvicorn stops."""
        self._close_handler(1012, CLOSE_CODES[1012][0])

    # ---- Channel ----

    def send(self, message: bytes) -> None:
        """Sends one text message, together with all others of this turn of the loop."""
        if not self._closing and self._websocket.state is OPEN:
            self._websocket.send_text(message)
            self._flush_soon()

    def close(self, code: int, reason: str) -> None:
        """Sends what is kept, then the close frame; the connection ends at latest after a few seconds."""
        if self._closing:
            return
        self._gateway.metrics.closed.labels(str(code)).inc()
        if self._websocket.state is OPEN:
            self._websocket.send_close(code, reason)
        self._finish()

    def waits_too_long(self, now: float) -> bool:
        """Whether more waits than may, or since too long."""
        return self._is_full() or (self._stalled_since is not None and now - self._stalled_since > STALLED_S)

    # ---- holding back ----

    def hold(self) -> None:
        """Reads no more until `go_on`."""
        if not self._holding:
            self._holding = True
            if self._transport is not None:
                self._transport.pause_reading()

    def go_on(self) -> None:
        """Handles what was read before, then reads again."""
        self._holding = False
        self._drain()
        if not self._holding and not self._closing and self._transport is not None:
            self._transport.resume_reading()

    def _drain(self) -> None:
        while self._backlog and not self._holding and not self._closing and self._handler is not None:
            self._handler.receive(self._backlog.popleft())

    # ---- frames ----

    def _frame(self, frame: Any) -> None:
        if not isinstance(frame, Frame) or self._handler is None:
            return
        if frame.opcode is Opcode.TEXT and frame.fin:
            self._text(bytes(frame.data))
        elif frame.opcode is Opcode.BINARY:
            self._close_handler(1003, CLOSE_CODES[1003][0])
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._close_handler(CloseCode.PROTOCOL_ERROR, "messages are never fragmented here")
        elif frame.opcode is Opcode.CLOSE:
            self._finish()

    def _text(self, data: bytes) -> None:
        if not _is_utf8(data):
            self._close_handler(1007, CLOSE_CODES[1007][0])
        elif self._holding:
            self._backlog.append(data)
        elif self._handler is not None:
            self._handler.receive(data)

    def _close_handler(self, code: int, reason: str) -> None:
        if self._handler is not None:
            self._handler.close(code, reason)
        else:
            self.close(code, reason)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or self._transport.is_closing():
            return
        pieces = self._websocket.data_to_send()
        if pieces:
            self._transport.write(b"".join(pieces))
        if pieces and pieces[-1] == b"":
            self._transport.close()
        elif self._is_full() and not self._closing:
            self._close_handler(4009, CLOSE_CODES[4009][0])

    def _is_full(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > self._gateway.settings.send_buffer_bytes

    def _finish(self) -> None:
        """Nothing more is taken or sent but what is queued; the other side has a few seconds to close as well."""
        self._closing = True
        self._backlog.clear()
        self._flush()
        if self._transport is not None:
            if self._holding:
                self._transport.resume_reading()
            self._loop.call_later(CLOSING_S, self._transport.abort)

    # ---- the handshake ----

    def _greet(self, request: Request) -> None:
        found = self._gateway.access.enter(partial(_header, request.headers), request.path)
        if isinstance(found, Refusal):
            self._refuse(found)
            return
        path = request.path.partition("?")[0]
        session = SESSION_PATH.match(path)
        if session is not None:
            self._greet_robot(request, found, session[1], session[2])
        elif path == SUBMIT_PATH:
            self._greet_submitter(request, found)
        else:
            self._refuse(Refusal("no_such_route", f"there is no WebSocket at {path[:200]}"))

    def _greet_robot(self, request: Request, principal: Principal, pool: str, robot: str) -> None:
        gateway = self._gateway
        refusal = (
            robot_refusal(principal, pool, robot) or _protocol_problem(request, PROTOCOL) or gateway.sessions_full()
        )
        if refusal is not None:
            self._refuse(refusal)
            return

        def enter() -> Handler:
            return gateway.open_session(self, pool, robot, principal)

        if gateway.access.pools_are_made_on_first_use:
            self._accept(request, enter)
        else:
            self._entering = self._loop.create_task(self._enter_if_pool(request, pool, enter))

    async def _enter_if_pool(self, request: Request, pool: str, enter: Callable[[], Handler]) -> None:
        """With tokens a pool must exist before a robot may say hello to it."""
        try:
            refusal = await self._gateway.reads.pool_refusal(pool)
        except Exception:
            logger.exception("the pool of a handshake could not be looked up")
            refusal = Refusal("internal", "a fault inside the gateway")
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._accept(request, enter)

    def _greet_submitter(self, request: Request, principal: Principal) -> None:
        refusal = None
        if not principal.may("submit"):
            refusal = Refusal("forbidden", f"a {principal.role} may not submit")
        refusal = refusal or _protocol_problem(request, SUBMIT_PROTOCOL)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._websocket.max_message_size = SUBMIT_FRAME_BYTES_MAX
        self._accept(request, lambda: SubmitStream(self._gateway, self, principal))

    def _accept(self, request: Request, enter: Callable[[], Handler]) -> None:
        response = self._websocket.accept(request)
        if response.status_code != 101:
            text = (response.body or b"").decode("ascii", "replace").strip()
            self._refuse(Refusal("protocol_version", text[:300]))
            return
        response.headers["X-Request-Id"] = uuid.uuid4().hex
        self._websocket.send_response(response)
        self._handler = enter()
        self._flush_soon()

    def _refuse(self, refusal: Refusal) -> None:
        """A refused handshake is an HTTP answer with problem details."""
        self._websocket.send_response(_refused(refusal))
        self._finish()

    def _refuse_unreadable(self, fault: Exception) -> None:
        """So is one that the library does not read. It has ended the connection: what it would say is left unsaid."""
        self._websocket.data_to_send()
        self._closing = True
        reason = "too_large" if isinstance(fault, _TOO_LARGE) else "protocol_version"
        if self._transport is not None:
            self._transport.write(_refused(Refusal(reason, str(fault.__cause__ or fault)[:300])).serialize())
            self._transport.close()


def _refused(refusal: Refusal) -> Response:
    request_id = uuid.uuid4().hex
    said = problem_response(refusal, request_id=request_id)
    headers = Headers([(name, value) for name, value in said.headers.items()])
    headers["X-Request-Id"] = request_id
    headers["Connection"] = "close"
    return Response(said.status_code, "Refused", headers, bytes(said.body))


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def robot_refusal(principal: Principal, pool: str, robot: str) -> Refusal | None:
    """Why `principal` may not be `robot` in `pool`, or None."""
    for name, field in ((pool, "/pool"), (robot, "/robot")):
        if not is_name(name):
            return Refusal("invalid_field", "a name is letters, digits and . _ : - (at most 128)", field)
    if not principal.may("session", pool) or not principal.covers_robot(robot):
        return Refusal("forbidden", f"this token is not for robot {robot} in pool {pool}")
    return None


def _protocol_problem(request: Request, wanted: str) -> Refusal | None:
    offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
    if wanted in (name.strip() for name in offered.split(",")):
        return None
    return Refusal("protocol_version", f"this path speaks {wanted}, which was not offered")


def _header(headers: Headers, name: str) -> str | None:
    found = headers.get_all(name)
    return found[0] if found else None
