"""Robot sessions, whatever carries them: what a robot may say when, and what is passed on to it.

Everything here runs on the gateway's loop, message by message, without awaiting. A report goes to the log exactly as
it was sent; a message for the robot goes out as the owner wrote it, with the position filled in.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from pydantic_core import to_json

from commands.messages import CLOSE_CODES, ROBOT_FRAME_BYTES_MAX, Heartbeat, Hello
from commands.reasons import REASONS, Refusal
from robot_gateway.heartbeats import HeartbeatGather
from robot_gateway.reading import id_in, read_message
from robot_gateway.tokens import Principal
from streams.port import LogFault

HELLO_WITHIN_S: Final = 10.0
SILENT_WINDOWS: Final = 6
REFUSALS_MAX: Final = 100
REFUSALS_WITHIN_S: Final = 60.0
MESSAGES_PER_S_MIN: Final = 100
MESSAGES_PER_SLOT_S: Final = 50
LOG_AWAY_RETRY_MS: Final = 1000
RACES: Final = frozenset({"withdrawn", "not_current"})
"""Refusals that no robot can avoid. These and retryable ones (send it again) do not count towards closing (4006)."""


class Channel(Protocol):
    """What carries a session."""

    def send(self, message: bytes) -> None:
        """Sends one message, or keeps it until it can be sent."""

    def close(self, code: int, reason: str) -> None:
        """Sends what is kept, then the end."""

    def waits_too_long(self, now: float) -> bool:
        """Whether the other side has not read for so long that it is to be closed."""


class Reporting(Protocol):
    """What a session needs of the gateway."""

    payload_max_bytes: int

    def report(self, session: "Session", message_id: str, raw: bytes) -> None:
        """Sends a robot's message to the log. Raises LogFault."""

    def register(self, session: "Session") -> None:
        """From now on messages for this session's hello or epoch reach it."""

    def unregister(self, session: "Session") -> None:
        """The session has ended."""


