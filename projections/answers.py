"""The shapes of answers from the tables."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streams.position import Position

T = TypeVar("T")
COUNTED_MAX: Final = 100_000
"""Cards that a count looks at, at most, where the figures do not answer."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value and how far it is true."""

    value: T
    position: Position


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, the cursor of what follows (None: nothing), and how far it is true."""

    items: list[T]
    next: str | None
    position: Position


@dataclass(frozen=True, slots=True)
class Count:
    """How many tasks match; `complete` is False where the count ended at COUNTED_MAX cards."""

    count: int
    complete: bool
