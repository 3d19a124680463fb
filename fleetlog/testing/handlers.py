"""Handlers at work on virtual time: the user's own functions, with the SDK's own context and endings."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from commands.messages import Assign
from fleetlog.testing.loops import SHORTEST_S, VirtualLoop
from fleetlog.testing.strands import Gone, Strand
from robot_gateway.sdk.context import Answered, TaskContext
from robot_gateway.sdk.endings import Ending, Why, completed, raised
from robot_gateway.sdk.holdings import Attempt
from robot_gateway.sdk.outbox import Answer
from robot_gateway.sdk.runs import AsyncRun, Handler

if TYPE_CHECKING:
    from fleetlog.testing.robots import HandlerRobot

HERE = threading.local()
"""`HERE.run`: the handler that runs in this thread."""


class HandlerRun:
    """One handler at work, for `holdings.Run`, and where its context sends to. Subclasses say how it runs."""

    def __init__(self, robot: "HandlerRobot", handler: Handler, attempt: Attempt, assign: Assign) -> None:
        self.robot, self.handler, self.attempt, self.assign = robot, handler, attempt, assign
        self.work = robot.begin(attempt, assign)
        self.ending: Ending | None = None
        self._process = robot.process
        self._strand = Strand(self._run, f"{assign.kind} (task {assign.task}, attempt {assign.attempt})")
        self._over = self._woken = False
        self.wake()

    # ---- turns ----

    def wake(self) -> None:
        """It goes on when what happens now has happened."""
        if not self._woken and not self._over:
            self._woken = True
            self._process.later(0.0, self._go_on)

    def rest(self, is_so: Callable[[], bool], seconds: float | None) -> bool:
        """Called by the handler: the world goes on until something is so, or so many virtual seconds are over."""
        over = threading.Event()

        def ring() -> None:
            over.set()
            self.wake()

        timer = None if seconds is None else self._process.later(seconds, ring)
        while not is_so() and not over.is_set():
            self._strand.rest()
        if timer is not None:
            timer.cancel()
        return is_so()

    def seconds(self) -> float:
        """The virtual time."""
        return self.robot.scheduler.now_ms / 1_000

    def _go_on(self) -> None:
        self._woken = False
        if self._over:
            return
        self._strand.go_on()
        if self._strand.over:
            self._end(self.ending or Ending("stopped"))

    def _run(self) -> None:
        HERE.run = self
        takes_s = self.robot.takes_s.get(self.assign.kind, 0.0)
        if takes_s:
            self.rest(lambda: False, takes_s)
        self.perform()

    def _end(self, ending: Ending) -> None:
        if not self._over:
            self._over = True
            self.robot.has_ended(self, ending)

    def perform(self) -> None:
        """Runs the handler and sets `ending`."""
        raise NotImplementedError

    # ---- what the robot says to it: `holdings.Run` ----

    def cancel(self, why: Why) -> None:
        """Asks it to end."""
        raise NotImplementedError

    def kill(self, why: Why) -> None:
        """Ends it, by force where the product could."""
        raise NotImplementedError

    def until(self, deadline: float) -> None:
        """Nothing ends it from outside: a robot that is paused does not work here."""

    @property
    def is_here(self) -> bool:
        """Whether the caller is this handler."""
        return self._strand.is_here

    def vanish(self) -> None:
        """Its robot was killed: it ends where it rests, and is not heard any more."""
        self._over = True
        self._strand.end()

    # ---- what it says to the robot: `context.Link` ----

    def progress(self, percent: int | None, note: str | None) -> None:
        """As in `context.Link`."""
        self.attempt.note_progress(percent, note)

    def checkpoint(self, value: bytes, on_answer: Answered) -> None:
        """As in `context.Link`."""
        self.robot.save_checkpoint(self.attempt, value, on_answer)


# ---- functions ----


class Waits(Protocol):
    """Whose handler rests."""

    def rest(self, is_so: Callable[[], bool], seconds: float | None) -> bool:
        """As in `HandlerRun`."""

    def wake(self) -> None:
        """As in `HandlerRun`."""


class VirtualBell(threading.Event):
    """Waits on virtual time."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self._waits = waits

    def wait(self, timeout: float | None = None) -> bool:
        """As of any event, in virtual seconds. Time goes on a little even for a handler that does not listen."""
        if self.is_set() and (timeout is None or timeout > 0):
            self._waits.rest(lambda: False, SHORTEST_S)
        return self._waits.rest(self.is_set, timeout)

    def set(self) -> None:
        """And wakes who waits."""
        super().set()
        self._waits.wake()


