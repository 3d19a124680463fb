"""What happened in a fleet, read from its log, for tests and for people."""

from typing import Any, Final

from pydantic_core import from_json

from commands.events import Event, TaskTransition, decode_event
from commands.vocabulary import ENDED_STATES
from fleetlog.sim.product import START_MS, Product
from fleetlog.telling import subject, tell
from streams.port import Record, Topic

LINES: Final = 40


class Story:
    """Follows `events` of the one partition."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._records: list[Record] = []
        self._events: list[Event] = []
        self._by_task: dict[str, list[Event]] = {}

    def events(self, task: str | None = None) -> list[Event]:
        """All events, or those about a task, in order."""
        self._read()
        return list(self._events if task is None else self._by_task.get(task, ()))

    def open_tasks(self) -> list[str]:
        """Ids of the tasks that have not ended."""
        self._read()
        return [task for task, events in self._by_task.items() if _state(events) not in ENDED_STATES]

    def told(self, task: str | None = None) -> str:
        """The last events in words, with the seconds since the fleet began."""
        self._read()
        lines = []
        for record in self._records:
            event: dict[str, Any] = from_json(record.value)
            if task in (None, event.get("task")):
                at_s = (event["occurred_at"] - START_MS) / 1_000
                kind = event["type"].partition(".")[0]
                said = " ".join(tell(event).splitlines())
                lines.append(f"{at_s:>9.3f} s  {kind:<22} {subject(event):<14} {said}")
        return "\n".join(["", *lines[-LINES:]])

    def _read(self) -> None:
        store = self._product.store
        away, store.away = store.away, False  # a test may look although nobody in the fleet can
        records = store.place(Topic.EVENTS, 0).records
        store.away = away
        for record in records[len(self._records) :]:
            event = decode_event(record.value)
            self._records.append(record)
            self._events.append(event)
            task = getattr(event, "task", None)
            if task is not None:
                self._by_task.setdefault(task, []).append(event)


def _state(events: list[Event]) -> str:
    return next((event.to for event in reversed(events) if isinstance(event, TaskTransition)), "")
