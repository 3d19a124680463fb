"""The time of a pool: it never falls, goes on at the machine's own rate, and follows the wall clock slowly.

Instants are milliseconds since 1970 UTC. A wall clock that differs by up to `step_ms` is followed at 1 % (more breaks
the robots' own deadlines); a bigger step is not followed until an operator accepts it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FOLLOWED_SHARE: Final = 0.01
STEP_MS: Final = 60_000


def wall_ms() -> int:
    """The machine's wall clock."""
    return time.time_ns() // 1_000_000


def boot_ms() -> float:
    """Time since the machine started, suspension included where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) / 1_000_000


@dataclass(slots=True)
class _Reading:
    """A pool's time as last drawn. `off`: how far the wall clock was ahead of it; `owed`: how far behind it may be,
    because an operator accepted a clock that went back, until time has waited for it."""

    instant: float
    boot: float
    off: float = 0.0
    owed: float = 0.0


class PoolClock:
    """Draws `now` for each pool of a partition. Used by the owner's thread alone."""

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        boot: Callable[[], float] = boot_ms,
        step_ms: int = STEP_MS,
    ) -> None:
        self.wall, self._boot, self._step_ms = wall, boot, step_ms
        self._readings: dict[str, _Reading] = {}
        self._distrusting: set[str] = set()

    def now(self, pool: str, last_at: int) -> int:
        """The instant for `pool`, whose last event was at `last_at`."""
        boot, wall = self._boot(), self.wall()
        reading = self._readings.get(pool)
        if reading is None:
            reading = self._readings[pool] = _Reading(float(max(wall, last_at)), boot)
            self._judge(pool, reading, wall - reading.instant)
            return int(reading.instant)
        passed = max(0.0, boot - reading.boot)
        off = wall - (reading.instant + passed)
        self._judge(pool, reading, off)
        followed = 0.0 if pool in self._distrusting else max(-1.0, min(1.0, off / (passed or 1.0) / FOLLOWED_SHARE))
        reading.instant = max(reading.instant + passed * (1 + FOLLOWED_SHARE * followed), float(last_at))
        reading.boot = boot
        return int(reading.instant)

    def _judge(self, pool: str, reading: _Reading, off: float) -> None:
        """Whether the wall clock is near enough to be followed, or as far behind as was accepted."""
        reading.off, reading.owed = off, min(reading.owed, max(0.0, -off))
        if -self._step_ms - reading.owed <= off <= self._step_ms:
            self._distrusting.discard(pool)
        else:
            self._distrusting.add(pool)

    @property
    def offset_ms(self) -> int:
        """How far the wall clock is ahead of the pools' time, where it is farthest off."""
        return int(max((reading.off for reading in self._readings.values()), key=abs, default=0.0))

    def boot_s(self) -> float:
        """Seconds since the machine started."""
        return self._boot() / 1_000

    def distrusted(self) -> int | None:
        """The wall clock's instant where it is too far off to be followed, else None."""
        return self.wall() if self._distrusting else None

    def follow_wall(self) -> None:
        """An operator accepted the step: pools that are behind go on from the wall clock, others wait for it."""
        wall, boot = self.wall(), self._boot()
        for reading in self._readings.values():
            reading.owed = max(0.0, reading.instant + max(0.0, boot - reading.boot) - wall)
            reading.instant, reading.boot = max(reading.instant, float(wall)), boot
            reading.off = wall - reading.instant
        self._distrusting.clear()

    def forget(self, pool: str | None = None) -> None:
        """Nothing is known any more of `pool`, which does not exist, or of any (the partition was taken over anew)."""
        for name in [pool] if pool is not None else list(self._readings):
            self._readings.pop(name, None)
            self._distrusting.discard(name)
