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
    instant: float
    boot: float


class PoolClock:
    """Draws `now` for each pool of a partition. Used by the owner's thread alone."""

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        boot: Callable[[], float] = boot_ms,
        step_ms: int = STEP_MS,
    ) -> None:
        self._wall, self._boot, self._step_ms = wall, boot, step_ms
        self._readings: dict[str, _Reading] = {}
        self.offset_ms = 0

    def now(self, pool: str, last_at: int) -> int:
        """The instant for `pool`, whose last event was at `last_at`."""
        boot, wall = self._boot(), self._wall()
        reading = self._readings.get(pool)
        if reading is None:
            reading = self._readings[pool] = _Reading(float(max(wall, last_at)), boot)
            return int(reading.instant)
        passed = max(0.0, boot - reading.boot)
        off = wall - (reading.instant + passed)
        self.offset_ms = int(off)
        followed = 0.0 if abs(off) > self._step_ms else max(-1.0, min(1.0, off / (passed or 1.0) / FOLLOWED_SHARE))
        reading.instant = max(reading.instant + passed * (1 + FOLLOWED_SHARE * followed), float(last_at))
        reading.boot = boot
        return int(reading.instant)

    def distrusted(self) -> int | None:
        """The wall clock's instant where it is too far off to be followed, else None."""
        return self._wall() if abs(self.offset_ms) > self._step_ms else None

    def follow_wall(self) -> None:
        """An operator accepted the step: pools that are behind go on from the wall clock."""
        wall, boot = self._wall(), self._boot()
        for reading in self._readings.values():
            reading.instant, reading.boot = max(reading.instant, float(wall)), boot
        self.offset_ms = 0

    def forget(self) -> None:
        """Nothing is known any more (the partition was taken over anew)."""
        self._readings.clear()
