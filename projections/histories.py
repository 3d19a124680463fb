"""Where the events of a task, or of a sequence, lie in the log: rows of `history`, written by the projector."""

from collections.abc import Iterator
from itertools import islice

from projections.rows import (
    Table,
    after,
    history_key,
    history_range,
    offsets_key,
    offsets_range,
    tail_number,
    unpack_numbers,
)
from projections.store import Store


def history_of(store: Store, pool: str, task: str, behind: int, limit: int) -> list[tuple[int, int]]:
    """(sequence, offset) of the events of a task with a sequence above `behind`, at most `limit`, oldest first."""
    return list(islice(_entries(store, pool, task, behind), limit))


def _entries(store: Store, pool: str, task: str, behind: int) -> Iterator[tuple[int, int]]:
    prefix = history_range(pool, task)
    start = history_key(pool, task, behind + 1)
    # The row that holds the first of them may begin before it.
    for key, _ in store.scan(Table.HISTORY, prefix, start, backwards=True):
        start = key
        break
    for _, content in store.scan(Table.HISTORY, start, after(prefix)):
        numbers = unpack_numbers(content)
        for index in range(0, len(numbers), 2):
            if numbers[index] > behind:
                yield numbers[index], numbers[index + 1]


def offset_of(store: Store, pool: str, sequence: int) -> int | None:
    """The offset of an event by its sequence, or None where it is not folded."""
    end = offsets_key(pool, sequence + 1)
    for key, content in store.scan(Table.HISTORY, offsets_range(pool), end, backwards=True):
        offsets, index = unpack_numbers(content), sequence - tail_number(key)
        return offsets[index] if 0 <= index < len(offsets) else None
    return None
