"""Robot sessions by long polling, for firmware without WebSockets: the same messages, fetched by the robot.

Messages to the robot are numbered 1, 2, 3 ... within the session; those up to `seen` are forgotten, later ones come
again with every poll until they are seen.
"""

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json, to_json

from commands.json_limits import unreadable
from commands.messages import ROBOT_FRAME_BYTES_MAX
from commands.reasons import Refusal
from projections.robot_cards import has_session
from robot_gateway.models import PollIn, model_of
from robot_gateway.problems import RefusedRequest
from robot_gateway.sessions import Session
from robot_gateway.tokens import Principal
from robot_gateway.websocket import robot_refusal

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway

SILENT: Final = 4008
POLL_BYTES_MAX: Final = 2 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class Poll:
    """One poll: what was asked, and its messages each as it was sent."""

    asked: PollIn
    messages: list[bytes]


def read_poll(raw: bytes) -> Poll | Refusal:
    """The poll in `raw`. What is wrong inside one robot message is said about that message alone, later."""
    try:
        value = from_json(raw)
    except ValueError:
        return unreadable(raw)
    asked = model_of(PollIn, value)
    return asked if isinstance(asked, Refusal) else Poll(asked, _as_sent(raw, asked))


def _as_sent(raw: bytes, asked: PollIn) -> list[bytes]:
    """The messages as text. Only a long poll can hold a message that is too large as it was sent."""
    if len(raw) > ROBOT_FRAME_BYTES_MAX:
        return _pieces(raw.decode())
    return [to_json(message, inf_nan_mode="constants") for message in asked.messages]


def _pieces(text: str) -> list[bytes]:
    """The members of the array `messages` in a JSON object, each as it stands."""
    decode, at = json.JSONDecoder().raw_decode, text.index("{") + 1
    pieces: list[bytes] = []
    while text[(at := _behind(text, at, " \t\r\n,"))] != "}":
        name, at = decode(text, at)
        at = _behind(text, at, " \t\r\n:")
        if name != "messages":
            _, at = decode(text, at)
            continue
        pieces, at = [], at + 1
        while text[(at := _behind(text, at, " \t\r\n,"))] != "]":
            _, end = decode(text, at)
            pieces.append(text[at:end].encode())
            at = end
        at += 1
    return pieces


def _behind(text: str, at: int, characters: str) -> int:
    while text[at] in characters:
        at += 1
    return at


class PollChannel:
    """Keeps messages until the robot has seen them. The `Channel` of a polled session."""

    def __init__(self, buffer_bytes: int) -> None:
        self.closed: tuple[int, str] | None = None
        self._buffer_bytes = buffer_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._waiting: asyncio.Event | None = None

    def send(self, message: bytes) -> None:
        """Keeps one message until it is seen."""
        self._last += 1
        self._kept.append((self._last, message))
        self._bytes += len(message)
        self._wake()

    def close(self, code: int, reason: str) -> None:
        """The next answer is the last one."""
        self.closed = (code, reason)
        self._wake()

    def waits_too_long(self, now: float) -> bool:
        """Whether more is kept than may."""
        return self._bytes > self._buffer_bytes

    def forget(self, seen: int) -> None:
        """The robot has taken in all messages up to number `seen`."""
        while self._kept and self._kept[0][0] <= seen:
            self._bytes -= len(self._kept.popleft()[1])

    async def wait(self, wait_s: float) -> bool:
        """Waits until there is something to say, at most `wait_s`. False where a newer poll has come meanwhile."""
        self._wake()
        mine = self._waiting = asyncio.Event()
        if not self._kept and self.closed is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(mine.wait(), wait_s)
        if self._waiting is not mine:
            return False
        self._waiting = None
        return True

    @property
    def is_waited_for(self) -> bool:
        """Whether a poll waits now."""
        return self._waiting is not None

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.set()

    def answer(self) -> bytes:
        """What is kept, as the body of an answer."""
        messages = b",".join(message for _, message in self._kept)
        tail = b""
        if self.closed is not None:
            tail = b"," + to_json({"closed": self.closed[0], "reason": self.closed[1]})[1:-1]
        return b'{"messages":[%b],"cursor":%d%b}' % (messages, self._last, tail)


class Polling:
    """All polled sessions of a gateway, by the session id that the robot chose."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._sessions: dict[tuple[str, str, str], tuple[Session, PollChannel]] = {}

    async def poll(self, principal: Principal, pool: str, robot: str, poll: Poll) -> bytes | Refusal:
        """One poll: takes in what the robot says, waits, and gives what is to be said to it."""
        asked = poll.asked
        refusal = robot_refusal(principal, pool, robot)
        if refusal is not None:
            return refusal
        key = (pool, robot, asked.session)
        found = self._sessions.get(key)
        if found is None:
            opened = await self._open(principal, key, asked)
            if isinstance(opened, Refusal):
                return opened
            found = opened
        session, channel = found
        if channel.closed is not None and channel.closed[0] == SILENT:
            del self._sessions[key]
            return await self._not_here(pool, robot)
        if session.principal != principal:
            return Refusal("forbidden", "the session was begun with another token")
        session.heard()
        channel.forget(asked.seen)
        for message in poll.messages:
            session.receive(message)
        wait_s = min(asked.wait_ms, session.heartbeat_every_ms) / 1000
        is_newest = await channel.wait(wait_s)
        if not is_newest:
            return b'{"messages":[],"cursor":%d}' % asked.seen
        if channel.closed is not None:
            self._sessions.pop(key, None)
            if channel.closed[0] == 4002:
                return Refusal("two_programs", channel.closed[1], extra={"closed": 4002})
        return channel.answer()

    async def _open(
        self, principal: Principal, key: tuple[str, str, str], asked: PollIn
    ) -> tuple[Session, PollChannel] | Refusal:
        """A new session begins with hello alone; anything else is about a session that is not here."""
        gateway, (pool, robot, _) = self._gateway, key
        if len(asked.messages) != 1 or asked.messages[0].get("type") != "hello":
            return await self._not_here(pool, robot)
        if not gateway.access.pools_are_made_on_first_use:
            refusal = await gateway.reads.pool_refusal(pool)
            if refusal is not None:
                return refusal
        full = gateway.sessions_full()
        if full is not None:
            return full
        self._forget_ended()
        channel = PollChannel(gateway.settings.send_buffer_bytes)
        found = (gateway.open_session(channel, pool, robot, principal), channel)
        return self._sessions.setdefault(key, found)

    async def _not_here(self, pool: str, robot: str) -> Refusal:
        """The session has ended, or lives on another gateway."""
        card = None
        with suppress(RefusedRequest):  # tables that cannot be read now do not know either
            card = await self._gateway.reads.robot_card(pool, robot)
        elsewhere = card is not None and has_session(card) and card.get("gateway") != self._gateway.name
        if elsewhere:
            return Refusal("wrong_gateway", "this session is not on this gateway")
        return Refusal("no_session", "there is no such session: say hello alone, with a new session id")

    def _forget_ended(self) -> None:
        """Closed sessions whose robot never polled again; their last words are gone with them after 6 windows."""
        now = time.monotonic()
        gone = [key for key, (session, _) in self._sessions.items() if session.ended and session.is_silent(now)]
        for key in gone:
            del self._sessions[key]
