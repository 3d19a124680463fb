"""An event loop on virtual time, for handlers that are coroutines: where it would wait, the world goes on."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

SHORTEST_S: Final = 0.001
"""Shorter waits are made that long, so that time always goes on."""


class Rests(Protocol):
    """Whoever lets the world go on: `handlers.HandlerRun`."""

    def rest(self, is_so: Callable[[], bool], seconds: float | None) -> bool:
        """Until something is so or so many seconds are over; whether it is so."""

    def wake(self) -> None:
        """Something may be so now."""

    def seconds(self) -> float:
        """The virtual time."""


class _Selector:
    """Waits as a selector does, for nothing but time and what is called into the loop."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._loop.wait(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop without sockets. What it would run in other threads it runs at once, where it is."""

    def __init__(self, rests: Rests) -> None:
        super().__init__()
        self._rests = rests
        self._selector = _Selector(self)

    def time(self) -> float:
        """Virtual seconds."""
        return self._rests.seconds()

    def wait(self, seconds: float | None) -> None:
        """Until something is to be done in the loop, or so many seconds are over."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        self._rests.rest(lambda: bool(ready), None if seconds is None else max(seconds, SHORTEST_S))

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Runs it at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as problem:
            future.set_exception(problem)
        return future

    def _process_events(self, events: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        self._rests.wake()
