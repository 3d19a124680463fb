"""The robot: connects to a gateway, takes tasks, runs handlers, reports."""

from __future__ import annotations

import inspect
import logging
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, Literal, Self, TypeVar

from commands.requirements import capability_problem
from commands.vocabulary import KIND_CHARS_MAX, is_name
from robot_gateway.sdk.engine import Config, Engine
from robot_gateway.sdk.errors import FleetlogError
from robot_gateway.sdk.runs import Check, Handler
from robot_gateway.sdk.session import Session
from robot_gateway.sdk.websocket import session_url

logger = logging.getLogger("fleetlog")

Call = TypeVar("Call", bound=Callable[..., Any])

DEFAULT_GATEWAY: Final = "http://127.0.0.1:8780"
DEFAULT_POOL: Final = "default"
CANCEL_GRACE_S: Final = 10.0
_AGENT: Final = f"fleetlog-python/0.1 Python/{platform.python_version()}"


class Robot:
    """A robot of `pool`, with as many tasks at once as `slots` (1 to 1024) and their costs allow.

    `gateway`: http(s)://HOST:PORT. `capabilities`: names and name=value. `spool`: a file that keeps final reports
    until they are acknowledged. `cancel_grace_s`: how long a handler may go on after it was asked to end, before it
    is killed (processes and commands) or cancelled (async); threads cannot be forced, so use processes for work
    that must never go on after its lease, above all for tasks with a target.

    Raises ValueError for what cannot be right.
    """

    def __init__(
        self,
        robot: str,
        *,
        pool: str = DEFAULT_POOL,
        gateway: str = DEFAULT_GATEWAY,
        token: str | None = None,
        capabilities: Iterable[str] = (),
        slots: int = 1,
        spool: str | os.PathLike[str] | None = None,
        cancel_grace_s: float | None = CANCEL_GRACE_S,
        agent: str = _AGENT,
    ) -> None:
        for what, name in (("robot", robot), ("pool", pool)):
            if not is_name(name):
                raise ValueError(f"{name!r} cannot be the id of a {what}: use letters, digits and . _ : - (up to 128)")
        if not 1 <= slots <= 1024:
            raise ValueError(f"slots is a number from 1 to 1024, not {slots}")
        has = _checked(capabilities)
        session_url(gateway, "")
        self._config = Config(
            robot=robot,
            pool=pool,
            gateway=gateway.rstrip("/"),
            token=token,
            capabilities=has,
            slots=slots,
            spool=spool,
            cancel_grace_s=cancel_grace_s,
            agent=agent[:128],
        )
        self._engine: Engine | None = None
        self._threads: list[threading.Thread] = []

    @property
    def id(self) -> str:
        """The robot's id."""
        return self._config.robot

    @property
    def config(self) -> Config:
        """What it was made with, and its handlers by kind; to be read."""
        return self._config

    # ---- handlers ----

    def task(
        self,
        kind: str,
        *,
        run_in: Literal["thread", "process", "async"] = "thread",
        fatal: tuple[type[BaseException], ...] = (),
        check: Check | None = None,
    ) -> Callable[[Call], Call]:
        """Decorate the handler of `kind`: `handler(ctx, payload) -> result` (JSON up to 256 KiB).

        It may raise Fatal, Retry or ctx.Stopped; other exceptions are retryable unless of a type in `fatal`.
        `run_in="async"` wants a coroutine function, whose `ctx.checkpoint` is to be awaited. `check(assign)` is asked
        before an assignment is accepted: it raises Reject where this robot must not take it. It has to be quick, for
        nothing else is heard or said meanwhile; large payloads have not been fetched then (`payload_url`).
        """

        def register(call: Call) -> Call:
            if (run_in == "async") != inspect.iscoroutinefunction(call):
                raise ValueError(f'the handler of {kind}: run_in="async" and `async def` belong together')
            self._add(Handler(kind, call, run_in, fatal, check=check))
            return call

        return register

    def command(self, kind: str, command: str) -> None:
        """Let a shell command do `kind` (payload on stdin, see robot_gateway.sdk.shell)."""
        self._add(Handler(kind, _never_called, "command", command=command))

    def _add(self, handler: Handler) -> None:
        if not is_name(handler.kind, KIND_CHARS_MAX):
            raise ValueError(f"{handler.kind!r} cannot be a kind: use letters, digits and . _ : - (up to 64)")
        if handler.kind in self._config.handlers:
            raise ValueError(f"there is a handler for {handler.kind} already")
        if self._engine is not None:
            raise ValueError("register handlers before the robot starts")
        self._config.handlers[handler.kind] = handler

    # ---- life ----

    def run(self, grace_s: float = 30.0) -> None:
        """Serve until SIGTERM or SIGINT (in the main thread), or until the gateway ends it.

        The signal: take nothing new, say what goes on (a warning of the logger), let it end within `grace_s` seconds,
        stop the rest, say bye. A second one ends at once (SystemExit: 130 for SIGINT, 143 for SIGTERM). Raises
        FleetlogError if the gateway wants this robot no more: Superseded, TwoPrograms, Forbidden, NoSuchPool and so on.
        """
        asked = threading.Event()
        restore = _on_signals(asked) if threading.current_thread() is threading.main_thread() else _nothing
        try:
            self.start()
            engine = self._started()
            watcher = threading.Thread(target=_set_when_over, args=(engine.ended, asked), daemon=True)
            watcher.start()
            asked.wait()
            if not engine.ended.is_set() and (waited_for := engine.what_goes_on()):
                logger.warning("%s; waiting up to %g s, Ctrl-C (or SIGTERM) again ends at once", waited_for, grace_s)
            self.stop(grace_s)
        except SystemExit:
            self._let_go(wait_s=0)
            raise
        finally:
            self._let_go()
            restore()

    def start(self) -> Self:
        """Begin in the background; `stop` ends it. Handlers must be registered by now."""
        if self._engine is not None:
            raise RuntimeError("this robot has started already")
        if not self._config.handlers:
            raise ValueError("this robot has no handlers: decorate a function with @robot.task(KIND)")
        self._engine = engine = Engine(self._config)
        self._threads = [engine.start_keeper(), Session(engine).start()]
        return self

    def stop(self, grace_s: float = 30.0) -> None:
        """Take nothing new, let what runs end within `grace_s` seconds, stop the rest, say bye, disconnect.

        Raises FleetlogError if the gateway had ended the robot before.
        """
        engine = self._started()
        if not engine.ended.is_set():
            engine.leave(grace_s)
        engine.finish(None)
        error = engine.error
        self._let_go()
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        """`with robot:` starts it."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """And stops it, without a grace."""
        self.stop(0)

    def wait_until_welcome(self, timeout_s: float | None = None) -> bool:
        """Whether the gateway has said welcome within `timeout_s`."""
        return self._started().wait_for_epoch(timeout_s)

    @property
    def epoch(self) -> int | None:
        """The epoch of the current session, or None while there is none."""
        return None if self._engine is None else self._engine.epoch

    @property
    def draining(self) -> bool:
        """Whether an operator drains this robot."""
        return self._engine is not None and self._engine.draining

    # ---- what a robot may say about itself ----

    def ready(self, slots: int) -> None:
        """Use at most that many slots (0: none) from here on."""
        if not 0 <= slots <= self._config.slots:
            raise ValueError(f"ready is a number from 0 to the slots ({self._config.slots}), not {slots}")
        self._started().say_ready(slots)

    def update(self, *, slots: int | None = None, capabilities: Iterable[str] | None = None) -> None:
        """Have other slots or capabilities from here on."""
        if slots is not None and not 1 <= slots <= 1024:
            raise ValueError(f"slots is a number from 1 to 1024, not {slots}")
        if slots is not None or capabilities is not None:
            self._started().say_update(slots, None if capabilities is None else _checked(capabilities))

    def fault(self, text: str, code: str | None = None) -> None:
        """Say that the robot cannot work (text up to 1,000 characters, code up to 64); it keeps what it holds."""
        self._started().say_fault(text[:1000], None if code is None else code[:64])

    def recovered(self) -> None:
        """Say that the fault is gone."""
        self._started().say_recovered()

    def _started(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("this robot has not been started")
        return self._engine

    def _let_go(self, wait_s: float = 5.0) -> None:
        """End all work, the threads of the SDK (waiting for each so long) and the processes."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        engine.finish(None)
        for thread in self._threads:
            thread.join(wait_s)
        engine.close()


def _checked(capabilities: Iterable[str]) -> list[str]:
    """The capabilities. Raises ValueError where one is none: it would never meet a requirement."""
    has = list(capabilities)
    problem = next(filter(None, map(capability_problem, has)), None)
    if problem is not None:
        raise ValueError(problem)
    return has


def _on_signals(asked: threading.Event) -> Callable[[], None]:
    """The first SIGTERM or SIGINT sets `asked`, the next one ends the program."""

    def handle(number: int, _: FrameType | None) -> None:
        if asked.is_set():
            raise SystemExit(128 + number)
        asked.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _set_when_over(ended: threading.Event, asked: threading.Event) -> None:
    ended.wait()
    asked.set()


def _nothing() -> None:
    """Outside of the main thread there are no signals to restore."""


def _never_called(*_: Any) -> None:
    raise FleetlogError("a command is run by the shell")


__all__ = ["CANCEL_GRACE_S", "DEFAULT_GATEWAY", "DEFAULT_POOL", "Robot"]
