"""A clock that a test moves: what owners take for the machine's clocks goes on by itself, and jumps when told to.

with VirtualClock() as clock, Site() as site:
    clock.advance(3600)
"""

from typing import Self

from streams.pool_clock import STEP_MS, PoolClock, boot_ms, wall_ms


class VirtualClock:
    """Wall clock and time since boot, both ahead by what was advanced: an hour passes in no time, and is no step."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._before = PoolClock.__init__.__defaults__

    def __enter__(self) -> Self:
        PoolClock.__init__.__defaults__ = (self.wall, self.boot, STEP_MS)
        return self

    def __exit__(self, *rest: object) -> None:
        PoolClock.__init__.__defaults__ = self._before

    def advance(self, seconds: float) -> None:
        """Time has passed; owners see it when they next look, which any input makes them do."""
        self.ahead_ms += round(seconds * 1_000)

    def wall(self) -> int:
        """Milliseconds since 1970."""
        return wall_ms() + self.ahead_ms

    def boot(self) -> float:
        """Milliseconds since the machine started."""
        return boot_ms() + self.ahead_ms
