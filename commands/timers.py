"""One heap of instants at which something may be due. Entries are never removed: what is due is checked again."""

from heapq import heappop, heappush
from typing import Literal

What = Literal["due", "accept", "lost_wait", "hold", "deadline", "pause", "excluded", "limit"]


class Timers:
    """A heap of (instant in ms, what, key); the key names the task, `task/attempt`, or scope that is concerned."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []

    def push(self, at: int, what: What, key: str) -> None:
        """Asks for a look at `key` from instant `at` on."""
        heappush(self._heap, (at, what, key))

    def next_at(self) -> int | None:
        """The earliest instant, or None."""
        return self._heap[0][0] if self._heap else None

    def pop(self, until: int) -> tuple[int, str, str] | None:
        """The earliest entry not after `until`, taken out, or None."""
        return heappop(self._heap) if self._heap and self._heap[0][0] <= until else None
