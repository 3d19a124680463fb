"""What gateway, command line and audit ask the tables, in any process of the host, while the projector writes.

Every answer carries the position that it is true for. Lists go by an index; every scan has a limit, and a list that
meets it gives what it found and a cursor to go on. Refusals are values; StoreFault says what is wrong with the tables.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from commands.reasons import Refusal
from projections.answers import COUNTED_MAX, Answer, Count, Page
from projections.cards import (
    Progress,
    RequirementCard,
    RobotCard,
    ScheduleCard,
    TargetCard,
    TaskCard,
)
from projections.cursors import make_cursor, read_cursor
from projections.digest import rows_digest
from projections.figures import Figures, Overview, kind_figures, overview
from projections.filters import Filter
from projections.histories import history_of, offset_of
from projections.index_rows import CHECKPOINT, ERROR_DETAIL, PAYLOAD, RESULT
from projections.limits import LimitFigures, limit_figures
from projections.reader import TablesReader
from projections.rows import Entity, Table, body_key, load, name_key
from projections.scans import (
    SORTS,
    Place,
    TooWide,
    cards_of,
    counted,
    entities_of,
    entity_of,
    places,
    pools_of,
    progress_rows,
    ranges_of,
    row_of,
)
from projections.stats import Stats, span_of, stats_of
from projections.store import Store, StoreCorrupt
from streams.port import LogReader, Record, Topic, partition_of
from streams.position import Position

T = TypeVar("T")
Pools = Collection[str] | None
"""The pools that the asker may see; None: all."""

EXAMINED_MAX: Final = 10_000
"""Cards that one page looks at, at most; the page may then be short, and its cursor goes on."""
SORTED_MAX: Final = 10_000
"""Tasks that are sorted by something else than their submission, at most."""
LIMIT_MAX: Final = 1_000
LOOK_EVERY_S: Final = 0.01


def wall_clock() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class Tables:
    """The projections in `folder`. `log`: where the events themselves are read, for histories. Thread-safe.

    Methods raise StoreFault (StoreMissing until a projector has begun) and, where they read events, LogFault.
    """

    def __init__(self, folder: Path, log: LogReader | None = None, clock: Callable[[], int] = wall_clock) -> None:
        self._reader = TablesReader(folder)
        self._log = log
        self._clock = clock

    def close(self) -> None:
        """Frees the tables; the log stays open."""
        self._reader.close()

    # ---- positions ----

    def positions(self) -> Position:
        """How far the tables are true, in every partition."""
        return self._reader.read(self._reader.position)

    def last_offsets(self) -> dict[int, int]:
        """For each partition in which events were folded, the offset of the last of them."""
        return self._reader.read(self._last_offsets)

    def reached(self, wanted: Position) -> Position | Refusal | None:
        """The position of the tables if it includes `wanted`, None if not yet; unknown_position for another log."""
        return self._reader.read(lambda store: self._reached(store, wanted))

    def wait_for(self, wanted: Position, timeout_s: float) -> Position | Refusal:
        """Waits until the tables include `wanted`; after `timeout_s`: behind, with the position reached."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.reached(wanted)
            if found is not None:
                return found
            if time.monotonic() >= deadline:
                return self.behind(wanted)
            time.sleep(LOOK_EVERY_S)

    def behind(self, wanted: Position) -> Refusal:
        """What is said to somebody for whom the tables come too late."""
        reached = str(self.positions())
        text = f"the tables have reached {reached}, not yet {wanted}"
        return Refusal("behind", text, retry_after_ms=1_000, extra={"position": reached})

    def _last_offsets(self, store: Store) -> dict[int, int]:
        ats = store.positions(self._reader.partitions)
        return {partition: at.last for partition, at in ats.items() if at.last >= 0}

    def _reached(self, store: Store, wanted: Position) -> Position | Refusal | None:
        here = self._reader.position(store)
        unknown = [partition for partition in wanted.offsets if partition not in here.offsets]
        if wanted.log[:8] != here.log[:8] or unknown:
            return Refusal("unknown_position", "this position is not one of this log")
        if any(here.offsets[partition] < offset for partition, offset in wanted.offsets.items()):
            return None
        for pool, sequence in wanted.sequences.items():
            progress: Progress | None = entity_of(store, Entity.PROGRESS, pool, "")
            if progress is None or progress["sequence"] < sequence:
                return None
        return here

    # ---- tasks ----

    def task(self, pool: str, task: str) -> Answer[TaskCard | None]:
        """The card of one task."""
        return self._answer(pool, lambda store: row_of(store, Table.TASKS, name_key(pool, task)))

    def payload(self, pool: str, task: str) -> Answer[dict[str, Any] | None]:
        """The payload, as a body."""
        return self._body(pool, task, PAYLOAD)

    def result(self, pool: str, task: str) -> Answer[dict[str, Any] | None]:
        """The result, as a body."""
        return self._body(pool, task, RESULT)

    def error_detail(self, pool: str, task: str) -> Answer[dict[str, Any] | None]:
        """The detail of the last failure, as a body."""
        return self._body(pool, task, ERROR_DETAIL)

    def checkpoints(self, pool: str, task: str) -> Answer[list[dict[str, Any]]]:
        """The newest checkpoints (at most CHECKPOINTS_KEPT), oldest first: number, attempt, saved_at, checkpoint."""

        def work(store: Store) -> list[dict[str, Any]]:
            card: TaskCard | None = row_of(store, Table.TASKS, name_key(pool, task))
            saved = [] if card is None else card.get("checkpoints", [])
            keys = [body_key(pool, task, CHECKPOINT, number) for number, _, _ in saved]
            return [
                {"number": number, "attempt": attempt, "saved_at": at, "checkpoint": load(content)}
                for (number, attempt, at), content in zip(saved, store.get_many(Table.BODIES, keys), strict=True)
                if content is not None
            ]

        return self._answer(pool, work)

    def tasks(
        self,
        filtered: Filter,
        sort: str = "-submitted",
        limit: int = 50,
        cursor: str | None = None,
        pools: Pools = None,
    ) -> Page[TaskCard] | Refusal:
        """Tasks that match, at most `limit` (up to LIMIT_MAX). `sort`: submitted or a word of SORTS, - for descending.

        Refused: bad_filter (a word too wide to list or sort), bad_cursor, cursor_expired.
        """
        by, backwards, limit = sort.removeprefix("-"), sort.startswith("-"), max(1, min(limit, LIMIT_MAX))
        if by != "submitted" and by not in SORTS:
            return Refusal("bad_filter", f"sort by one of submitted, {', '.join(SORTS)}; - before it for descending")
        listing = f"tasks\n{filtered}\n{sort}"
        shape = (int, str, int) if by == "submitted" else (int, int, str, int)
        key = None if cursor is None else read_cursor(listing, cursor, shape, self._clock())
        if isinstance(key, Refusal):
            return key

        def work(store: Store) -> Page[TaskCard] | Refusal:
            try:
                ranges = ranges_of(store, filtered, pools)
            except TooWide:
                return Refusal("bad_filter", "this list is too wide: name a pool, a kind or a state in the filter")
            if by == "submitted":
                behind = None if key is None else Place(key[0], key[1], key[2], "")
                found = self._in_order(store, filtered, places(store, ranges, behind, backwards), limit)
            else:
                sorted_ones = self._sorted(store, filtered, places(store, ranges, None, False), sort, key, limit)
                if isinstance(sorted_ones, Refusal):
                    return sorted_ones
                found = sorted_ones
            cards, last = found
            follows = None if last is None else make_cursor(listing, last, self._clock())
            return Page(cards, follows, self._reader.position(store, filtered.only("pool")))

        return self._reader.read(work)

    def dead_letters(
        self,
        filtered: Filter,
        sort: str = "-submitted",
        limit: int = 50,
        cursor: str | None = None,
        pools: Pools = None,
    ) -> Page[TaskCard] | Refusal:
        """Tasks that wait for an operator's decision, as `tasks`."""
        return self.tasks(filtered.adding("state", "DEAD"), sort, limit, cursor, pools)

    def count(self, filtered: Filter, pools: Pools = None) -> Answer[Count] | Refusal:
        """How many tasks match: from the figures where only pool, kind and state are asked about, else by looking."""

        def work(store: Store) -> Answer[Count] | Refusal:
            position = self._reader.position(store, filtered.only("pool"))
            if filtered.names() <= {"pool", "kind", "state"}:
                names = pools_of(store, filtered, pools)
                total = sum(sum(counted(store, pool, filtered).values()) for pool in names)
                return Answer(Count(total, True), position)
            try:
                ranges = ranges_of(store, filtered, pools)
            except TooWide:
                return Refusal("bad_filter", "this is too wide to count: name a pool, a kind or a state in the filter")
            found, now_at = places(store, ranges, None, False), self._clock()
            matching = sum(filtered.matches(card, now_at) for _, card in cards_of(store, islice(found, COUNTED_MAX)))
            return Answer(Count(matching, next(found, None) is None), position)

        return self._reader.read(work)

    def _in_order(
        self, store: Store, filtered: Filter, found: Iterator[Place], limit: int
    ) -> tuple[list[TaskCard], list[Any] | None]:
        """The first that match, and behind which place to go on (None: nowhere)."""
        cards: list[TaskCard] = []
        now_at, last = self._clock(), None
        for place, card in cards_of(store, islice(found, EXAMINED_MAX)):
            if filtered.matches(card, now_at):
                if len(cards) == limit:
                    return cards, last
                cards.append(card)
            last = list(place[:3])
        return cards, last if next(found, None) is not None else None

    def _sorted(
        self, store: Store, filtered: Filter, found: Iterator[Place], sort: str, behind: list[Any] | None, limit: int
    ) -> tuple[list[TaskCard], list[Any] | None] | Refusal:
        """As `_in_order`, sorted by a figure of the card; equal ones by submission."""
        figure, sign, now_at = SORTS[sort.removeprefix("-")], -1 if sort.startswith("-") else 1, self._clock()
        keyed = [
            ([sign * figure(card), *place[:3]], card)
            for place, card in cards_of(store, islice(found, SORTED_MAX))
            if filtered.matches(card, now_at)
        ]
        if next(found, None) is not None:
            text = f"more than {SORTED_MAX} tasks would be sorted by {sort}: narrow the filter, or sort by submitted"
            return Refusal("bad_filter", text)
        later = keyed if behind is None else [one for one in keyed if one[0] > behind]
        some = nsmallest(limit, later, key=lambda one: one[0])
        return [card for _, card in some], some[-1][0] if len(later) > limit else None

    # ---- robots, targets, pools ----

    def robot(self, pool: str, robot: str) -> Answer[RobotCard | None]:
        """The card of one robot."""
        return self._answer(pool, lambda store: entity_of(store, Entity.ROBOT, pool, robot))

    def robots(
        self, filtered: Filter, limit: int = 50, cursor: str | None = None, pools: Pools = None
    ) -> Page[RobotCard] | Refusal:
        """Robots that match, by pool and id. Refused: bad_cursor, cursor_expired."""

        def found(store: Store, behind: list[Any]) -> Iterator[tuple[list[Any], RobotCard]]:
            for pool in pools_of(store, filtered, pools):
                if [pool] >= behind[:1]:
                    name = behind[1] if [pool] == behind[:1] else ""
                    yield from (([pool, key], card) for key, card in entities_of(store, Entity.ROBOT, pool, name))

        return self._listed(f"robots\n{filtered}", found, filtered, limit, cursor, (str, str), filtered.only("pool"))

    def target(self, pool: str, target: str) -> Answer[TargetCard | None]:
        """One target; None where it has no open task, is not held and not paused."""
        return self._answer(pool, lambda store: entity_of(store, Entity.TARGET, pool, target))

    def targets(self, pool: str, limit: int = 50, cursor: str | None = None) -> Page[TargetCard] | Refusal:
        """The targets of a pool, by name. Refused: bad_cursor, cursor_expired."""
        return self._by_name(pool, Entity.TARGET, "targets", limit, cursor)

    def pools(self, pools: Pools = None) -> Answer[list[Overview]]:
        """All pools with their figures, by name."""

        def work(store: Store) -> list[Overview]:
            rows = progress_rows(store, None if pools is None else pools.__contains__)
            return [overview(store, row, self._clock()) for row in rows]

        return self._answer(None, work)

    def pool(self, pool: str) -> Answer[Overview | None]:
        """One pool with its figures and limits, or None."""

        def work(store: Store) -> Overview | None:
            row: Progress | None = entity_of(store, Entity.PROGRESS, pool, "")
            if row is None:
                return None
            return {**overview(store, row, self._clock()), "limits": limit_figures(store, pool)}

        return self._answer(pool, work)

    def figures(self, pool: str) -> Answer[list[Figures]]:
        """The queue figures of each kind of a pool."""
        return self._answer(pool, lambda store: kind_figures(store, pool, self._clock()))

    def stats(self, pool: str, start: int, end: int, step_ms: int) -> Answer[Stats | Refusal | None]:
        """Figures of a pool from `start` to `end` (ms since 1970), whole and by step; None where there is no such pool.

        Refused: invalid_field (`/from`, `/to`, `/step_s`) where that is empty, too long ago or too much at once.
        """

        def work(store: Store) -> Stats | Refusal | None:
            now_at = self._clock()
            span = span_of(start, end, step_ms, now_at)
            row: Progress | None = entity_of(store, Entity.PROGRESS, pool, "")
            if row is None:
                return None
            if isinstance(span, Refusal):
                return span
            return stats_of(store, pool, overview(store, row, now_at), span, max(now_at, row["last_at"]))

        return self._answer(pool, work)

    def schedule(self, pool: str, schedule: str) -> Answer[ScheduleCard | None]:
        """One schedule, or None."""
        return self._answer(pool, lambda store: entity_of(store, Entity.SCHEDULE, pool, schedule))

    def schedules(self, pool: str, limit: int = 50, cursor: str | None = None) -> Page[ScheduleCard] | Refusal:
        """The schedules of a pool, by name. Refused: bad_cursor, cursor_expired."""
        return self._by_name(pool, Entity.SCHEDULE, "schedules", limit, cursor)

    def limits(self, pool: str) -> Answer[list[LimitFigures]]:
        """The limits of a pool by scope and name, with how many tasks of each are held."""
        return self._answer(pool, lambda store: limit_figures(store, pool))

    def requirements_unmet(self, pool: str) -> Answer[list[RequirementCard]]:
        """Requirements that no registered robot of the pool can meet (at most LIMIT_MAX)."""
        return self._all(pool, Entity.REQUIREMENT)

    # ---- events ----

    def history(self, pool: str, task: str, behind: int = 0, limit: int = 100) -> Answer[list[Record]]:
        """The stored events of a task with a sequence above `behind`, oldest first, byte for byte from the log.

        Also of tasks that left the tables. Raises StoreCorrupt where the log has another record there.
        """
        places = self.history_places(pool, task, behind, limit)
        return Answer([self._event(pool, offset) for _, offset in places.value], places.position)

    def history_places(self, pool: str, task: str, behind: int = 0, limit: int = 100) -> Answer[list[tuple[int, int]]]:
        """(sequence, offset) of a task's events, for reading them from the log or from a copy with the same offsets."""
        return self._answer(pool, lambda store: history_of(store, pool, task, behind, max(1, min(limit, LIMIT_MAX))))

    def offset_of(self, pool: str, sequence: int) -> Answer[int | None]:
        """The offset of an event by its sequence."""
        return self._answer(pool, lambda store: offset_of(store, pool, sequence))

    def event(self, pool: str, sequence: int) -> Answer[Record | None]:
        """The stored event by its sequence, from the log."""
        found = self.offset_of(pool, sequence)
        return Answer(None if found.value is None else self._event(pool, found.value), found.position)

    def digest(self) -> str:
        """SHA-256 of all rows: equal for tables of the same events, however they were written."""
        return self._reader.read(rows_digest)

    # ---- inside ----

    def _event(self, pool: str, offset: int) -> Record:
        if self._log is None:
            raise ValueError("these tables were opened without a log to read events from")
        partition = partition_of(pool, self._log.partitions)
        record = self._log.read_at(Topic.EVENTS, partition, offset)
        if record is None or record.key != pool:
            raise StoreCorrupt(
                f"The projections expect an event of pool {pool} at offset {offset} of partition {partition}, and "
                "the log has none there: is it another log? A projector that is started on it builds the tables anew."
            )
        return record

    def _answer(self, pool: str | None, work: Callable[[Store], T]) -> Answer[T]:
        return self._reader.read(lambda store: Answer(work(store), self._reader.position(store, pool)))

    def _body(self, pool: str, task: str, letter: str) -> Answer[dict[str, Any] | None]:
        return self._answer(pool, lambda store: row_of(store, Table.BODIES, body_key(pool, task, letter)))

    def _all(self, pool: str, entity: Entity) -> Answer[list[Any]]:
        return self._answer(
            pool, lambda store: [card for _, card in islice(entities_of(store, entity, pool, ""), LIMIT_MAX)]
        )

    def _by_name(self, pool: str, entity: Entity, listing: str, limit: int, cursor: str | None) -> Page[Any] | Refusal:
        def found(store: Store, behind: list[Any]) -> Iterator[tuple[list[Any], Any]]:
            rows = entities_of(store, entity, pool, behind[0] if behind else "")
            return (([name], card) for name, card in rows)

        return self._listed(f"{listing}\n{pool}", found, None, limit, cursor, (str,), pool)

    def _listed(
        self,
        listing: str,
        found: Callable[[Store, list[Any]], Iterable[tuple[list[Any], Any]]],
        filtered: Filter | None,
        limit: int,
        cursor: str | None,
        shape: tuple[type, ...],
        pool: str | None,
    ) -> Page[Any] | Refusal:
        """A page of cards that lie in the order of their keys."""
        key = [] if cursor is None else read_cursor(listing, cursor, shape, self._clock())
        if isinstance(key, Refusal):
            return key
        limit, now_at = max(1, min(limit, LIMIT_MAX)), self._clock()

        def work(store: Store) -> Page[Any]:
            items: list[Any] = []
            last, follows = key, None
            for examined, (place, card) in enumerate(found(store, key)):
                if len(items) == limit or examined == EXAMINED_MAX:
                    follows = make_cursor(listing, last, now_at)
                    break
                if filtered is None or filtered.matches(card, now_at):
                    items.append(card)
                last = place
            return Page(items, follows, self._reader.position(store, pool))

        return self._reader.read(work)
