"""A pool on a clock that stands: no time passes but what a test lets pass, so what follows can be told to the window.

with Hall() as hall:
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    hall.wait(20)
    assert hall.state("t1") == "WAITING"

Everything is asked and said over HTTP and WebSocket. Windows are 5 s and leases 15 s, as they are by default.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import pytest

from commands.events import Event, decode_event
from robot_gateway.conformance.checking import Message
from robot_gateway.conformance.raw_robot import WebSocketRobot
from streams import owner
from streams.memory_log import MemoryLog
from streams.owner import OwnerSettings, PartitionOwner
from streams.port import Topic, partition_of
from streams.position import Position
from streams.processor import Processor
from tests.support.site import Site, until
from tests.support.virtual_clock import VirtualClock

POOL = "hall"
PATH = f"/v1/pools/{POOL}"
WINDOW_S, LEASE_S = 5.0, 15.0
STEP_S = WINDOW_S / 2
TURNS = 3
"""Turns of an owner after which it has seen the time, and what was said before it."""


class Hall:
    """`defaults` are settings of the pool, in log units."""

    def __init__(self, **defaults: Any) -> None:
        self.clock = VirtualClock(stands=True)
        self.site = Site(partitions=1, defaults=defaults, heartbeat_gather_ms=10, wall=self.clock.true_wall)
        self._turns = 0
        self._may_go, self._stands = threading.Event(), False
        self._may_go.set()
        self._parts = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            patch = parts.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(owner, "IDLE_WAIT_S", 0.005)
            patch.setattr(PartitionOwner, "step", self._counted(PartitionOwner.step))
            parts.enter_context(self.clock)
            parts.enter_context(self.site)
            parts.callback(self._end_owner)
            parts.callback(self._may_go.set)
            self.site.client.post("/v1/pools", json={"pool": POOL}).raise_for_status()
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *rest: object) -> None:
        self._parts.close()

    # ---- who takes part ----

    def robot(self, name: str, slots: int = 1, capabilities: tuple[str, ...] = (), **hello: Any) -> Hand:
        """A robot that is ready for as many tasks as it has slots; it leaves when the hall is closed."""
        made = Hand(self.site.url, name)
        self._parts.callback(made.leave)
        made.hello(slots=slots, capabilities=list(capabilities), **hello)
        made.ask("ready", n=slots)
        return made

    def next_owner(self) -> None:
        """The process that decides ends, and another begins."""
        self._end_owner()
        self.site.processor = Processor(MemoryLog(self.site.store), OwnerSettings(name="other", software="test"))
        self.site.processor.start()
        until(lambda: self.site.processor.why_not_ready() is None, "the next owner")

    def _end_owner(self) -> None:
        self.site.processor.close()

    # ---- time ----

    def wait(self, seconds: float, *beating: Hand) -> None:
        """Time passes, half a window at a time; these robots beat meanwhile and name what they hold."""
        while seconds > 0:
            answers = [(robot, robot.say_heartbeat()) for robot in beating]
            for robot, of in answers:
                robot.answer_to(of)
            if answers:
                self.settle()  # a beat counts up to the window in which the owner takes it
            self.clock.advance(min(STEP_S, seconds))
            self.settle()
            seconds -= STEP_S

    def settle(self) -> None:
        """Waits until the owner has seen what time it is, and has done what follows."""
        enough = self._turns + TURNS
        until(lambda: self._turns >= enough, "the owner's turns")

    @contextmanager
    def owner_stands_still(self) -> Iterator[None]:
        """What is said meanwhile is in the log before the owner sees it, or how late it is."""
        self._may_go.clear()
        until(lambda: self._stands, "the owner to stand still")
        yield
        self._may_go.set()
        self.settle()

    def _counted(self, step: Any) -> Any:
        def counted(one: PartitionOwner) -> float | None:
            self._stands = not self._may_go.is_set()
            self._may_go.wait()
            self._stands = False
            pause_s: float | None = step(one)
            self._turns += 1
            return pause_s

        return counted

    # ---- what is asked, and what happened ----

    def ask(self, method: str, path: str, status: int | tuple[int, ...] = (200, 201), **body: Any) -> dict[str, Any]:
        """A request about the pool, and its answer, which has that status."""
        answer = self.site.client.request(method, PATH + path, json=body or None)
        assert answer.status_code in (status if isinstance(status, tuple) else (status,)), answer.text
        return dict(answer.json())

    def submit(self, task: str, **fields: Any) -> dict[str, Any]:
        """One task, and what was answered."""
        return self.ask("POST", "/tasks", **{"id": task, "kind": "weld", **fields})

    def verb(self, task: str, verb: str, **body: Any) -> dict[str, Any]:
        """What an operator does with a task."""
        return self.ask("POST", f"/tasks/{task}/{verb}", **body)

    def task(self, task: str) -> dict[str, Any]:
        """A task as it stands after everything that is in the log."""
        return self._as_it_stands(f"/tasks/{task}")

    def state(self, task: str) -> str:
        """Its state."""
        return str(self.task(task)["state"])

    def why(self, task: str) -> dict[str, Any]:
        """What holds it."""
        return self.ask("GET", f"/tasks/{task}/why")

    def history(self, task: str) -> list[dict[str, Any]]:
        """Its events, as they are shown."""
        self.task(task)
        return list(self.ask("GET", f"/tasks/{task}/history")["items"])

    def robot_card(self, robot: str) -> dict[str, Any]:
        """A robot as it stands after everything that is in the log."""
        return self._as_it_stands(f"/robots/{robot}")

    def _as_it_stands(self, path: str) -> dict[str, Any]:
        after = Position(self.site.store.log_id, {0: self.records()[-1].offset + 1})
        return self.ask("GET", f"{path}?after={after}")

    def records(self) -> list[Any]:
        """All events, as they are stored."""
        return list(self.site.store.place(Topic.EVENTS, partition_of(POOL, self.site.store.partitions)).records)

    def events(self, *names: str) -> list[Any]:
        """What is in the log about the pool, of these types."""
        found: list[Event] = [decode_event(record.value) for record in self.records() if record.key == POOL]
        return [event for event in found if event.name in names]

    def since(self, began: int, *names: str) -> list[tuple[float, str]]:
        """Seconds since an instant, and the task, of each event of these types."""
        return [((event.occurred_at - began) / 1_000, event.task) for event in self.events(*names)]


class Hand(WebSocketRobot):
    """A robot that does what it is told. `holds`: the attempts that it works on, which its heartbeats name."""

    def __init__(self, url: str, robot: str) -> None:
        super().__init__(url, POOL, robot)
        self.holds: dict[str, int] = {}
        self.connection.close_timeout = 0.1

    def accept(self, task: str) -> int:
        """Waits for the assignment and takes it; the attempt."""
        given = self.expect_where(lambda m: m["type"] == "assign" and m["task"] == task, f"the assignment of {task}")
        assert self.ask("accept", task=task, attempt=given["attempt"])["type"] == "ack"
        self.holds[task] = given["attempt"]
        return self.holds[task]

    def complete(self, task: str, attempt: int | None = None, **more: Any) -> Message:
        """It is done."""
        return self._end("complete", task, attempt, **more)

    def fail(self, task: str, failure_class: str = "retryable") -> Message:
        """It went wrong."""
        error = {"type": "jam", "message": "it is stuck"}
        return self._end("fail", task, None, **{"class": failure_class}, error=error)

    def stopped(self, task: str, attempt: int | None = None) -> Message:
        """Its work has ended because it was told to."""
        return self._end("stopped", task, attempt, why="stop")

    def _end(self, kind: str, task: str, attempt: int | None, **more: Any) -> Message:
        held = self.holds.pop(task, 0)
        return self.ask(kind, task=task, attempt=attempt or held, **more)

    def say_heartbeat(self) -> str:
        """It lives, and works on what it holds; the message's id."""
        holding = [{"task": task, "attempt": attempt} for task, attempt in self.holds.items()]
        return self.say("heartbeat", holding=holding)

    def beat(self) -> Message:
        """The same, and its answer."""
        return self.answer_to(self.say_heartbeat())