class Session:
    """One robot's connection. Instants are `time.monotonic` in seconds."""

    def __init__(
        self,
        gateway: Reporting,
        gather: HeartbeatGather,
        channel: Channel,
        pool: str,
        robot: str,
        principal: Principal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool, self.robot, self.principal, self.channel = pool, robot, principal, channel
        self.hello: str | None = None
        self.epoch: int | None = None
        self.ended = False
        self.window_ms = 5_000
        self.heartbeat_every_ms = 2_500
        self.prefix = b""
        self._gateway, self._gather, self._clock = gateway, gather, clock
        self._draining = False
        self._greeting = False  # a hello has no welcome yet
        self._seq = 0
        self._inline_max: int | None = None
        self._slots = 1
        self._began_at = self._heard_at = self._allowed_at = clock()
        self._allowance = float(MESSAGES_PER_S_MIN)
        self._refused_at: deque[float] = deque(maxlen=REFUSALS_MAX)
        self._stops: dict[tuple[str, int], dict[str, Any]] = {}
        self._cancels: dict[tuple[str, int], dict[str, Any]] = {}

    # ---- what the robot says ----

    def receive(self, raw: bytes) -> None:
        """One message of the robot."""
        if self.ended:
            return
        self.heard()
        refusal = self._size_problem(raw) or self._rate_problem(self._heard_at)
        message = None
        if refusal is None:
            message, refusal = read_message(raw)
        if refusal is None:
            refusal = self._turn_problem(message)
        if refusal is not None:
            self.refuse(message.id if message else id_in(raw), refusal)
        elif isinstance(message, Heartbeat):
            self._seq = message.seq or 0
            self._gather.add(self, message, len(raw))
        else:
            self._report(message, raw)

    def _report(self, message: Any, raw: bytes) -> None:
        if isinstance(message, Hello):
            if self.hello is None:
                self._allowance += MESSAGES_PER_SLOT_S * message.slots
            self.hello, self._greeting = message.id, True
            self._slots = message.slots
            self._inline_max = message.inline_max_bytes
            self._gateway.register(self)
        elif message.type == "update":
            self._slots = message.slots or self._slots
        try:
            self._gateway.report(self, message.id, raw)
        except LogFault:
            self.log_is_away(message.id)
            return
        if not isinstance(message, Hello):
            self._seq = message.seq

    def heard(self) -> None:
        """The robot has given a sign of being connected."""
        self._heard_at = self._clock()

    def _size_problem(self, raw: bytes) -> Refusal | None:
        if len(raw) <= ROBOT_FRAME_BYTES_MAX:
            return None
        return Refusal("too_large", f"a message has at most {ROBOT_FRAME_BYTES_MAX} bytes")

    def _rate_problem(self, now: float) -> Refusal | None:
        """At most the larger of 100 and 50 x slots messages a second, one second's worth at once."""
        per_s = max(MESSAGES_PER_S_MIN, MESSAGES_PER_SLOT_S * self._slots)
        self._allowance = min(per_s, self._allowance + (now - self._allowed_at) * per_s)
        self._allowed_at = now
        if self._allowance >= 1:
            self._allowance -= 1
            return None
        return Refusal("too_fast", f"at most {per_s} messages a second", retry_after_ms=1000)

    def _turn_problem(self, message: Any) -> Refusal | None:
        """Whether this message may be said now: hello first, the session's epoch, a growing number."""
        if isinstance(message, Hello):
            return None
        if self.epoch is None:
            return Refusal("hello_first", "say hello, and wait for welcome")
        if message.epoch != self.epoch:
            return Refusal("no_session", f"the epoch of this session is {self.epoch}: say hello again", "/epoch")
        if message.seq <= self._seq:
            return Refusal("invalid_field", f"the number must be above {self._seq}, the last one", "/seq")
        return None

    # ---- what the robot is told ----

    def refuse(self, of: str | None, refusal: Refusal) -> None:
        """Says no to one message; a hundred of them within a minute end the session."""
        message = {
            "type": "refused",
            "of": of,
            "reason": refusal.reason,
            "text": refusal.text,
            "field": refusal.field,
            "retry": REASONS[refusal.reason].retryable,
            "retry_after_ms": refusal.retry_after_ms,
        }
        required = ("of", "retry")
        self._send({name: value for name, value in message.items() if value is not None or name in required})
        self._count_refusal(refusal.reason)

    def log_is_away(self, of: str) -> None:
        """A message could not be written to the log: nothing is lost, the robot sends it again."""
        text = "the log does not take it now"
        self.refuse(of, Refusal("log_unavailable", text, retry_after_ms=LOG_AWAY_RETRY_MS))

    def heartbeat_in_log(self, ids: list[str], named: frozenset[tuple[str, int]]) -> None:
        """Answers heartbeats; stops and cancels are said again while their attempts are still named."""
        ack = {
            "type": "heartbeat_ack",
            "of": ids[0],
            "stop": _still_named(self._stops, named),
            "cancel": _still_named(self._cancels, named),
            "draining": self._draining,
            "heartbeat_every_ms": self.heartbeat_every_ms,
        }
        for of in ids:
            ack["of"] = of
            self._send(ack)

    def deliver(self, message: dict[str, Any], position: str) -> None:
        """Passes on what the owner says to this session."""
        kind = message.get("type")
        if kind == "ack":
            message["position"] = position
        elif kind == "welcome":
            self._welcomed(message, position)
        elif kind == "assign":
            self._with_urls(message)
        elif kind == "stop":
            self._stops[message["task"], message["attempt"]] = message
        elif kind == "cancel":
            self._cancels[message["task"], message["attempt"]] = message
        elif kind == "session_note":
            self._noted(message)
            return
        elif kind == "superseded" and self._greeting:
            return  # by this very session, which has said hello again
        closed = message.pop("closed", None)
        self._send(message)
        if kind == "refused":
            self._count_refusal(str(message.get("reason")))
        if kind == "superseded":
            closed = 4001
        if closed is not None:
            self.close(closed, str(message.get("reason") or CLOSE_CODES[closed][0]))

    def _welcomed(self, message: dict[str, Any], position: str) -> None:
        message.setdefault("now_at", time.time_ns() // 1_000_000)
        message["position"] = position
        message["payload_max_bytes"] = self._gateway.payload_max_bytes
        self.window_ms = message["window_ms"]
        self.heartbeat_every_ms = message["heartbeat_every_ms"]
        self._draining = message["draining"]
        self._greeting = False
        if message["epoch"] != self.epoch:
            self._gateway.unregister(self)
            self.epoch, self._seq = message["epoch"], 0
            self._stops, self._cancels = {}, {}
            self._gateway.register(self)

    def _noted(self, note: dict[str, Any]) -> None:
        """Something that the gateway itself must know."""
        self._draining = note.get("draining", self._draining)
        self.window_ms = note.get("window_ms", self.window_ms)
        self.heartbeat_every_ms = note.get("heartbeat_every_ms", self.heartbeat_every_ms)
        if note.get("closed") is not None:
            self.close(note["closed"], CLOSE_CODES[note["closed"]][0])

    def _with_urls(self, assign: dict[str, Any]) -> None:
        """Bodies longer than the robot wants inline are named by their path on this gateway."""
        if self._inline_max is None:
            return
        path = f"/v1/pools/{self.pool}/tasks/{assign['task']}"
        if len(to_json(assign.get("payload"))) > self._inline_max:
            del assign["payload"]
            assign["payload_url"] = f"{path}/payload"
        checkpoint = assign.get("checkpoint")
        if checkpoint and len(to_json(checkpoint.get("value"))) > self._inline_max:
            del checkpoint["value"]
            checkpoint["url"] = f"{path}/checkpoints/{checkpoint['number']}"

    def _send(self, message: dict[str, Any]) -> None:
        if not self.ended:
            self.channel.send(to_json(message))

    def _count_refusal(self, reason: str) -> None:
        if reason in RACES or (reason in REASONS and REASONS[reason].retryable):
            return
        now = self._clock()
        self._refused_at.append(now)
        if len(self._refused_at) == REFUSALS_MAX and now - self._refused_at[0] <= REFUSALS_WITHIN_S:
            self.close(4006, CLOSE_CODES[4006][0])

    # ---- its end ----

    def overdue(self, now: float) -> tuple[int, str] | None:
        """The close code and reason if the robot has been silent or slow for too long, else None."""
        if self.hello is None and now - self._began_at > HELLO_WITHIN_S:
            return 4000, CLOSE_CODES[4000][0]
        if self.is_silent(now):
            return 4008, CLOSE_CODES[4008][0]
        if self.channel.waits_too_long(now):
            return 4009, CLOSE_CODES[4009][0]
        return None

    def is_silent(self, now: float) -> bool:
        """Whether nothing was heard for six windows."""
        return now - self._heard_at > SILENT_WINDOWS * self.window_ms / 1000

    def close(self, code: int, reason: str) -> None:
        """Ends the session from our side."""
        if not self.ended:
            self.end()
            self.channel.close(code, reason)

    def end(self) -> None:
        """The session is over; what is held stays held until its lease ends."""
        self.ended = True
        self._gateway.unregister(self)
        self._gather.forget(self)


def _still_named(
    notices: dict[tuple[str, int], dict[str, Any]], named: frozenset[tuple[str, int]]
) -> list[dict[str, Any]]:
    """Those about attempts that the robot still names; the others are forgotten."""
    if not notices:
        return []
    for key in [key for key in notices if key not in named]:
        del notices[key]
    return [{name: value for name, value in notice.items() if name != "type"} for notice in notices.values()]
