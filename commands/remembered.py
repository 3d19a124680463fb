"""Accepted commands, packed: fixed records in the order of time, some 65 bytes each where an object takes 400.

A pool remembers up to five million of them. Records are only appended and dropped from the front, never changed, so a
snapshot may read what was there at its cut while others come and go.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Final

_RECORD: Final = Struct(">16s16sQqBIB")
"""Key, digest, sequence, instant, state, attempt, flags."""
_STATES: Final = (None, "WAITING", "ASSIGNED", "RUNNING", "LOST", "COMPLETED", "CANCELLED", "DEAD", "DISCARDED")
_CHANGED: Final = 1
_LACKS: Final = 2
SEGMENT: Final = 4_096
"""Records in one segment, which is freed as a whole."""
_PLACE: Final = Struct(">4sI")
"""In the index: four bytes of the key, and the number of the record (its last 32 bits)."""


@dataclass(slots=True)
class Remembered:
    """What is remembered of an accepted command: digest of its content and the changing part of its answer.

    `lacks`: a submission whose requirement no registered robot met.
    """

    digest: bytes
    sequence: int
    at: int
    state: str | None
    attempt: int
    changed: bool
    lacks: bool = False


class RememberedCommands:
    """Commands by key (16 bytes that are spread evenly), oldest first."""

    __slots__ = ("_end", "_first", "_index", "_segments")

    def __init__(self) -> None:
        self._segments: deque[bytearray] = deque()
        self._first = self._end = 0
        self._index: dict[int, bytearray] = {}

    def __len__(self) -> int:
        return self._end - self._first

    def get(self, key: bytes) -> Remembered | None:
        """What is remembered under `key`."""
        places, mark = self._index.get(_prefix(key), b""), key[2:6]
        at = places.find(mark)
        while at >= 0:
            if at % _PLACE.size == 0:
                number = self._first + (_PLACE.unpack_from(places, at)[1] - self._first & 0xFFFFFFFF)
                segment, start = self._segments[number // SEGMENT - self._first // SEGMENT], _start(number)
                if segment.startswith(key, start):
                    return _unpacked(segment, start)[1]
            at = places.find(mark, at + 1)
        return None

    def add(self, key: bytes, memory: Remembered) -> None:
        """Remembers the newest command; one that is remembered already is not to be added again."""
        if self._end % SEGMENT == 0 or not self._segments:
            self._segments.append(bytearray(_start(self._end)))
        flags = memory.changed * _CHANGED | memory.lacks * _LACKS
        self._segments[-1] += _RECORD.pack(
            key, memory.digest, memory.sequence, memory.at, _STATES.index(memory.state), memory.attempt, flags
        )
        places = self._index.get(_prefix(key))
        if places is None:
            places = self._index[_prefix(key)] = bytearray()
        places += _PLACE.pack(key[2:6], self._end & 0xFFFFFFFF)
        self._end += 1

    def oldest_at(self) -> int | None:
        """The instant of the oldest one."""
        if self._first == self._end:
            return None
        at: int = _RECORD.unpack_from(self._segments[0], _start(self._first))[3]
        return at

    def drop_oldest(self) -> None:
        """Forgets the oldest one."""
        start = _start(self._first)
        prefix = _prefix(bytes(self._segments[0][start : start + 2]))
        places = self._index[prefix]
        del places[: _PLACE.size]
        if not places:
            del self._index[prefix]
        self._first += 1
        if self._first % SEGMENT == 0 or self._first == self._end:
            self._segments.popleft()

    def items(self) -> Iterator[tuple[bytes, Remembered]]:
        """Key and memory of each that is remembered now, oldest first, whatever is added or dropped meanwhile."""
        segments, first, end = tuple(self._segments), self._first, self._end
        base = first - first % SEGMENT
        numbers = ((number, segments[(number - base) // SEGMENT]) for number in range(first, end))
        return (_unpacked(segment, _start(number)) for number, segment in islice(numbers, end - first))


def _prefix(key: bytes) -> int:
    return key[0] << 4 | key[1] >> 4


def _start(number: int) -> int:
    return number % SEGMENT * _RECORD.size


def _unpacked(segment: bytearray, start: int) -> tuple[bytes, Remembered]:
    key, digest, sequence, at, state, attempt, flags = _RECORD.unpack_from(segment, start)
    changed, lacks = bool(flags & _CHANGED), bool(flags & _LACKS)
    return key, Remembered(digest, sequence, at, _STATES[state], attempt, changed, lacks)