class VirtualMailbox(queue.SimpleQueue[Answer | None]):
    """Waits for an answer on virtual time."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self._waits = waits

    def put(self, item: Answer | None, block: bool = True, timeout: float | None = None) -> None:
        """And wakes who waits."""
        super().put(item)
        self._waits.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Answer | None:
        """Until there is one."""
        self._waits.rest(lambda: not self.empty(), None)
        return super().get()


class VirtualContext(TaskContext):
    """The SDK's context, on virtual time."""

    def __init__(self, assign: Assign, run: HandlerRun) -> None:
        super().__init__(assign, run)
        self._run = run

    def bell(self) -> threading.Event:
        """As in `TaskContext`."""
        return VirtualBell(self._run)

    def mailbox(self) -> queue.SimpleQueue[Answer | None]:
        """As in `TaskContext`."""
        return VirtualMailbox(self._run)


class FunctionRun(HandlerRun):
    """A function. As in the product, only one that was made for a process can be ended by force."""

    def __init__(self, robot: "HandlerRobot", handler: Handler, attempt: Attempt, assign: Assign) -> None:
        self._context = VirtualContext(assign, self)
        super().__init__(robot, handler, attempt, assign)

    def perform(self) -> None:
        """As in `HandlerRun`."""
        try:
            self.ending = completed(self.handler.call(self._context, self.assign.payload))
        except Gone:
            raise
        except BaseException as problem:
            self.ending = raised(problem, self.handler.fatal)

    def cancel(self, why: Why) -> None:
        """As in `HandlerRun`."""
        self._context.tell(why)
        self.wake()

    def kill(self, why: Why) -> None:
        """As in `HandlerRun`."""
        if self.handler.run_in == "process" and not self.is_here:
            self._strand.end()
            self._end(Ending("stopped"))
        else:
            self.cancel(why)


# ---- coroutines ----


class CoroutineRun(HandlerRun):
    """A coroutine: the SDK's own `AsyncRun` in an event loop on virtual time."""

    def __init__(self, robot: "HandlerRobot", handler: Handler, attempt: Attempt, assign: Assign) -> None:
        self._loop = VirtualLoop(self)
        here: Any = self
        self._inner = AsyncRun(handler, assign, self, here, self._ended)
        super().__init__(robot, handler, attempt, assign)

    def perform(self) -> None:
        """As in `HandlerRun`."""
        self._inner.begin(None)
        try:
            self._loop.run_forever()
        finally:
            for left in asyncio.all_tasks(self._loop):
                left._log_destroy_pending = False  # type: ignore[attr-defined]
            self._loop.close()

    def call(self, what: Callable[..., None], *arguments: Any) -> None:
        """As of `runs.EventLoop`."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)

    def cancel(self, why: Why) -> None:
        """As in `HandlerRun`."""
        self._inner.cancel(why)

    def kill(self, why: Why) -> None:
        """As in `HandlerRun`."""
        self._inner.kill(why)

    def _ended(self, ending: Ending) -> None:
        self.ending = ending
        self._loop.stop()


def run_of(robot: "HandlerRobot", handler: Handler, attempt: Attempt, assign: Assign) -> HandlerRun:
    """The handler of an assignment begins."""
    kind = CoroutineRun if handler.run_in == "async" else FunctionRun
    return kind(robot, handler, attempt, assign)
