"""What a reader of events sees: the pools of its token, the types and the filter that it asked for, without bodies
for viewers."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json

from projections.filters import Filter
from robot_gateway.past_events import occurred_at
from robot_gateway.tokens import Principal
from streams.port import Record

OF_THE_TASK: Final = frozenset({"kind", "target"})
"""Fields that only the first event of a task has; for the others the task is looked up."""
_LISTS: Final = ("items", "attempts")
_BODIES: Final = frozenset({"payload", "result", "checkpoint", "note", "text", "error"})

CardOf = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]


@dataclass(slots=True, frozen=True)
class EventView:
    """One reader's view. Call it with a record to get the value to show, or None.

    `types` are event types without version (empty: all). `from_ms`, `to_ms` bound `occurred_at`, both inclusive.
    """

    principal: Principal
    partitions: list[int]
    filter: Filter
    types: frozenset[str] = frozenset()
    from_ms: int | None = None
    to_ms: int | None = None

    def __call__(self, record: Record) -> bytes | None:
        """What is shown of `record`, as far as the event alone can say."""
        kind = (record.header("type") or b"").decode("ascii", "replace").partition(".")[0]
        if (self.types and kind not in self.types) or not self.principal.covers_pool(record.key):
            return None
        if not self._in_time(record) or not self._matches(record.value):
            return None
        return record.value if self.principal.may("read_bodies") else without_bodies(record.value)

    @property
    def asks_tasks(self) -> bool:
        """Whether `confirms` has something to say."""
        return bool(self.filter.names() & OF_THE_TASK)

    async def confirms(self, value: bytes, card_of: CardOf) -> bool:
        """Whether the task that the event is about has the kind and target that were asked for."""
        event = from_json(value)
        parts = Filter("event", tuple(p for p in self.filter.parts if p.name in OF_THE_TASK))
        for said in _said_about(event):
            card = None
            if isinstance(said.get("task"), str) and "kind" not in said:
                card = await card_of(said["pool"], said["task"])
            known = {name: card[name] for name in OF_THE_TASK if name in card} if card else {}
            if parts.matches({**known, **said}, now_ms()):
                return True
        return False

    def _in_time(self, record: Record) -> bool:
        if self.from_ms is None and self.to_ms is None:
            return True
        at = occurred_at(record)
        return (self.from_ms is None or at >= self.from_ms) and (self.to_ms is None or at <= self.to_ms)

    def _matches(self, value: bytes) -> bool:
        parts = Filter("event", tuple(p for p in self.filter.parts if p.name not in OF_THE_TASK))
        if not parts.parts:
            return True
        return any(parts.matches(said, now_ms()) for said in _said_about(from_json(value)))


def _said_about(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The event, or what it says about each task where it names several."""
    several = next((event[name] for name in _LISTS if event.get(name)), None)
    return [event] if several is None else [event, *({**event, **item} for item in several)]


def without_bodies(value: bytes) -> bytes:
    """An event without what submitters and robots put in."""
    event = from_json(value)
    shown = {name: inner for name, inner in event.items() if name not in _BODIES}
    if isinstance(shown.get("task"), dict):  # a schedule's submission
        shown["task"] = {name: inner for name, inner in shown["task"].items() if name not in _BODIES}
    for name in _LISTS:
        if isinstance(shown.get(name), list):
            shown[name] = [{k: v for k, v in item.items() if k not in _BODIES} for item in shown[name]]
    return to_json(shown)


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
