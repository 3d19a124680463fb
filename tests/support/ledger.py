"""The book of firings: from a log alone, whether every instant of every schedule was fired or skipped, once, in order.

It computes the instants anew and shares nothing with what decides but the calendar.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from commands.events import Event
from commands.instants import instants_after


def check_firings(events: Iterable[Event]) -> None:
    """Raises AssertionError with the first instant that is missing, comes twice, or out of order."""
    expected: dict[str, Iterator[int]] = {}
    for event in events:
        said: Any = event
        where = f"{event.name} {event.sequence}"
        if event.name == "ScheduleSet":
            since = said.occurred_at if said.since_at is None else said.since_at
            expected[said.schedule] = instants_after(said.every_ms, said.cron, said.zone, since)
        elif event.name == "TaskSubmitted" and said.schedule is not None and said.caused_by == "clock":
            instant = next(expected[said.schedule.id])
            assert instant == said.schedule.instant, f"{where}: {instant} was expected, {said.schedule.instant} fired"
            assert instant <= said.occurred_at, f"{where}: {instant} fired before its time"
        elif event.name == "FiringsSkipped":
            instants = list(islice(expected[said.schedule], said.count))
            assert (instants[0], instants[-1]) == (said.first, said.last), f"{where}: {instants[:3]} were expected"
            assert said.last <= said.occurred_at, f"{where}: {said.last} skipped before its time"
