"""A clock that a test moves: what owners take for the machine's clocks goes on by itself, and jumps when told to.

with VirtualClock() as clock, Site() as site:
    clock.advance(3600)
"""

from typing import Self

from streams.pool_clock import STEP_MS, PoolClock, boot_ms, wall_ms

MINUTE_MS = 60_000


class VirtualClock:
    """Wall clock and time since boot, both ahead by what was advanced: an hour passes in no time, and is no step.

    `stands`: it does not go on by itself, and begins with a whole minute, so that instants can be told exactly.
    """

    def __init__(self, stands: bool = False) -> None:
        self.ahead_ms = self.set_ms = 0
        self._stands_at = (wall_ms() // MINUTE_MS * MINUTE_MS, boot_ms()) if stands else None
        self._before = PoolClock.__init__.__defaults__

    def __enter__(self) -> Self:
        PoolClock.__init__.__defaults__ = (self.wall, self.boot, STEP_MS)
        return self

    def __exit__(self, *rest: object) -> None:
        PoolClock.__init__.__defaults__ = self._before

    def advance(self, seconds: float) -> None:
        """Time has passed; owners see it when they next look, which any input makes them do."""
        self.ahead_ms += round(seconds * 1_000)

    def set_wall(self, seconds: float) -> None:
        """The wall clock alone is set, by so many seconds."""
        self.set_ms += round(seconds * 1_000)

    def wall(self) -> int:
        """Milliseconds since 1970, as they are said here."""
        return self.true_wall() + self.set_ms

    def true_wall(self) -> int:
        """The same for those whose clock nobody has set, as that of the log."""
        began = wall_ms() if self._stands_at is None else self._stands_at[0]
        return began + self.ahead_ms

    def boot(self) -> float:
        """Milliseconds since the machine started."""
        began = boot_ms() if self._stands_at is None else self._stands_at[1]
        return began + self.ahead_ms
