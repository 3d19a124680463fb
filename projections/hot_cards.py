"""The cards in memory: read from the store when first needed, written back together, one WriteBatch a batch.

A card is read at most once a batch and written at most once; open tasks stay in memory (bounded), so in the steady
state nothing is read at all. What is written does not depend on where batches end.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from commands.vocabulary import TERMINAL_STATES
from projections import pool_cards
from projections.cards import KindCard, PoolCard, Progress, TaskCard
from projections.index_rows import body_keys, index_keys, leaves_at, same_index
from projections.minutes import KEPT_MS, kept_from, row_name
from projections.rows import (
    Entity,
    Index,
    Table,
    after,
    dump,
    entity_key,
    history_key,
    index_range,
    index_tail,
    load,
    name_key,
    next_key,
    offsets_key,
    pack_numbers,
    tail_key,
)
from projections.store import At, Store

CARDS_MAX: Final = 50_000
"""How many open tasks, and how many other cards, stay in memory between batches."""
EXPIRED_PER_WRITE: Final = 500
NEVER: Final = 1 << 62

Key = tuple[Entity, str, str]
Rows = dict[Table, dict[bytes, bytes | None]]


class HotPool:
    """One pool in memory: how far it is folded, its hot cards, and what this batch changed.

    `before`: task -> its card as written, for each task looked at in this batch. `history`: task -> sequence, offset,
    sequence ... `offsets`: of consecutive sequences, the first of which is `first`. `next_expiry`: the earliest end
    among the ended tasks. `forgotten`: up to which instant rows of minutes have left. `kind_minutes`,
    `robot_steps`: those rows that this batch changes, by start and name.
    """

    __slots__ = (
        "before",
        "bodies",
        "cards",
        "first",
        "forgotten",
        "history",
        "kind_minutes",
        "last_at",
        "name",
        "next_expiry",
        "offsets",
        "partition",
        "robot_steps",
        "robots",
        "sequence",
        "totals",
    )

    def __init__(self, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.sequence = 0
        self.last_at = 0
        self.robots: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        self.cards: dict[str, TaskCard | None] = {}
        self.before: dict[str, TaskCard | None] = {}
        self.history: dict[str, list[int]] = {}
        self.bodies: dict[bytes, bytes | None] = {}
        self.offsets: list[int] = []
        self.first = 0
        self.next_expiry = NEVER
        self.forgotten: dict[Entity, int] = {}
        self.kind_minutes: dict[tuple[int, str], dict[str, int]] = {}
        self.robot_steps: dict[tuple[int, str], dict[str, int]] = {}


class HotCards:
    """Cards of all pools beside `store`. `ended_ms`: how long ended tasks stay in the tables, in event time.

    Methods raise StoreFault; after one the object is of no use.
    """

    def __init__(self, store: Store, ended_ms: int, cards_max: int = CARDS_MAX) -> None:
        self._store = store
        self._ended_ms = ended_ms
        self._cards_max = cards_max
        self._pools: dict[str, HotPool] = {}
        self._entities: dict[Key, Any] = {}
        self._dirty: dict[Key, Any] = {}  # what the card was; of robots only the state counts
        self._at: dict[int, At] = {}
        self._moved: set[int] = set()

    # ---- reading ----

    def pool(self, name: str, partition: int) -> HotPool:
        """A pool, new if nothing of it was folded yet."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = HotPool(name, partition)
            content = self._store.get(Table.ENTITIES, entity_key(Entity.PROGRESS, name))
            if content is not None:
                progress: Progress = load(content)
                pool.partition, pool.sequence = progress["partition"], progress["sequence"]
                pool.last_at, pool.robots = progress["last_at"], progress["robots"]
                pool.totals = progress["totals"]
            pool.next_expiry = self._first_end(name)
        return pool

    def task(self, pool: HotPool, name: str) -> TaskCard | None:
        """The card of a task; from here on it is watched for changes until the batch is written."""
        if name in pool.before:
            return pool.cards[name]
        if name not in pool.cards:
            content = self._store.get(Table.TASKS, name_key(pool.name, name))
            pool.cards[name] = None if content is None else load(content)
        card = pool.before[name] = pool.cards[name]
        return card

    def read_ahead(self, tasks: Iterable[tuple[str, str]]) -> None:
        """Reads the cards of these tasks (pool, task), which are not in memory, all at once."""
        wanted = list(tasks)
        contents = self._store.get_many(Table.TASKS, [name_key(pool, name) for pool, name in wanted])
        for (pool, name), content in zip(wanted, contents, strict=True):
            self._pools[pool].cards[name] = None if content is None else load(content)

    def entity(self, entity: Entity, pool: str, name: str = "") -> Any:
        """Any other card, or None."""
        key = (entity, pool, name)
        if key not in self._entities:
            content = self._store.get(Table.ENTITIES, entity_key(*key))
            self._entities[key] = None if content is None else load(content)
        return self._entities[key]

    def put(self, entity: Entity, pool: str, name: str, card: Any) -> None:
        """Sets any other card; None removes it."""
        key = (entity, pool, name)
        before = self.entity(*key)
        if key not in self._dirty:
            self._dirty[key] = before
        self._entities[key] = card

    def own(self, entity: Entity, pool: str, name: str) -> Any:
        """Any other card to be changed in place, or None. Copied once a batch, what it contains is not."""
        key = (entity, pool, name)
        card = self.entity(*key)
        if card is not None and key not in self._dirty:
            self._dirty[key] = card
            card = self._entities[key] = card.copy()
        return card

    def pool_card(self, pool: str) -> PoolCard:
        """The card of a pool, new if there is none."""
        card: PoolCard | None = self.entity(Entity.POOL, pool)
        return {"pool": pool} if card is None else card

    def kind_card(self, pool: str, kind: str) -> KindCard:
        """The card of a kind, new if there is none."""
        card: KindCard | None = self.entity(Entity.KIND, pool, kind)
        return {"pool": pool, "kind": kind, "counts": {}} if card is None else card

    def names_of(self, entity: Entity, pool: str) -> list[str]:
        """All names under which cards of a pool lie, in the store or in memory, sorted."""
        start = entity_key(entity, pool)
        names = {key[len(start) :].decode() for key, _ in self._store.scan(Table.ENTITIES, start, after(start))}
        names |= {name for kept, owner, name in self._entities if kept is entity and owner == pool}
        return sorted(names)

    def at(self, partition: int) -> At:
        """The position in a partition, to be moved by whoever folds; it is written with the batch."""
        self._moved.add(partition)
        at = self._at.get(partition)
        if at is None:
            at = self._at[partition] = At(0)
        return at

    # ---- writing ----

    def resume(self, positions: Mapping[int, At]) -> None:
        """Goes on from positions read from the store; ended tasks whose days were over then leave now."""
        self._at = dict(positions)
        start = Entity.PROGRESS.value.encode()
        for _, content in list(self._store.scan(Table.ENTITIES, start, after(start))):
            progress: Progress = load(content)
            pool = self.pool(progress["pool"], progress["partition"])
            self._expire(pool)
            self._forget_minutes(pool)
        self._shrink()

    def commit(self, positions: Mapping[int, int]) -> None:
        """Writes what changed and where the tables stand; `positions` may be ahead of the last event folded."""
        rows: Rows = {table: {} for table in Table}
        touched = [pool for pool in self._pools.values() if pool.offsets or pool.before]
        for pool in touched:
            self._collect(pool, rows)
        self._collect_entities(touched, rows)
        for partition, next_offset in positions.items():
            at = self.at(partition)
            at.next = max(at.next, next_offset)
        rows[Table.META].update((next_key(partition), self._at[partition].dump()) for partition in self._moved)
        self._store.write(rows)
        self._moved.clear()
        self._dirty.clear()
        for pool in touched:
            self._written(pool)
        for pool in touched:
            self._expire(pool)
            self._forget_minutes(pool)
        self._shrink()

    def _collect(self, pool: HotPool, rows: Rows) -> None:
        """The rows of a pool's tasks that differ from what is written."""
        tasks, index, bodies = rows[Table.TASKS], rows[Table.INDEX], rows[Table.BODIES]
        counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        bodies.update(pool.bodies)
        for name, before in pool.before.items():
            card = pool.cards[name]
            if card is before:
                continue
            tasks[name_key(pool.name, name)] = None if card is None else dump(card)
            if before is not None and card is not None and same_index(before, card):
                continue
            self._collect_index(pool, before, card, index)
            if before is not None:
                counts[before["kind"], before["state"]] -= 1
            if card is not None:
                counts[card["kind"], card["state"]] += 1
            elif before is not None:
                bodies.update(dict.fromkeys(body_keys(before)))
        for (kind, state), change in counts.items():
            if change:
                card_after = pool_cards.kind_counted(self.kind_card(pool.name, kind), state, change)
                self.put(Entity.KIND, pool.name, kind, card_after)
        history = rows[Table.HISTORY]
        for name, numbers in pool.history.items():
            history[history_key(pool.name, name, numbers[0])] = pack_numbers(numbers)
        if pool.offsets:
            history[offsets_key(pool.name, pool.first)] = pack_numbers(pool.offsets)

    def _collect_index(
        self, pool: HotPool, before: TaskCard | None, card: TaskCard | None, index: dict[bytes, bytes | None]
    ) -> None:
        former = set() if before is None else set(index_keys(before))
        if card is not None:
            name = card["id"].encode()
            for key in index_keys(card):
                if key in former:
                    former.discard(key)
                else:
                    index[key] = name
            ended_at = leaves_at(card)
            if ended_at is not None:
                pool.next_expiry = min(pool.next_expiry, ended_at)
        for key in former:
            index[key] = None

    def _collect_entities(self, touched: Iterable[HotPool], rows: Rows) -> None:
        entities = rows[Table.ENTITIES]
        for key, before in self._dirty.items():
            card = self._entities[key]
            entities[entity_key(*key)] = None if card is None else dump(card)
            if key[0] is Entity.ROBOT:
                robots = self._pools[key[1]].robots
                for one, change in ((before, -1), (card, 1)):
                    if one is not None:
                        robots[one["state"]] = robots.get(one["state"], 0) + change
        for pool in touched:
            progress: Progress = {
                "pool": pool.name,
                "partition": pool.partition,
                "sequence": pool.sequence,
                "last_at": pool.last_at,
                "robots": {state: count for state, count in sorted(pool.robots.items()) if count},
                "totals": dict(sorted(pool.totals.items())),
            }
            entities[entity_key(Entity.PROGRESS, pool.name)] = dump(progress)

    def _written(self, pool: HotPool) -> None:
        """What was changed is written; only open tasks stay in memory."""
        for name in pool.before:
            card = pool.cards[name]
            if card is None or card["state"] in TERMINAL_STATES:
                del pool.cards[name]
        pool.before, pool.history, pool.bodies, pool.offsets = {}, {}, {}, []
        pool.kind_minutes.clear()
        pool.robot_steps.clear()

    def _expire(self, pool: HotPool) -> None:
        """Ended tasks whose days are over leave the tables; their history stays."""
        horizon = pool.last_at - self._ended_ms
        while pool.next_expiry <= horizon:
            start = index_range(Index.ENDED, pool.name, "")
            end = start + tail_key(horizon + 1, 0)
            ended = list(islice(self._store.scan(Table.INDEX, start, end), EXPIRED_PER_WRITE))
            self.read_ahead((pool.name, name.decode()) for _, name in ended)
            for _, content in ended:
                self.task(pool, content.decode())
                pool.cards[content.decode()] = None
            rows: Rows = {table: {} for table in Table}
            self._collect(pool, rows)
            self._collect_entities([pool], rows)
            self._store.write(rows)
            self._dirty.clear()
            self._written(pool)
            pool.next_expiry = self._first_end(pool.name)

    def _forget_minutes(self, pool: HotPool) -> None:
        """Rows of minutes whose days are over leave the tables."""
        for entity in KEPT_MS:
            horizon = kept_from(entity, pool.last_at)
            if horizon <= pool.forgotten.get(entity, -1):
                continue
            start = entity_key(entity, pool.name)
            end = start + row_name(horizon, "").encode()
            while keys := [key for key, _ in islice(self._store.scan(Table.ENTITIES, start, end), EXPIRED_PER_WRITE)]:
                rows: Rows = {table: {} for table in Table}
                rows[Table.ENTITIES] = dict.fromkeys(keys)
                self._store.write(rows)
                for key in keys:
                    self._entities.pop((entity, pool.name, key[len(start) :].decode()), None)
            pool.forgotten[entity] = horizon

    def _first_end(self, pool: str) -> int:
        start = index_range(Index.ENDED, pool, "")
        for key, _ in self._store.scan(Table.INDEX, start, after(start)):
            return index_tail(key)[0]
        return NEVER

    def _shrink(self) -> None:
        """Keeps memory bounded: what was not used lately is read again when it is needed."""
        total = sum(len(pool.cards) for pool in self._pools.values())
        if total > self._cards_max or len(self._pools) > self._cards_max:
            self._pools.clear()
        if len(self._entities) > self._cards_max:
            self._entities.clear()
