"""A robot of a few lines that says exactly what a row tells it to, over WebSocket or long polling.

with WebSocketRobot(url, "hall-a", "r1") as robot:
    robot.hello()
    robot.say("ready", n=1)
    assignment = robot.expect("assign")
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL
from robot_gateway.conformance.checking import Broken, Message, brief, must, read_message

PATIENCE_S = 60.0
"""How long is waited for something that must come, unless another time is set."""


class Closed(Exception):
    """The gateway ended the session."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class RawRobot:
    """What both transports share. Messages that nobody waited for yet are kept in `inbox`.

    `patience_s`: how long is waited for something that must come; after it the waiting raises Broken.
    """

    capabilities: tuple[str, ...] = ("gpu",)

    def __init__(
        self, url: str, pool: str, robot: str, token: str | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.patience_s = patience_s
        self.url, self.pool, self.robot = url, pool, robot
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.boot = uuid.uuid4().hex[:12]
        self.epoch = 0
        self.welcome = Message()
        self.inbox: deque[Message] = deque()
        self._ids = itertools.count()
        self._seq = 0

    def hello(self, **changed: Any) -> Message:
        """Says hello and takes in the welcome."""
        self.say_hello(**changed)
        self.welcome = self.expect("welcome")
        self.epoch, self._seq = self.welcome["epoch"], 0
        return self.welcome

    def say_hello(self, **changed: Any) -> str:
        """Says hello; gives its id."""
        message = {
            "type": "hello",
            "id": self.next_id(),
            "slots": 2,
            "capabilities": list(self.capabilities),
            "holding": [],
            **changed,
        }
        self.send(json.dumps(message))
        return str(message["id"])

    def say(self, kind: str, **fields: Any) -> str:
        """Says one message under the next number; gives its id."""
        message = {"type": kind, "id": self.next_id(), "epoch": self.epoch, "seq": self.next_number(), **fields}
        self.send(json.dumps(message))
        return str(message["id"])

    def next_number(self) -> int:
        """The next `seq` of this session."""
        self._seq += 1
        return self._seq

    def next_id(self) -> str:
        """A message id that was never used."""
        return f"{self.boot}.{next(self._ids)}"

    def ask(self, kind: str, **fields: Any) -> Message:
        """Says one message and gives what is answered to it."""
        of = self.say(kind, **fields)
        return self.answer_to(of)

    def answer_to(self, of: str | None) -> Message:
        """What is answered to the message with this id."""
        return self.expect_where(lambda m: "of" in m and m["of"] == of, f"an answer to {of}")

    def expect(self, kind: str) -> Message:
        """The next message of that type; others are kept."""
        return self.expect_where(lambda m: m["type"] == kind, kind)

    def expect_where(self, wanted: Callable[[Message], bool], what: str = "another message") -> Message:
        """The next message that is wanted; others are kept."""
        for message in list(self.inbox):
            if wanted(message):
                self.inbox.remove(message)
                return message
        give_up = time.monotonic() + self.patience_s
        while time.monotonic() < give_up:
            for message in self.receive():
                self.inbox.append(message)
            for message in list(self.inbox):
                if wanted(message):
                    self.inbox.remove(message)
                    return message
        raise Broken(what, list(self.inbox)[-3:] or "nothing")

    def expect_closed(self) -> Closed:
        """How the gateway ends the session; messages before that are kept."""
        give_up = time.monotonic() + self.patience_s
        try:
            while time.monotonic() < give_up:
                self.inbox.extend(self.receive())
        except Closed as closed:
            return closed
        raise Broken("the session closed", list(self.inbox)[-3:] or "nothing")

    def fetch(self, path: str) -> Any:
        """The JSON at a path of the same gateway, with the same token. Raises Broken."""
        try:
            told = httpx.get(f"{self.url}{path}", headers=self.headers, timeout=self.patience_s)
        except httpx.TransportError as failed:
            raise Broken(f"an answer at {path}", f"{type(failed).__name__} ({failed})") from None
        must(told.status_code == 200, f"HTTP 200 at {path}", f"HTTP {told.status_code} {brief(told.text)}")
        return read_message(told.content)

    def send(self, text: str) -> None:
        """Sends a text as it is."""
        raise NotImplementedError

    def receive(self) -> list[Message]:
        """What has come, waiting a little. Raises Closed."""
        raise NotImplementedError

    def leave(self) -> None:
        """Goes without a word."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.leave()


class WebSocketRobot(RawRobot):
    """Over a WebSocket, opened at once."""

    def __init__(
        self, url: str, pool: str, robot: str, token: str | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        """Raises Broken where the handshake is refused or fails."""
        super().__init__(url, pool, robot, token, patience_s)
        self._stack = ExitStack()
        try:
            opening = connect(
                f"{url.replace('http', 'ws', 1)}/v1/pools/{pool}/robots/{robot}/session",
                subprotocols=[Subprotocol(PROTOCOL)],
                additional_headers=self.headers,
                compression=None,
                max_size=2**21,
                open_timeout=patience_s,
            )
        except InvalidStatus as refused:
            response = refused.response
            raise Broken("a WebSocket", f"HTTP {response.status_code} {brief(response.body or b'')}") from None
        except (InvalidHandshake, OSError) as failed:
            raise Broken("a WebSocket", f"{type(failed).__name__} ({failed})") from None
        self.connection: ClientConnection = self._stack.enter_context(opening)
        must(self.connection.subprotocol == PROTOCOL, f"the subprotocol {PROTOCOL}", self.connection.subprotocol)

    def send(self, text: str) -> None:
        """As in the base class."""
        try:
            self.connection.send(text)
        except ConnectionClosed as closed:
            raise _closed(closed) from None

    def receive(self) -> list[Message]:
        """As in the base class."""
        try:
            return [_object(read_message(self.connection.recv(timeout=1.0)))]
        except TimeoutError:
            return []
        except ConnectionClosed as closed:
            raise _closed(closed) from None

    def leave(self) -> None:
        """As in the base class."""
        self._stack.close()


class PollingRobot(RawRobot):
    """By long polling; what is sent goes with the next poll."""

    def __init__(
        self, url: str, pool: str, robot: str, token: str | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        super().__init__(url, pool, robot, token, patience_s)
        self.session = str(uuid.uuid4())
        self.seen = 0
        self.outbox: list[str] = []
        self._closed: Closed | None = None
        self.client = httpx.Client(base_url=url, headers=self.headers, timeout=patience_s)

    def send(self, text: str) -> None:
        """As in the base class."""
        self.outbox.append(text)

    def receive(self) -> list[Message]:
        """As in the base class."""
        if self._closed is not None:
            raise self._closed
        outbox, self.outbox = self.outbox, []
        answer = self.poll(outbox, wait_ms=1000)
        body = _object(read_message(answer.content))
        if answer.status_code == 409 and "closed" in body:
            raise Closed(body["closed"], body["reason"])
        must(answer.status_code == 200, "HTTP 200 to a poll", f"HTTP {answer.status_code} {brief(answer.text)}")
        fresh = body["messages"][max(0, len(body["messages"]) - (body["cursor"] - self.seen)) :]
        self.seen = body["cursor"]
        if "closed" in body:
            self._closed = Closed(body["closed"], body["reason"])
        return [_object(message) for message in fresh]

    def poll(self, messages: list[str], *, wait_ms: int = 0, **changed: Any) -> httpx.Response:
        """One poll with messages as they are. Raises Broken where nobody answers."""
        fields = {"session": self.session, "seen": self.seen, "wait_ms": wait_ms, **changed}
        body = json.dumps(fields)[:-1] + ', "messages": [' + ",".join(messages) + "]}"
        path = f"/v1/pools/{self.pool}/robots/{self.robot}/poll"
        try:
            return self.client.post(path, content=body, headers={"Content-Type": "application/json"})
        except httpx.TransportError as failed:
            raise Broken("an answer to a poll", f"{type(failed).__name__} ({failed})") from None

    def leave(self) -> None:
        """As in the base class."""
        self.client.close()


def _object(value: Any) -> Message:
    must(isinstance(value, Message), "an object", value)
    return Message(value)


def _closed(closed: ConnectionClosed) -> Closed:
    if closed.rcvd is None:
        return Closed(1006, "")
    return Closed(closed.rcvd.code, closed.rcvd.reason)
