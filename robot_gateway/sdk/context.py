"""What a handler is given about its attempt, and what it may say while it works."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from commands.messages import BODY_BYTES_MAX, Ack, Assign, Refused
from robot_gateway.sdk.endings import Ending, Why
from robot_gateway.sdk.errors import Stopped, error_of
from robot_gateway.sdk.outbox import Answer
from robot_gateway.sdk.wire import encode_json, shortened

_LEASE_IS_OVER: Final = frozenset({"not_current", "not_yours", "not_accepted", "unknown_task"})

Answered = Callable[[Answer], None]


class Link(Protocol):
    """Where a context's progress and checkpoints go."""

    def progress(self, percent: int | None, note: str | None) -> None:
        """Send it with the next heartbeat."""

    def checkpoint(self, value: bytes, on_answer: Answered) -> None:
        """Send a checkpoint (encoded JSON) until it is answered."""


class AttemptLink(Link, Protocol):
    """The same from the robot's side, where the end of a handler goes as well."""

    def ended(self, ending: Ending) -> None:
        """The handler is over."""


class AttemptInfo:
    """What is known about an attempt from its assignment. `checkpoint_number`: that of the last checkpoint, or 0."""

    Stopped = Stopped

    def __init__(self, assign: Assign, link: Link) -> None:
        saved = assign.checkpoint
        self._assign = assign
        self._link = link
        self._told: Why | None = None
        self._own: tuple[Any] | None = None
        self.checkpoint_number: int = 0 if saved is None else saved.number

    @property
    def last_checkpoint(self) -> Any:
        """The value that a former attempt saved, or this one since; None if there is none."""
        if self._own is not None:
            return self._own[0]
        return None if self._assign.checkpoint is None else self._assign.checkpoint.value

    @property
    def task(self) -> str:
        """The task's id."""
        return self._assign.task

    @property
    def attempt(self) -> int:
        """The number of this attempt."""
        return self._assign.attempt

    @property
    def kind(self) -> str:
        """What is to be done."""
        return self._assign.kind

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the task, and after a redrive."""
        return self._assign.idempotency_key

    @property
    def target(self) -> str | None:
        """The thing the work is done to; no other task of it runs meanwhile."""
        return self._assign.target

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the task."""
        return self._assign.labels

    @property
    def slot_cost(self) -> int:
        """How many slots the task takes."""
        return self._assign.slot_cost

    @property
    def failures(self) -> int:
        """How often the task failed before."""
        return self._assign.failures

    @property
    def lost(self) -> int:
        """How often an attempt of the task was lost before."""
        return self._assign.lost

    @property
    def lease_s(self) -> float:
        """The lease time in seconds."""
        return self._assign.lease_ms / 1000

    @property
    def run_within_s(self) -> float | None:
        """Seconds from the assignment on within which the task wants to be done, if it has such a deadline."""
        return None if self._assign.run_within_ms is None else self._assign.run_within_ms / 1000

    @property
    def traceparent(self) -> str | None:
        """The trace context (W3C) of the submission."""
        return self._assign.traceparent

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end: somebody cancelled, the lease is over, or the robot shuts down."""
        return self._told is not None

    @property
    def stop_reason(self) -> Why | None:
        """Why it should end: cancel, stop, own_deadline, shutdown; None while it should not."""
        return self._told

    def progress(self, percent: int | None = None, note: str | None = None) -> None:
        """Say how far the work is (whole per cent, 0 to 100) and a note of at most 200 characters.

        It travels with the next heartbeat; raises ValueError for another percentage.
        """
        if percent is not None and not 0 <= percent <= 100:
            raise ValueError(f"progress is a whole number from 0 to 100, not {percent}")
        self._link.progress(percent, None if note is None else shortened(note, 200))

    def _encoded(self, value: Any) -> bytes:
        encoded = encode_json(value)
        if len(encoded) > BODY_BYTES_MAX:
            raise error_of("too_large", f"a checkpoint may have {BODY_BYTES_MAX} bytes, this one has {len(encoded)}")
        return encoded

    def _saved(self, value: Any, answer: Answer | None) -> None:
        """What the answer to a checkpoint means for the handler."""
        if answer is None or (isinstance(answer, Refused) and answer.reason in _LEASE_IS_OVER):
            raise Stopped("the lease is over")
        if isinstance(answer, Refused):
            raise error_of(answer.reason, answer.text, field=answer.field)
        self.checkpoint_number += 1
        self._own = (value,)


_CONTEXTS = threading.Lock()
"""One lock for all contexts: what it guards takes a microsecond, and a lock for each would cost as much."""


def _after_fork() -> None:
    """A forked process has no thread that could release what was held."""
    global _CONTEXTS
    _CONTEXTS = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class TaskContext(AttemptInfo):
    """The first argument of handlers that run in a thread or a process."""

    def __init__(self, assign: Assign, link: Link) -> None:
        super().__init__(assign, link)
        self._event: threading.Event | None = None
        self._waiting: queue.SimpleQueue[Answer | None] | None = None
        self._lease_over = False

    @property
    def cancelled_event(self) -> threading.Event:
        """Set when the handler should end: `ctx.cancelled_event.wait(5)` instead of `time.sleep(5)`."""
        with _CONTEXTS:
            if self._event is None:
                self._event = self.bell()
                if self._told is not None:
                    self._event.set()
            return self._event

    def sleep(self, seconds: float) -> bool:
        """Wait so many seconds, or until the handler should end; whether it should."""
        return self.cancelled_event.wait(seconds)

    def checkpoint(self, value: Any) -> None:
        """Save `value` (JSON, up to 256 KiB) for the next attempt; returns when it is in the log.

        Raises Stopped when the lease is over, NotJson, or TooLarge. At most one a second: the next one waits.
        """
        encoded = self._encoded(value)
        answers = self.mailbox()
        with _CONTEXTS:
            if self._lease_over:
                raise Stopped("the lease is over")
            self._waiting = answers
        self._link.checkpoint(encoded, answers.put)
        answer = answers.get()
        with _CONTEXTS:
            self._waiting = None
        self._saved(value, answer)

    def bell(self) -> threading.Event:
        """Where the handler waits until it should end."""
        return threading.Event()

    def mailbox(self) -> queue.SimpleQueue[Answer | None]:
        """Where the handler waits for an answer."""
        return queue.SimpleQueue()

    def tell(self, why: Why) -> None:
        """Tell the handler to end; called by the SDK."""
        with _CONTEXTS:
            self._told = why
            self._lease_over = self._lease_over or why in ("stop", "own_deadline")
            if self._event is not None:
                self._event.set()
            if self._waiting is not None and self._lease_over:
                self._waiting.put(None)


class AsyncTaskContext(AttemptInfo):
    """The first argument of handlers that run in the event loop; everything here belongs to that loop."""

    def __init__(self, assign: Assign, link: Link) -> None:
        super().__init__(assign, link)
        self.cancelled_event: Final = asyncio.Event()

    async def sleep(self, seconds: float) -> bool:
        """Wait so many seconds, or until the handler should end; whether it should."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.cancelled_event.wait(), seconds)
        return self.cancelled

    async def checkpoint(self, value: Any) -> None:
        """Save `value` (JSON, up to 256 KiB) for the next attempt; returns when it is in the log.

        Raises Stopped when the lease is over, NotJson, or TooLarge. At most one a second: the next one waits.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()

        def settle(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._link.checkpoint(self._encoded(value), lambda answer: _call_in(loop, settle, answer))
        self._saved(value, await answered)

    def tell(self, why: Why) -> None:
        """Tell the handler to end; called by the SDK in the loop."""
        self._told = why
        self.cancelled_event.set()


def _call_in(loop: asyncio.AbstractEventLoop, settle: Callable[[Ack | Refused], None], answer: Answer) -> None:
    try:
        loop.call_soon_threadsafe(settle, answer)
    except RuntimeError:
        return  # the loop has ended, and nobody waits any more
