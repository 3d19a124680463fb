"""Handlers at work in threads and in an event loop, and where the bodies of an assignment come from."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from commands.messages import Assign
from robot_gateway.sdk.context import AsyncTaskContext, Link, TaskContext
from robot_gateway.sdk.endings import Ending, Why, completed, raised
from robot_gateway.sdk.errors import REJECT_TEXT_MAX, Reject
from robot_gateway.sdk.websocket import bearer

logger = logging.getLogger("fleetlog")

FETCH_TIMEOUT_S: Final = 30.0
RunIn = Literal["thread", "process", "async", "command"]
Check = Callable[[Assign], object]


@dataclass(frozen=True, slots=True)
class Handler:
    """What a robot does for a kind: a function, where it runs, and the exceptions that are fatal.

    `command`: for run_in="command" the shell command; `call` is then not used. `check` is asked before an assignment
    is accepted.
    """

    kind: str
    call: Callable[..., Any]
    run_in: RunIn
    fatal: tuple[type[BaseException], ...] = ()
    command: str = ""
    check: Check | None = None


def objection_of(handlers: Mapping[str, Handler], assign: Assign) -> tuple[str, str] | None:
    """Why a robot does not take the assignment: it has no handler, or the handler's check says so."""
    handler = handlers.get(assign.kind)
    if handler is None:
        return "cannot", f"this robot has no handler for {assign.kind}"
    try:
        if handler.check is not None:
            handler.check(assign)
    except Reject as rejected:
        return rejected.reason, rejected.text
    except Exception as fault:
        logger.exception("the check of %s failed; the assignment is rejected", assign.kind)
        return "other", f"{type(fault).__name__}: {fault}"[:REJECT_TEXT_MAX]
    return None


class ThreadRun:
    """A handler in a thread: it can be asked to end, not be forced."""

    def __init__(self, handler: Handler, assign: Assign, link: Link) -> None:
        self._handler = handler
        self._assign = assign
        self._context = TaskContext(assign, link)

    def cancel(self, why: Why) -> None:
        """Tell the handler."""
        self._context.tell(why)

    kill = cancel

    def until(self, deadline: float) -> None:
        """Nobody can end a thread from outside."""

    def work(self) -> Ending:
        """Run the handler; what came of it."""
        try:
            return completed(self._handler.call(self._context, self._assign.payload))
        except BaseException as problem:
            return raised(problem, self._handler.fatal)


class EventLoop:
    """An event loop in a thread of its own, for handlers that are coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleetlog-async", daemon=True)
        self._thread.start()

    def call(self, what: Callable[..., Any], *arguments: Any) -> None:
        """Call `what` in the loop, soon."""
        self._loop.call_soon_threadsafe(what, *arguments)

    def close(self) -> None:
        """End the loop; handlers that still run are abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)


class AsyncRun:
    """A handler in the event loop: asked to end by its context, forced by cancelling its asyncio task."""

    def __init__(
        self, handler: Handler, assign: Assign, link: Link, loop: EventLoop, on_end: Callable[[Ending], None]
    ) -> None:
        self._handler = handler
        self._assign = assign
        self._link = link
        self._loop = loop
        self._on_end = on_end
        self._context: AsyncTaskContext | None = None
        self._task: asyncio.Task[None] | None = None
        self._killed = False

    def begin(self, instead: Ending | None) -> None:
        """Start the handler; or end with `instead`, if there is that."""
        if instead is None:
            self._loop.call(self._begin)
        else:
            self._on_end(instead)

    def cancel(self, why: Why) -> None:
        """Tell the handler."""
        self._loop.call(self._tell, why)

    def kill(self, why: Why) -> None:
        """Cancel the handler's asyncio task."""
        self._loop.call(self._kill, why)

    def until(self, deadline: float) -> None:
        """Nobody can end a coroutine from outside."""

    def _begin(self) -> None:
        self._context = AsyncTaskContext(self._assign, self._link)
        self._task = asyncio.get_running_loop().create_task(self._follow(self._context))

    def _tell(self, why: Why) -> None:
        if self._context is not None:
            self._context.tell(why)

    def _kill(self, why: Why) -> None:
        self._tell(why)
        self._killed = True
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, context: AsyncTaskContext) -> None:
        try:
            answer: Awaitable[Any] = self._handler.call(context, self._assign.payload)
            ending = completed(await answer)
        except asyncio.CancelledError as problem:
            ending = Ending("stopped") if self._killed else raised(problem)
        except BaseException as problem:
            ending = raised(problem, self._handler.fatal)
        self._on_end(ending)


def needs_fetching(assign: Assign) -> bool:
    """Whether payload or checkpoint come as addresses."""
    return assign.payload_url is not None or (assign.checkpoint is not None and assign.checkpoint.url is not None)


def fetch_bodies(assign: Assign, gateway: str, token: str | None) -> None:
    """Put what lies behind the addresses into the assignment; raises OSError, ValueError."""
    if assign.payload_url is not None:
        assign.payload = _fetch(gateway, assign.payload_url, token)
        assign.payload_url = None
    if assign.checkpoint is not None and assign.checkpoint.url is not None:
        assign.checkpoint.value = _fetch(gateway, assign.checkpoint.url, token)
        assign.checkpoint.url = None


def _fetch(gateway: str, url: str, token: str | None) -> Any:
    """A body from the same gateway; anything else would be given the token."""
    whole = url if "://" in url else gateway.rstrip("/") + url
    if not whole.startswith(gateway.rstrip("/") + "/"):
        raise ValueError(f"a body at {url} does not come from this gateway")
    request = urllib.request.Request(whole, headers=bearer(token))  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310
        return json.loads(answer.read())
