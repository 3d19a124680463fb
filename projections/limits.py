"""Limits as they stand: what was set, and how many tasks of each kind and key are held now."""

from collections import Counter
from itertools import islice
from typing import Final

from commands.limits import LIMITS_MAX
from commands.vocabulary import HELD_STATES
from projections.cards import KindCard, LimitCard
from projections.index_rows import codes_of
from projections.rows import Entity, Index
from projections.scans import Range, cards_of, entities_of, kind_cards, places
from projections.store import Store

HELD_MAX: Final = 10_000
"""Held tasks of a pool that are looked at for their limit keys; where there are more, keys have no count."""


class LimitFigures(LimitCard, total=False):
    """A limit and `held`, how many of its tasks are ASSIGNED, RUNNING or LOST."""

    held: int


def limit_figures(store: Store, pool: str) -> list[LimitFigures]:
    """The limits of a pool by scope and name."""
    cards: list[LimitCard] = [card for _, card in islice(entities_of(store, Entity.LIMIT, pool, ""), LIMITS_MAX)]
    if not cards:
        return []
    kinds = kind_cards(store, pool)
    held = {"kind": Counter({kind["kind"]: _held(kind) for kind in kinds})}
    if any(card["scope"] == "key" for card in cards) and sum(held["kind"].values()) <= HELD_MAX:
        held["key"] = _held_keys(store, pool, kinds)
    return [_with_count(card, held.get(card["scope"])) for card in cards]


def _with_count(card: LimitCard, held: Counter[str] | None) -> LimitFigures:
    found: LimitFigures = {**card}  # type: ignore[typeddict-item]
    if held is not None:
        found["held"] = held[card["name"]]
    return found


def _held(kind: KindCard) -> int:
    return sum(count for state, count in kind["counts"].items() if state in HELD_STATES)


def _held_keys(store: Store, pool: str, kinds: list[KindCard]) -> Counter[str]:
    ranges: list[Range] = [
        (Index.STATE, pool, code + kind["kind"])
        for kind in kinds
        for state in kind["counts"]
        if state in HELD_STATES
        for code in codes_of(state)
    ]
    found = cards_of(store, islice(places(store, ranges, None, False), HELD_MAX))
    return Counter(card["limit_key"] for _, card in found if "limit_key" in card)
