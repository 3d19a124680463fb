"""Starts handlers where they belong: in threads, worker processes, the event loop, or as commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from commands.messages import Assign
from robot_gateway.sdk.context import AttemptLink
from robot_gateway.sdk.endings import Ending, failed
from robot_gateway.sdk.holdings import Run
from robot_gateway.sdk.nursery import Nursery
from robot_gateway.sdk.processes import ProcessRun, serving
from robot_gateway.sdk.programs import CommandRun
from robot_gateway.sdk.runs import AsyncRun, EventLoop, Handler, ThreadRun, fetch_bodies, needs_fetching
from robot_gateway.sdk.threads import ThreadPool

logger = logging.getLogger("fleetlog")

Blocking = ThreadRun | ProcessRun | CommandRun


class Runner:
    """Runs the handlers of one robot. Construct it before any thread exists: it forks where processes are wanted."""

    def __init__(self, handlers: Mapping[str, Handler], slots: int, gateway: str, token: str | None) -> None:
        in_processes = {kind: (h.call, h.fatal) for kind, h in handlers.items() if h.run_in == "process"}
        forks = any(h.run_in in ("process", "command") for h in handlers.values())
        self._nursery = Nursery(serving(in_processes)) if forks else None
        self._loop = EventLoop() if any(h.run_in == "async" for h in handlers.values()) else None
        self._pool = ThreadPool(slots, "fleetlog-handler")
        self._fetch = partial(fetch_bodies, gateway=gateway, token=token)
        self._starters = {kind: self._starter(handler) for kind, handler in handlers.items()}

    def start(self, assign: Assign, link: AttemptLink) -> Run:
        """Start the handler for `assign`; its end goes to `link`. Never waits."""
        return self._starters[assign.kind](assign, link)

    def soon(self, work: Callable[[], None]) -> None:
        """Do something that may wait, in a thread."""
        self._pool.submit(work)

    def resize(self, slots: int) -> None:
        """Have threads for that many handlers at once."""
        self._pool.resize(slots)

    def close(self) -> None:
        """Kill what can be killed; handlers in threads that still run are abandoned."""
        if self._nursery is not None:
            self._nursery.close()
        if self._loop is not None:
            self._loop.close()
        self._pool.close()

    def _starter(self, handler: Handler) -> Callable[[Assign, AttemptLink], Run]:
        loop, nursery = self._loop, self._nursery
        if handler.run_in == "async" and loop is not None:
            return lambda assign, link: self._in_loop(AsyncRun(handler, assign, link, loop, self._ender(link)), assign)
        if handler.run_in == "process" and nursery is not None:
            return lambda assign, link: self._in_pool(ProcessRun(assign, nursery, link), assign, link)
        if handler.run_in == "command" and nursery is not None:
            return lambda assign, link: self._in_pool(CommandRun(handler.command, assign, nursery), assign, link)
        return lambda assign, link: self._in_pool(ThreadRun(handler, assign, link), assign, link)

    def _in_pool(self, run: Blocking, assign: Assign, link: AttemptLink) -> Run:
        self._pool.submit(partial(self._work, run, assign, link))
        return run

    def _work(self, run: Blocking, assign: Assign, link: AttemptLink) -> None:
        try:
            ending = self._not_fetched(assign) or run.work()
        except Exception as fault:
            logger.exception("a fault of the robot SDK in %s attempt %d", assign.task, assign.attempt)
            ending = failed("RobotFault", f"{type(fault).__name__}: {fault}")
        link.ended(ending)

    def _in_loop(self, run: AsyncRun, assign: Assign) -> Run:
        if needs_fetching(assign):
            self._pool.submit(lambda: run.begin(self._not_fetched(assign)))
        else:
            run.begin(None)
        return run

    def _ender(self, link: AttemptLink) -> Callable[[Ending], None]:
        """The loop must not wait for a disk, so the report is made in a thread."""
        return lambda ending: self._pool.submit(partial(link.ended, ending))

    def _not_fetched(self, assign: Assign) -> Ending | None:
        """Get bodies that came as addresses; what went wrong, if anything."""
        if not needs_fetching(assign):
            return None
        try:
            self._fetch(assign)
        except (OSError, ValueError) as problem:
            return failed("BodyNotFetched", str(problem))
        return None
