"""What the checker of invariants knows of limits: how many of each kind and key are held, and what rates have left.

A rate is checked as a bucket that leaks: it shares no rule with what decides, which keeps one instant instead.
"""

from dataclasses import dataclass
from typing import Any, Final

SLACK: Final = 0.001
"""Floating point over millions of assignments, in tasks."""

Limited = tuple[str, str]


@dataclass(slots=True)
class Bucket:
    """A limit in force; `level` tasks have not leaked away at `at`."""

    running: int | None
    rate_per_s: float | None
    burst: int
    level: float = 0.0
    at: int = 0

    def pour(self, at: int) -> bool:
        """One more at `at` (ms); whether it is too much."""
        if self.rate_per_s is None:
            return False
        self.level = max(0.0, self.level - (at - self.at) * self.rate_per_s / 1_000) + 1
        self.at = at
        return self.level > self.burst + SLACK


class KnownLimits:
    """The limits of a pool, as its events tell them."""

    def __init__(self) -> None:
        self._set: dict[Limited, Bucket] = {}
        self._held: dict[Limited, int] = {}

    def changed(self, event: dict[str, Any]) -> None:
        """LimitSet or LimitRemoved."""
        limited = (event["scope"], event["name"])
        self._set.pop(limited, None)
        if event["type"] == "LimitSet.v1":
            self._set[limited] = Bucket(event.get("running"), event.get("rate_per_s"), event.get("burst", 1))

    def assigned(self, kind: str, key: str | None, at: int) -> str | None:
        """One more is held; what is wrong with that, or None."""
        problem = None
        for limited in _limited(kind, key):
            count = self._held[limited] = self._held.get(limited, 0) + 1
            bucket = self._set.get(limited)
            if bucket is None:
                continue
            if bucket.running is not None and count > bucket.running:
                problem = f"{count} tasks of {' '.join(limited)} are held, the limit is {bucket.running}"
            if bucket.pour(at):
                problem = f"more than {bucket.rate_per_s} tasks of {' '.join(limited)} a second, burst {bucket.burst}"
        return problem

    def over(self, kind: str, key: str | None) -> None:
        """One less is held."""
        for limited in _limited(kind, key):
            left = self._held.get(limited, 0) - 1
            if left > 0:
                self._held[limited] = left
            else:
                self._held.pop(limited, None)


def _limited(kind: str, key: str | None) -> list[Limited]:
    return [("kind", kind)] if key is None else [("kind", kind), ("key", key)]
