"""What is counted of a pool since its beginning, beside its cards: figures that only grow, for charts and alarms.

`waited_ms` is the sum over all assignments, `waits` their number; `ran_ms` and `runs` those of all attempts that
completed; `dead_<reason>` counts the tasks that became dead letters, `deadline_<then>` the deadlines that passed.
"""

from collections.abc import Callable
from typing import Final

from projections.cards import Stored

Totals = dict[str, int]


def _add(totals: Totals, name: str, count: int = 1) -> None:
    totals[name] = totals.get(name, 0) + count


def _assigned(totals: Totals, event: Stored) -> None:
    _add(totals, "waits")
    _add(totals, "waited_ms", event["waited_ms"])


def _completed(totals: Totals, event: Stored) -> None:
    if "ran_ms" in event:
        _add(totals, "runs")
        _add(totals, "ran_ms", event["ran_ms"])


def _maybe_dead(totals: Totals, event: Stored) -> None:
    reason = event.get("dead_reason")
    if reason is not None:
        _add(totals, f"dead_{reason}")


def _deadline_passed(totals: Totals, event: Stored) -> None:
    _add(totals, f"deadline_{event['then']}")
    _maybe_dead(totals, event)


def _expired(totals: Totals, event: Stored) -> None:
    _add(totals, "leases_expired")
    _maybe_dead(totals, event)


def _late(totals: Totals, event: Stored) -> None:
    _add(totals, "late_reports")
    if event.get("done_twice"):
        _add(totals, "done_twice")


def _held(totals: Totals, event: Stored) -> None:
    _add(totals, "expiry_held")


def _unsatisfiable(totals: Totals, event: Stored) -> None:
    _add(totals, "unsatisfiable")


def _quarantined(totals: Totals, event: Stored) -> None:
    _add(totals, "quarantined")


TOTALS: Final[dict[str, Callable[[Totals, Stored], None]]] = {
    "TaskAssigned.v1": _assigned,
    "TaskCompleted.v1": _completed,
    "LeaseExpired.v1": _expired,
    "AttemptFailed.v1": _maybe_dead,
    "AttemptStopped.v1": _maybe_dead,
    "LostWaitEnded.v1": _maybe_dead,
    "TaskReleased.v1": _maybe_dead,
    "DeadlinePassed.v1": _deadline_passed,
    "ReportedLate.v1": _late,
    "ExpiryHeld.v1": _held,
    "RequirementUnsatisfiable.v1": _unsatisfiable,
    "RecordQuarantined.v1": _quarantined,
}
"""Events that count for something."""
