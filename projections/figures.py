"""Queue figures: how many tasks are in which state, per kind and pool, and since when the oldest waits."""

from collections import Counter
from typing import Any, TypedDict

from projections.cards import KindCard, PoolCard, Progress
from projections.limits import LimitFigures
from projections.rows import STATE_CODES, Entity, Index, Table, after, entity_key, index_range, index_tail, load
from projections.scans import kind_cards
from projections.store import Store


class Figures(TypedDict, total=False):
    """A kind's `counts` by state, its pause, and since when the longest waiting task of it could have run."""

    pool: str
    kind: str
    counts: dict[str, int]
    paused: dict[str, Any]
    oldest_waiting_at: int


class Overview(TypedDict, total=False):
    """A pool: its `card`, how far it is folded, robots and tasks by state, the oldest waiting, its kinds.

    `limits` where one pool is asked for.
    """

    card: PoolCard
    progress: Progress
    robots: dict[str, int]
    tasks: dict[str, int]
    oldest_waiting_at: int
    kinds: list[Figures]
    limits: list[LimitFigures]


def kind_figures(store: Store, pool: str, now_at: int) -> list[Figures]:
    """The figures of each kind of a pool, by name."""
    return [_figures(store, card, now_at) for card in kind_cards(store, pool)]


def _figures(store: Store, card: KindCard, now_at: int) -> Figures:
    figures: Figures = {"pool": card["pool"], "kind": card["kind"], "counts": card["counts"]}
    if "paused" in card:
        figures["paused"] = card["paused"]
    if card["counts"].get("WAITING"):
        oldest = _oldest_waiting(store, card["pool"], card["kind"], now_at)
        if oldest is not None:
            figures["oldest_waiting_at"] = oldest
    return figures


def _oldest_waiting(store: Store, pool: str, kind: str, now_at: int) -> int | None:
    """The earliest instant at which a waiting task became eligible, of those that are; one step in two indexes."""
    ranges = ((Index.STATE, STATE_CODES["WAITING"] + kind), (Index.DELAYED, kind))
    firsts = [_first(store, index_range(index, pool, group)) for index, group in ranges]
    eligible = [at for at in firsts if at is not None and at <= now_at]
    return min(eligible, default=None)


def _first(store: Store, prefix: bytes) -> int | None:
    for key, _ in store.scan(Table.INDEX, prefix, after(prefix)):
        return index_tail(key)[0]
    return None


def overview(store: Store, progress: Progress, now_at: int) -> Overview:
    """Everything about a pool as a whole."""
    pool = progress["pool"]
    kinds = kind_figures(store, pool, now_at)
    content = store.get(Table.ENTITIES, entity_key(Entity.POOL, pool))
    tasks: Counter[str] = Counter()
    for kind in kinds:
        tasks.update(kind["counts"])
    found: Overview = {
        "card": {"pool": pool} if content is None else load(content),
        "progress": progress,
        "robots": progress["robots"],
        "tasks": dict(sorted(tasks.items())),
        "kinds": kinds,
    }
    waiting = [kind["oldest_waiting_at"] for kind in kinds if "oldest_waiting_at" in kind]
    if waiting:
        found["oldest_waiting_at"] = min(waiting)
    return found
