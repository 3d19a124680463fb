"""A robot over WebSocket that works as fast as it is told to, and writes down what it did and when."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed

from robot_gateway.conformance.checking import Message
from robot_gateway.conformance.raw_robot import WebSocketRobot

CEILING_S = 60.0
End = Callable[["Worker", Message], None]


class Worker(WebSocketRobot):
    """`order`: tasks in the order in which they were assigned; `worked`: (task, target, began, ended) of each attempt.

    A task begins with the ack of its accept; `end` says what becomes of it then (it is completed at once). It speaks no
    faster than a robot may.
    """

    def __init__(self, url: str, pool: str, robot: str, slots: int, end: End | None = None, **hello: Any) -> None:
        super().__init__(url, pool, robot)
        self.order: list[str] = []
        self.worked: list[tuple[str, str | None, float, float]] = []
        self.finished = 0
        self._end = end or Worker.complete
        self._every_s, self._last = 1.1 / max(100, 50 * slots), 0.0
        self._asked: dict[str, tuple[str, Message]] = {}
        self._began: dict[str, float] = {}
        self.hello(slots=slots, **{"capabilities": [], **hello})
        self.say("ready", n=slots)

    def work_until(self, enough: Callable[[], bool]) -> None:
        """Takes and ends tasks until it is enough; gives up when nothing has come for a long time."""
        give_up = time.monotonic() + CEILING_S
        while not enough():
            assert time.monotonic() < give_up, f"{self.robot} ended {self.finished} tasks, that is not enough"
            try:
                self._take(json.loads(self.connection.recv(timeout=0.05)))
                give_up = time.monotonic() + CEILING_S
            except TimeoutError:
                continue
            except ConnectionClosed as closed:
                raise AssertionError(f"{self.robot} was closed: {closed}") from closed

    def complete(self, given: Message) -> None:
        """The end of a task that went well."""
        self.final("complete", given)

    def fail(self, given: Message) -> None:
        """The end of a task that may go well another time."""
        error = {"type": "link", "message": "the link is down"}
        self.final("fail", given, **{"class": "retryable"}, error=error)

    def final(self, kind: str, given: Message, **more: Any) -> None:
        """The last word about an attempt; the work ends before it is said."""
        row = (given["task"], given.get("target"), self._began.pop(given["task"]), time.monotonic())
        self.worked.append(row)
        self._about(kind, given, **more)

    def _take(self, message: Message) -> None:
        if message["type"] == "assign":
            self.order.append(message["task"])
            self._about("accept", message)
            return
        kind, given = self._asked.pop(str(message.get("of")), ("", Message()))
        if kind == "accept" and message["type"] == "ack":
            self._began[given["task"]] = time.monotonic()
            self._end(self, given)
        elif kind:
            self.finished += 1

    def say(self, kind: str, **fields: Any) -> str:
        """As in the base class, in its time: what is said too fast is refused, and `ready` is not said again."""
        time.sleep(max(0.0, self._last + self._every_s - time.monotonic()))
        self._last = time.monotonic()
        return super().say(kind, **fields)

    def _about(self, kind: str, given: Message, **more: Any) -> None:
        of = self.say(kind, task=given["task"], attempt=given["attempt"], **more)
        self._asked[of] = (kind, given)
