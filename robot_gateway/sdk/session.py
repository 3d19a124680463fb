"""The session thread: connects, says hello, sends and receives, and connects again when that is worth while."""

from __future__ import annotations

import logging
import random
import threading
import urllib.parse
from typing import Any, Final

from pydantic import ValidationError

from commands.messages import CLOSE_CODES, GATEWAY_FRAME_BYTES_MAX, PROTOCOL, decode_gateway_message
from robot_gateway.sdk.engine import Engine
from robot_gateway.sdk.errors import FleetlogError, error_of
from robot_gateway.sdk.outbox import RESEND_AFTER_S
from robot_gateway.sdk.websocket import (
    WAITING_BYTES_MAX,
    Closed,
    HandshakeRefused,
    WebSocket,
    bearer,
    session_url,
)
from robot_gateway.sdk.wire import boot_seconds

logger = logging.getLogger("fleetlog")

CONNECT_TIMEOUT_S: Final = 10.0
WELCOME_WITHIN_S: Final = 30.0
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0
TRIES_IN_A_LEASE: Final = 2
"""At least so many tries to connect fall into what is left of a lease."""
CONNECT_AT_LEAST_S: Final = 2.0
REFUSED_TOO_OFTEN_S: Final = 60.0
PONG_WITHIN_S: Final = 5.0
_FOR_GOOD: Final = frozenset({400, 401, 403, 404, 405})
_ENDS: Final[dict[int, tuple[str, str]]] = {
    4001: ("superseded", "a newer session of this robot took over"),
    4002: ("two_programs", "two programs use this robot id: stop one, then `fleetlog clear ROBOT`"),
    4003: ("forbidden", "the token was withdrawn, or is not for this robot"),
    4004: ("no_such_robot", "the robot was retired; start it again to register it anew"),
}


def pause_limit_s(tries: int, lease_left_s: float | None) -> float:
    """The longest pause after so many tries: min(30 s, 0.5 s x 2^k), and less where a lease would end meanwhile."""
    usual = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(tries, 10))
    return within_lease_s(usual, lease_left_s, at_least_s=BACKOFF_FIRST_S)


def within_lease_s(usual_s: float, lease_left_s: float | None, *, at_least_s: float) -> float:
    """`usual_s`, shortened so that the tries that are due fit into what is left of the lease; None: no lease."""
    if lease_left_s is None:
        return usual_s
    return min(usual_s, max(at_least_s, lease_left_s / (TRIES_IN_A_LEASE + 1)))


