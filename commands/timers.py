"""Instants at which something may be due. Entries are never removed: what is due is checked again.

What is due soon stands in a heap; what is due later lies unsorted in its minute, at 24 bytes an entry, until that
minute comes.
"""

from array import array
from heapq import heapify, heappop, heappush
from typing import Final, Literal

What = Literal["due", "accept", "lost_wait", "hold", "deadline", "pause", "excluded", "limit", "schedule"]

MINUTE_MS: Final = 60_000


class _Minute:
    """What is due within one later minute; `first` is the earliest instant."""

    __slots__ = ("ats", "first", "keys", "whats")

    def __init__(self, first: int) -> None:
        self.first = first
        self.ats = array("q")
        self.whats: list[str] = []
        self.keys: list[str] = []


class Timers:
    """Entries (instant in ms, what, key); the key names the task, `task/attempt`, or scope that is concerned."""

    __slots__ = ("_heap", "_later", "_minutes", "_near")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []
        self._near = 0
        self._later: dict[int, _Minute] = {}
        self._minutes: list[int] = []

    def push(self, at: int, what: What, key: str) -> None:
        """Asks for a look at `key` from instant `at` on."""
        number = at // MINUTE_MS
        if number < self._near:
            heappush(self._heap, (at, what, key))
            return
        minute = self._later.get(number)
        if minute is None:
            minute = self._later[number] = _Minute(at)
            heappush(self._minutes, number)
        minute.first = min(minute.first, at)
        minute.ats.append(at)
        minute.whats.append(what)
        minute.keys.append(key)

    def next_at(self) -> int | None:
        """The earliest instant, or None."""
        if self._heap:
            return self._heap[0][0]
        return self._later[self._minutes[0]].first if self._minutes else None

    def pop(self, until: int) -> tuple[int, str, str] | None:
        """The earliest entry not after `until`, taken out, or None."""
        if self._minutes and self._minutes[0] * MINUTE_MS <= until:
            self._bring_near(until // MINUTE_MS)
        return heappop(self._heap) if self._heap and self._heap[0][0] <= until else None

    def _bring_near(self, last: int) -> None:
        """The minutes up to number `last` go into the heap."""
        while self._minutes and self._minutes[0] <= last:
            minute = self._later.pop(heappop(self._minutes))
            self._heap += zip(minute.ats, minute.whats, minute.keys, strict=True)
        heapify(self._heap)
        self._near = last + 1
