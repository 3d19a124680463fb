"""Limits of a kind or limit key: how many of its tasks are held at once, and how many may be assigned in a time.

What is held is counted for every kind and key, limited or not, as tasks come into ASSIGNED and leave ASSIGNED, RUNNING
and LOST, so a limit that is set knows at once how many there are. The rate is the generic cell rate algorithm: one
instant for each limit, up to which its assignments are paid for. It counts whole microseconds, rounded up, so no rate
is exceeded. Whether a lane is below its limits is two look-ups, whatever waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from commands.vocabulary import LimitScope

LIMITS_MAX: Final = 1_000
"""Limits of one pool."""
RUNNING_MAX: Final = 1_000_000
RATE_MIN: Final = 0.00001
"""A second; a little less than one a day."""
RATE_MAX: Final = 1_000.0
BURST_MAX: Final = 1_000_000

Limited = tuple[LimitScope, str]
"""What a limit is for: (scope, name)."""


@dataclass(slots=True)
class Limit:
    """What was set: at most `running` held at once; `rate_per_s` assignments a second, up to `burst` of them together.

    `paid_until_us`: microseconds since 1970, the end of the time that the assignments so far take at this rate.
    """

    running: int | None = None
    rate_per_s: float | None = None
    burst: int = 1
    paid_until_us: int = 0

    def opens_at(self) -> int:
        """The first instant (ms) at which the rate lets one more be assigned."""
        if self.rate_per_s is None:
            return 0
        return -(-(self.paid_until_us - (self.burst - 1) * self._each_us()) // 1_000)

    def spend(self, at: int) -> None:
        """One was assigned at `at` (ms)."""
        if self.rate_per_s is not None:
            self.paid_until_us = max(self.paid_until_us, at * 1_000) + self._each_us()

    def _each_us(self) -> int:
        return ceil(1_000_000 / (self.rate_per_s or 1))

    def as_row(self) -> dict[str, Any]:
        """For snapshots; what was never spent is left out."""
        row = {"running": self.running, "rate_per_s": self.rate_per_s, "burst": self.burst}
        return row | ({"paid_until_us": self.paid_until_us} if self.paid_until_us else {})

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Limit":
        """Back from a snapshot."""
        return cls(row["running"], row["rate_per_s"], row["burst"] or 1, row.get("paid_until_us", 0))


class Limits:
    """The limits of a pool by (scope, name), and how many tasks of each kind and key are held."""

    __slots__ = ("held", "rows")

    def __init__(self) -> None:
        self.rows: dict[Limited, Limit] = {}
        self.held: dict[Limited, int] = {}

    def of(self, kind: str, key: str | None) -> Iterator[tuple[Limited, Limit]]:
        """The limits that hold for tasks of this kind and limit key."""
        for limited in _limited(kind, key):
            limit = self.rows.get(limited)
            if limit is not None:
                yield limited, limit

    def full(self, limited: Limited, limit: Limit) -> bool:
        """Whether as many are held as may be."""
        return limit.running is not None and self.held.get(limited, 0) >= limit.running

    def below(self, kind: str, key: str | None, now: int) -> bool:
        """Whether one more task of this kind and key may be assigned at `now`."""
        if not self.rows:
            return True
        return not any(self.full(limited, limit) or limit.opens_at() > now for limited, limit in self.of(kind, key))

    def take(self, kind: str, key: str | None, at: int) -> list[tuple[Limited, int]]:
        """One more is held since `at`; returns which rates are exhausted by it, each with the instant it opens again.

        For `evolve` alone, like all that follows.
        """
        self.hold(kind, key)
        exhausted = []
        for limited, limit in self.of(kind, key) if self.rows else ():
            limit.spend(at)
            if limit.opens_at() > at:
                exhausted.append((limited, limit.opens_at()))
        return exhausted

    def hold(self, kind: str, key: str | None) -> None:
        """One more is held."""
        for limited in _limited(kind, key):
            self.held[limited] = self.held.get(limited, 0) + 1

    def leave(self, kind: str, key: str | None) -> None:
        """One less is held."""
        for limited in _limited(kind, key):
            left = self.held[limited] - 1
            if left:
                self.held[limited] = left
            else:
                del self.held[limited]


def _limited(kind: str, key: str | None) -> tuple[Limited, ...]:
    return (("kind", kind),) if key is None else (("kind", kind), ("key", key))
