"""Virtual time: what is to happen when. One thread; the same calls give the same order."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Step = Callable[[], None]


class Timer:
    """A step that comes later; `process`: whose step it is, None for the world's own."""

    __slots__ = ("process", "step")

    def __init__(self, step: Step, process: "Process | None" = None) -> None:
        self.step: Step | None = step
        self.process = process

    def cancel(self) -> None:
        """It does not come."""
        self.step = None


class Scheduler:
    """Steps by their instants; `now_ms` is true time in milliseconds, which no clock of the world shows."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._steps: list[tuple[float, int, Timer]] = []
        self._order = count()

    def later(self, seconds: float, step: Step, process: "Process | None" = None) -> Timer:
        """Does `step` after so many seconds; a step of a `process` only if that lives then, and when it runs."""
        timer = Timer(step, process)
        at_ms = self.now_ms + seconds * 1_000 if seconds > 0 else self.now_ms
        heappush(self._steps, (at_ms, next(self._order), timer))
        return timer

    def run(self, seconds: float) -> None:
        """All that is due within so many seconds. A step may call this itself: the world then goes on around it."""
        end_ms = self.now_ms + seconds * 1_000
        steps = self._steps
        while steps and steps[0][0] <= end_ms:
            at_ms, _, timer = heappop(steps)
            step, process = timer.step, timer.process
            if step is None:
                continue
            if at_ms > self.now_ms:
                self.now_ms = at_ms
            if process is None:
                step()
            elif process.alive:
                if process.paused_until_ms > self.now_ms:
                    heappush(steps, (process.paused_until_ms, next(self._order), timer))
                else:
                    step()
        self.now_ms = max(self.now_ms, end_ms)

    def run_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Step by step until something is so; False where it is not within so many seconds."""
        end_ms = self.now_ms + seconds * 1_000
        while not is_so():
            if not self._steps or self._steps[0][0] > end_ms:
                self.now_ms = max(self.now_ms, end_ms)
                return False
            self.run(max(0.0, self._steps[0][0] - self.now_ms) / 1_000)
        return True


class HostClock:
    """The clocks of a machine: `rate` is how much faster than true time they go, the wall clock can be stepped."""

    def __init__(self, scheduler: Scheduler, start_ms: int, rate: float = 0.0, offset_ms: float = 0.0) -> None:
        self._scheduler, self._start_ms, self._rate, self._offset_ms = scheduler, start_ms, rate, offset_ms

    def boot_ms(self) -> float:
        """Since the machine started."""
        return self._scheduler.now_ms * (1 + self._rate)

    def seconds(self) -> float:
        """The same in seconds."""
        return self.boot_ms() / 1_000

    def true_s(self, seconds: float) -> float:
        """How long so many seconds of this clock really last."""
        return seconds / (1 + self._rate)

    def wall_ms(self) -> int:
        """Since 1970 UTC, as this machine believes."""
        return int(self._start_ms + self._offset_ms + self.boot_ms())

    def step(self, by_ms: float) -> None:
        """Somebody sets the wall clock."""
        self._offset_ms += by_ms


class Process:
    """A program on a host: what it means to do later happens only while it lives, and waits while it is paused."""

    def __init__(self, scheduler: Scheduler, name: str, clock: HostClock) -> None:
        self.scheduler, self.name, self.clock = scheduler, name, clock
        self.alive = True
        self.paused_until_ms = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it stands still (SIGSTOP)."""
        return self.paused_until_ms > self.scheduler.now_ms

    @property
    def is_well(self) -> bool:
        """Whether it lives and runs."""
        return self.alive and not self.is_paused

    def later(self, seconds: float, step: Step) -> Timer:
        """Does `step` after so many seconds, or when it goes on after a pause."""
        return self.scheduler.later(seconds, step, self)

    def every(self, seconds: float, step: Step) -> None:
        """Does `step` again and again."""

        def again() -> None:
            step()
            self.later(seconds, again)

        self.later(seconds, again)

    def call_soon_threadsafe(self, step: Callable[..., None], *arguments: Any) -> None:
        """As of an event loop."""
        self.later(0.0, lambda: step(*arguments))

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        self.paused_until_ms = max(self.paused_until_ms, self.scheduler.now_ms + seconds * 1_000)

    def kill(self) -> None:
        """SIGKILL: nothing that it meant to do happens."""
        self.alive = False
