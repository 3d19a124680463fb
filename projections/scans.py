"""How lists of tasks are found: which index rows hold them, in which order, and how far a scan may go.

Tasks have one order, (instant of submission, pool, submission sequence), which no change of state moves: a list that
is read page by page neither repeats nor misses a task that stays in it.
"""

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from projections.cards import KindCard, Progress, TaskCard
from projections.filters import Filter
from projections.index_rows import codes_of
from projections.rows import Entity, Index, Table, after, entity_key, index_range, index_tail, load, name_key, tail_key
from projections.store import Store, StoreCorrupt

RANGES_MAX: Final = 10_000
"""Index ranges that one list may merge: pools times kinds times states."""
POOLS_MAX: Final = 10_000
KINDS_MAX: Final = 10_000
CARDS_AT_ONCE: Final = 64


class TooWide(Exception):
    """The list would have to merge more than RANGES_MAX ranges: a filter must name a pool or a kind."""


class Place(NamedTuple):
    """Where a task stands in the order of all tasks."""

    at: int
    pool: str
    sequence: int
    task: str


Range = tuple[Index, str, str]
"""Index, pool and group: index rows that lie together, in the order of tasks."""
LAST: Final = (1 << 64) - 1


def progress_rows(store: Store, named: Callable[[str], bool] | None = None) -> list[Progress]:
    """How far each pool is folded, by name."""
    start = Entity.PROGRESS.value.encode()
    rows: Iterator[Progress] = (load(content) for _, content in store.scan(Table.ENTITIES, start, after(start)))
    return list(islice((row for row in rows if named is None or named(row["pool"])), POOLS_MAX))


def kind_cards(store: Store, pool: str) -> list[KindCard]:
    """The figures of all kinds of a pool, by name."""
    start = entity_key(Entity.KIND, pool)
    rows = store.scan(Table.ENTITIES, start, after(start))
    return [load(content) for _, content in islice(rows, KINDS_MAX)]


def pools_of(store: Store, filtered: Filter, pools: Collection[str] | None) -> list[str]:
    """The pools that a filter lets pass and the reader may see (None: all)."""
    only = filtered.only("pool")
    if only is not None:
        return [only] if pools is None or only in pools else []
    fits = filtered.texts("pool")
    return [row["pool"] for row in progress_rows(store, fits) if pools is None or row["pool"] in pools]


def ranges_of(store: Store, filtered: Filter, pools: Collection[str] | None) -> list[Range]:
    """The index ranges that hold every task that `filtered` can match. Raises TooWide."""
    names = pools_of(store, filtered, pools)
    robot, target = filtered.only("robot"), filtered.only("target")
    if robot is not None:
        found = [(Index.ROBOT, pool, robot) for pool in names]
    elif target is not None:
        found = [(Index.TARGET, pool, target) for pool in names]
    else:
        found = [
            (Index.STATE, pool, code + kind)
            for pool in names
            for kind, state in counted(store, pool, filtered)
            for code in codes_of(state)
        ]
    if len(found) > RANGES_MAX:
        raise TooWide
    return found


def counted(store: Store, pool: str, filtered: Filter) -> dict[tuple[str, str], int]:
    """(kind, state) -> how many tasks of a pool are there, for those that the filter lets pass."""
    kind_fits, state_fits = filtered.texts("kind"), filtered.texts("state")
    return {
        (card["kind"], state): count
        for card in kind_cards(store, pool)
        if kind_fits(card["kind"])
        for state, count in card["counts"].items()
        if state_fits(state)
    }


def places(store: Store, ranges: list[Range], behind: Place | None, backwards: bool) -> Iterator[Place]:
    """The tasks of all ranges in their order, or against it, that stand behind `behind`."""
    return merge(*(_range_places(store, one, behind, backwards) for one in ranges), reverse=backwards)


def _range_places(store: Store, one: Range, behind: Place | None, backwards: bool) -> Iterator[Place]:
    prefix = index_range(*one)
    start, end = prefix, after(prefix)
    if behind is not None and backwards:
        end = prefix + _first_from(one[1], behind, 0)
    elif behind is not None:
        start = prefix + _first_from(one[1], behind, 1)
    for key, content in store.scan(Table.INDEX, start, end, backwards):
        at, sequence = index_tail(key)
        yield Place(at, one[1], sequence, content.decode())


def _first_from(pool: str, behind: Place, step: int) -> bytes:
    """The end of the first key of `pool` that is not before `behind` (step 0), or is after it (step 1)."""
    if pool == behind.pool:
        return tail_key(behind.at, behind.sequence + step)
    return tail_key(behind.at + (pool < behind.pool), 0)


def cards_of(store: Store, found: Iterator[Place]) -> Iterator[tuple[Place, TaskCard]]:
    """The cards of tasks, read some at a time. Raises StoreCorrupt where an index names a task that is not there."""
    while some := list(islice(found, CARDS_AT_ONCE)):
        contents = store.get_many(Table.TASKS, [name_key(place.pool, place.task) for place in some])
        for place, content in zip(some, contents, strict=True):
            card: TaskCard | None = None if content is None else load(content)
            if card is None or card["sequence"] != place.sequence:
                raise StoreCorrupt(
                    f"The index of the projections in {store.path} names task {place.task} of pool {place.pool}, which "
                    "is not in the tables: the projector builds them anew from the log."
                )
            yield place, card


SORTS: Final[dict[str, Callable[[TaskCard], Any]]] = {
    "priority": lambda card: card["priority"],
    "eligible": lambda card: card["eligible_at"],
    "since": lambda card: card["since_at"],
    "ended": lambda card: card.get("ended_at", 0),
    "attempt": lambda card: card["attempt"],
    "failures": lambda card: card["failures"],
    "lost": lambda card: card["lost"],
    "waited": lambda card: card.get("waited_ms", 0),
    "ran": lambda card: card.get("ran_ms", 0),
}
"""Orders beside `submitted` that are made by sorting what the filter finds."""


def row_of(store: Store, table: Table, key: bytes) -> Any:
    """The JSON of one row, or None."""
    content = store.get(table, key)
    return None if content is None else load(content)


def entity_of(store: Store, entity: Entity, pool: str, name: str) -> Any:
    """One card of a pool, or None."""
    return row_of(store, Table.ENTITIES, entity_key(entity, pool, name))


def entities_of(store: Store, entity: Entity, pool: str, behind: str) -> Iterator[tuple[str, Any]]:
    """(name, card) of a pool's cards whose names sort above `behind`."""
    prefix = entity_key(entity, pool)
    start = prefix + behind.encode() + b"\0" if behind else prefix
    for key, content in store.scan(Table.ENTITIES, start, after(prefix)):
        yield key[len(prefix) :].decode(), load(content)