class Session:
    """Keeps one robot connected until it leaves or must not come back."""

    def __init__(self, engine: Engine) -> None:
        config = engine.config
        robot, pool = urllib.parse.quote(config.robot, safe=""), urllib.parse.quote(config.pool, safe="")
        self._engine = engine
        self._url = session_url(config.gateway, f"/v1/pools/{pool}/robots/{robot}/session")
        self._headers = bearer(config.token)
        self._tries = 0
        self._not_before_s = 0.0
        self._said = ""

    def start(self) -> threading.Thread:
        """Begin in a thread of its own."""
        thread = threading.Thread(target=self.run, name="fleetlog-session", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Connect until the robot is over; a fault here ends it, with that fault as the reason."""
        try:
            while not self._engine.ended.is_set():
                self._connect_once()
                self._engine.disconnected()
                if self._engine.said_bye:
                    self._engine.finish(None)
                self._engine.ended.wait(self._pause_s())
        except FleetlogError as error:
            self._engine.finish(error)
        except Exception as fault:
            logger.exception("a fault of the robot SDK")
            self._engine.finish(FleetlogError(f"a fault of the robot SDK: {fault}"))
        finally:
            self._engine.waker.close()

    def _pause_s(self) -> float:
        """A random time up to the limit for this try, k anew at each welcome; never before what the gateway said."""
        limit = pause_limit_s(self._tries, self._engine.lease_left_s())
        self._tries += 1
        return max(self._not_before_s, random.uniform(0, limit))  # noqa: S311 - spreads load, keeps no secret

    def _connect_once(self) -> None:
        """One connection, until it ends. Raises FleetlogError where connecting again is no use."""
        self._not_before_s = 0.0
        engine = self._engine
        try:
            socket = WebSocket.connect(
                self._url,
                subprotocol=PROTOCOL,
                headers=self._headers,
                waker=engine.waker,
                timeout_s=within_lease_s(CONNECT_TIMEOUT_S, engine.lease_left_s(), at_least_s=CONNECT_AT_LEAST_S),
                max_size=GATEWAY_FRAME_BYTES_MAX,
            )
        except HandshakeRefused as refused:
            if refused.status in _FOR_GOOD:
                raise refused.error from None
            self._not_before_s = refused.error.retry_after_s or 0.0
            self._say(f"the gateway does not take the session yet: {refused.error.text}")
            return
        except OSError as problem:
            self._say(f"no gateway answers at {engine.config.gateway}: {problem}")
            return
        try:
            if self._greet(socket):
                self._serve(socket)
        except Closed as closed:
            self._closed(closed)
        finally:
            socket.close(1000 if engine.said_bye else 1001)

    def _greet(self, socket: WebSocket) -> bool:
        """Say hello (again, same id, every 5 s) until welcome."""
        hello = self._engine.hello()
        begun = boot_seconds()
        while not self._engine.ended.is_set() and boot_seconds() < begun + WELCOME_WITHIN_S:
            socket.send([hello])
            again = boot_seconds() + RESEND_AFTER_S
            while (left := again - boot_seconds()) > 0 and not self._engine.ended.is_set():
                messages, _ = socket.receive(left)
                for index, value in enumerate(messages):
                    if self._is_welcome(value):
                        self._tries = 0
                        self._said = ""
                        self._engine.receive(messages[index + 1 :])
                        return True
        return False

    def _is_welcome(self, value: bytes) -> bool:
        try:
            message: Any = decode_gateway_message(value)
        except ValidationError:
            return False
        if message.type == "welcome":
            self._engine.welcomed(message)
            return True
        if message.type == "refused" and not message.retry:
            # log_unavailable and the like say retry; everything else will be refused again.
            raise error_of(message.reason, message.text, field=message.field)
        if message.type == "superseded":
            raise error_of(*_ENDS[4001])
        return False

    def _serve(self, socket: WebSocket) -> None:
        """Send what is to be sent, pass on what comes, until the connection or the robot ends."""
        engine = self._engine
        heard, pinged = boot_seconds(), False
        while not engine.ended.is_set():
            now = boot_seconds()
            with engine.lock:
                frames = engine.outbox.take(now, WAITING_BYTES_MAX - socket.waiting_bytes)
                due = engine.outbox.next_due()
            if frames:
                socket.send(frames)
            quiet_s = 2 * max(1.0, engine.heartbeat_every_s)
            if now - heard > quiet_s and not pinged:
                socket.ping()
                pinged = True
            if now - heard > 2 * quiet_s + PONG_WITHIN_S:
                self._say("the gateway is silent; connecting again")
                return
            wait_s = quiet_s / 2 if due is None else min(quiet_s / 2, max(0.0, due - now))
            messages, something = socket.receive(wait_s)
            if something:
                heard, pinged = boot_seconds(), False
            if messages and self._pass_on(messages):
                return

    def _pass_on(self, messages: list[bytes]) -> bool:
        """Give the messages to the engine; whether this connection is of no more use."""
        for value in messages:
            if b'"moved"' in value or b'"superseded"' in value:
                self._last_words(value)
        reason = self._engine.receive(messages)
        if reason is not None:
            self._say(f"the gateway asks for a new hello ({reason})")
        return reason is not None

    def _last_words(self, value: bytes) -> None:
        try:
            message: Any = decode_gateway_message(value)
        except ValidationError:
            return
        if message.type == "superseded":
            raise error_of(*_ENDS[4001])
        if message.type == "moved":
            self._not_before_s = message.after_ms / 1000

    def _closed(self, closed: Closed) -> None:
        """What a close code asks for (the table of close codes)."""
        if closed.code in _ENDS:
            reason, text = _ENDS[closed.code]
            raise error_of(reason, f"{text} ({closed.reason})" if closed.reason else text)
        meaning, again = CLOSE_CODES.get(closed.code, ("the connection broke", True))
        if closed.code == 4006:
            self._not_before_s = REFUSED_TOO_OFTEN_S
        if again or not self._engine.said_bye:
            self._say(f"the session was closed with {closed.code} ({closed.reason or meaning}); connecting again")

    def _say(self, text: str) -> None:
        """Log it, but not again and again."""
        level = logging.DEBUG if text == self._said else logging.WARNING
        self._said = text
        logger.log(level, "robot %s: %s", self._engine.config.robot, text)
