"""A robot of a few lines that says exactly what a test tells it to, over WebSocket or long polling.

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
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL

CEILING_S = 60.0
Message = dict[str, Any]


class Closed(Exception):
    """The gateway ended the session."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class RawRobot:
    """What both transports share. Messages that a test did not wait for are kept in `inbox`."""

    def __init__(self, url: str, pool: str, robot: str, token: str | None = None) -> None:
        self.url, self.pool, self.robot = url, pool, robot
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.boot = uuid.uuid4().hex[:12]
        self.epoch = 0
        self.welcome: Message = {}
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
            "capabilities": ["gpu"],
            "holding": [],
            **changed,
        }
        self.send(json.dumps(message))
        return str(message["id"])

    def say(self, kind: str, **fields: Any) -> str:
        """Says one message under the next number; gives its id."""
        self._seq += 1
        message = {"type": kind, "id": self.next_id(), "epoch": self.epoch, "seq": self._seq, **fields}
        self.send(json.dumps(message))
        return str(message["id"])

    def next_id(self) -> str:
        """A message id that was never used."""
        return f"{self.boot}.{next(self._ids)}"

    def ask(self, kind: str, **fields: Any) -> Message:
        """Says one message and gives what is answered to it."""
        of = self.say(kind, **fields)
        return self.expect_where(lambda m: m.get("of") == of)

    def expect(self, kind: str) -> Message:
        """The next message of that type; others are kept."""
        return self.expect_where(lambda m: m["type"] == kind)

    def expect_where(self, wanted: Callable[[Message], bool]) -> Message:
        """The next message that is wanted; others are kept."""
        for message in list(self.inbox):
            if wanted(message):
                self.inbox.remove(message)
                return message
        give_up = time.monotonic() + CEILING_S
        while time.monotonic() < give_up:
            for message in self.receive():
                self.inbox.append(message)
            for message in list(self.inbox):
                if wanted(message):
                    self.inbox.remove(message)
                    return message
        raise AssertionError(f"nothing of that kind came; kept are {list(self.inbox)[-5:]}")

    def expect_closed(self) -> Closed:
        """How the gateway ends the session; messages before that are kept."""
        give_up = time.monotonic() + CEILING_S
        try:
            while time.monotonic() < give_up:
                self.inbox.extend(self.receive())
        except Closed as closed:
            return closed
        raise AssertionError("the session was not closed")

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

    def __init__(self, url: str, pool: str, robot: str, token: str | None = None) -> None:
        super().__init__(url, pool, robot, token)
        self._stack = ExitStack()
        opening = connect(
            f"{url.replace('http', 'ws', 1)}/v1/pools/{pool}/robots/{robot}/session",
            subprotocols=[Subprotocol(PROTOCOL)],
            additional_headers=self.headers,
            compression=None,
            max_size=2**21,
            open_timeout=CEILING_S,
        )
        self.connection: ClientConnection = self._stack.enter_context(opening)

    def send(self, text: str) -> None:
        self.connection.send(text)

    def receive(self) -> list[Message]:
        try:
            return [json.loads(self.connection.recv(timeout=1.0))]
        except TimeoutError:
            return []
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            raise Closed(code, closed.rcvd.reason if closed.rcvd else "") from None

    def leave(self) -> None:
        self._stack.close()


class PollingRobot(RawRobot):
    """By long polling; what is sent goes with the next poll."""

    def __init__(self, url: str, pool: str, robot: str, token: str | None = None) -> None:
        super().__init__(url, pool, robot, token)
        self.session = str(uuid.uuid4())
        self.seen = 0
        self.outbox: list[str] = []
        self._closed: Closed | None = None
        self.client = httpx.Client(base_url=url, headers=self.headers, timeout=CEILING_S)

    def send(self, text: str) -> None:
        self.outbox.append(text)

    def receive(self) -> list[Message]:
        if self._closed is not None:
            raise self._closed
        outbox, self.outbox = self.outbox, []
        answer = self.poll(outbox, wait_ms=1000)
        if answer.status_code == 409 and "closed" in answer.json():
            raise Closed(answer.json()["closed"], answer.json()["reason"])
        assert answer.status_code == 200, answer.text
        body = answer.json()
        fresh = body["messages"][max(0, len(body["messages"]) - (body["cursor"] - self.seen)) :]
        self.seen = body["cursor"]
        if "closed" in body:
            self._closed = Closed(body["closed"], body["reason"])
        return list(fresh)

    def poll(self, messages: list[str], *, wait_ms: int = 0, **changed: Any) -> httpx.Response:
        """One poll with messages as they are."""
        fields = {"session": self.session, "seen": self.seen, "wait_ms": wait_ms, **changed}
        body = json.dumps(fields)[:-1] + ', "messages": [' + ",".join(messages) + "]}"
        path = f"/v1/pools/{self.pool}/robots/{self.robot}/poll"
        return self.client.post(path, content=body, headers={"Content-Type": "application/json"})

    def leave(self) -> None:
        self.client.close()
