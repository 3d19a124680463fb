"""What the checker of invariants knows of schedules: no instant is handled twice, and only due ones become tasks.

It computes no instants: that they are those of the pattern is not checked, which would need the same calendar.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

GONE_KEPT: Final = 100_000


@dataclass(slots=True)
class KnownSchedule:
    """A schedule, also when it is gone: up to which instant it was handled."""

    sequence: int = 0
    handled_at: int = 0
    paused: bool = False
    exists: bool = False


class KnownSchedules:
    """The schedules of a pool, as its events tell them."""

    def __init__(self) -> None:
        self._known: dict[str, KnownSchedule] = {}

    def sequence_of(self, name: str) -> int:
        """The sequence of the schedule's ScheduleSet."""
        return self._known[name].sequence

    def set(self, event: dict[str, Any]) -> str | None:
        """ScheduleSet; what is wrong with it, or None. Nothing of it makes an instant count again."""
        known = self._known.setdefault(event["schedule"], KnownSchedule())
        since = event.get("since_at", event["occurred_at"])
        known.sequence, known.paused = event["sequence"], known.paused and known.exists
        problem = f"instants since {since} count, those up to {known.handled_at} are handled"
        wrong = since < known.handled_at or since > event["occurred_at"]
        known.exists, known.handled_at = True, max(since, known.handled_at)
        if len(self._known) > GONE_KEPT:
            self._known.pop(next(name for name, row in self._known.items() if not row.exists), None)
        return problem if wrong else None

    def changed(self, event: dict[str, Any]) -> str | None:
        """SchedulePaused, ScheduleResumed, ScheduleDeleted."""
        known = self._known.get(event["schedule"])
        if known is None or not known.exists:
            return f"there is no schedule {event['schedule']}"
        if event["type"] == "ScheduleDeleted.v1":
            known.exists = False
        else:
            known.paused = event["type"] == "SchedulePaused.v1"
        return None

    def fired(self, event: dict[str, Any]) -> str | None:
        """TaskSubmitted of a schedule, at its time or by hand."""
        name, instant, at = event["schedule"]["id"], event["schedule"]["instant"], event["occurred_at"]
        known = self._known.get(name)
        if known is None or not known.exists:
            return f"there is no schedule {name}"
        if event["task"] != f"{name}@{datetime.fromtimestamp(instant / 1_000, UTC):%Y%m%dT%H%M%SZ}" or instant > at:
            return f"task {event['task']} is not that of {name} and an instant that has come"
        return self._handle(known, instant, instant, event)

    def skipped(self, event: dict[str, Any]) -> str | None:
        """FiringsSkipped."""
        known = self._known.get(event["schedule"])
        if known is None or not known.exists:
            return f"there is no schedule {event['schedule']}"
        first, last, count = event["first"], event["last"], event["count"]
        if not 1 <= count <= (last - first) // 1_000 + 1:
            return f"{count} instants do not lie between {first} and {last}"
        return self._handle(known, first, last, event)

    def _handle(self, known: KnownSchedule, first: int, last: int, event: dict[str, Any]) -> str | None:
        """By its time; what somebody fires by hand, or an owner states, is beside the instants."""
        if event["caused_by"] != "clock":
            return None
        handled, known.handled_at = known.handled_at, max(last, known.handled_at)
        if known.paused:
            return "the schedule is paused"
        if first <= handled:
            return f"instant {first} is not later than {handled}, up to which all were handled"
        return None if last <= event["occurred_at"] else f"instant {last} has not come"
