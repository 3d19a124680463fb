"""One session of a robot with a gateway by script: what a row makes the gateway say, and what it expects to hear.

It checks each message of the robot against the wire models and the numbering rules; what it finds wrong stands in the
gateway's `violations`. Heartbeats are answered by themselves unless a row switches that off.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from commands.messages import ROBOT_FRAME_BYTES_MAX, decode_robot_message
from robot_gateway.conformance.checking import Broken, Message, brief, must, read_message, same

if TYPE_CHECKING:
    from robot_gateway.conformance.fake_gateway import FakeGateway

Fields = dict[str, Any]


class Session:
    """One session of a robot, over either transport, as the script sees it."""

    transport: Literal["websocket", "polling"]

    def __init__(self, gateway: FakeGateway, robot: str, pool: str, headers: dict[str, str]) -> None:
        self.gateway = gateway
        self.robot = robot
        self.pool = pool
        self.headers = headers
        self.epoch = 0
        self.hello = Message()
        self.answer_beats = True
        self.draining = False
        self.ended = threading.Event()
        self.close_code: int | None = None
        self.beats: list[Message] = []
        self._seq = 0
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._new_beat = threading.Condition()

    # ---- what a row says ----

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
        self.draining = bool((message | fields)["draining"])
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
        accept = self.expect("accept", task=task, attempt=attempt)
        self.ack(accept, **(lease or {}))

    # ---- what a row expects ----

    def expect(self, kind: str, **fields: Any) -> Message:
        """The next message, heartbeats aside; it must be of this type and have these fields. Raises Broken."""
        wanted = f"{kind} {brief(fields)}" if fields else kind
        message = self.gateway.wait_for(self._received)
        if message is None:
            raise Broken(wanted, self.gateway.nothing)
        told = {name: message.get(name) for name in fields}
        must(message["type"] == kind and told == fields, wanted, message)
        return message

    def expect_of(self, *kinds: str) -> list[Message]:
        """The next messages, one of each of these types, in any order. Raises Broken."""
        messages = [self.expect_any() for _ in kinds]
        same(sorted(m["type"] for m in messages), sorted(kinds), "messages of the types")
        return sorted(messages, key=lambda m: kinds.index(m["type"]))

    def expect_any(self) -> Message:
        """The next message, heartbeats aside. Raises Broken."""
        message = self.gateway.wait_for(self._received)
        if message is None:
            raise Broken("a message", self.gateway.nothing)
        return message

    def expect_nothing(self, for_s: float) -> None:
        """No message but heartbeats for so long. Raises Broken."""
        message = self.next_within(for_s)
        must(message is None, f"no message for {for_s:g} s", message)

    def next_within(self, for_s: float) -> Message | None:
        """The next message, heartbeats aside, if one comes in so long."""
        try:
            return self._received.get(timeout=for_s)
        except queue.Empty:
            return None

    def expect_beat(self, matches: Callable[[Message], bool] = lambda _: True, what: str = "a heartbeat") -> Message:
        """A heartbeat that matches, from now on. Raises Broken."""
        with self._new_beat:
            seen = len(self.beats)
            deadline = time.monotonic() + self.gateway.patience_s
            while True:
                for beat in self.beats[seen:]:
                    if matches(beat):
                        return beat
                seen = len(self.beats)
                if not self._new_beat.wait(max(0.0, deadline - time.monotonic())):
                    raise Broken(what, self.beats[-1] if self.beats else "no heartbeat")

    def expect_named(self, *attempts: tuple[str, int]) -> Message:
        """A heartbeat, from now on, that names exactly these attempts. Raises Broken."""
        wanted = brief([{"task": task, "attempt": number} for task, number in attempts])
        return self.expect_beat(lambda beat: names(beat) == set(attempts), f"a heartbeat holding {wanted}")

    def ready(self) -> Message:
        """Welcome the robot and take its ready."""
        self.welcome()
        ready = self.expect("ready")
        self.ack(ready)
        return ready

    # ---- what a robot says ----

    def take(self, text: str | bytes) -> None:
        """A message of the robot: check it, answer heartbeats, keep the rest for the script."""
        if len(text) > ROBOT_FRAME_BYTES_MAX:
            self.gateway.violations.append(f"a message of {len(text)} bytes")
        try:
            decode_robot_message(text)
        except ValidationError as problem:
            self.gateway.violations.append(f"no message of the protocol: {brief(text)} ({_first(problem)})")
            return
        message = Message(read_message(text))
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
        answer = {"type": "heartbeat_ack", "of": beat["id"], "stop": [], "cancel": [], "draining": self.draining}
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
        if self._seq < expected or (self._seq > expected and self.transport == "websocket"):
            self.gateway.violations.append(f"seq {self._seq} instead of {expected}: {message}")


def names(holding: Message) -> set[tuple[str, int]]:
    """The attempts that a heartbeat or hello names."""
    return {(held["task"], held["attempt"]) for held in holding["holding"]}


def _first(problem: ValidationError) -> str:
    """The first thing that is wrong, in words."""
    wrong = problem.errors()[0]
    place = "/".join(str(part) for part in wrong["loc"])
    return f"/{place}: {wrong['msg']}"
