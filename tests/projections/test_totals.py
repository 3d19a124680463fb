"""What is counted of a pool since its beginning."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from projections.totals import TOTALS
from tests.projections.world import World, replayed
from tests.support.stored_events import ListLog, write_lives

CASES: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("TaskAssigned.v1", {"waited_ms": 40}, {"waits": 1, "waited_ms": 40}),
    ("TaskCompleted.v1", {"ran_ms": 7}, {"runs": 1, "ran_ms": 7}),
    ("TaskCompleted.v1", {}, {}),
    ("LeaseExpired.v1", {"to": "WAITING"}, {"leases_expired": 1}),
    ("LeaseExpired.v1", {"dead_reason": "poison"}, {"leases_expired": 1, "dead_poison": 1}),
    ("AttemptFailed.v1", {"dead_reason": "failed"}, {"dead_failed": 1}),
    ("AttemptFailed.v1", {"to": "WAITING"}, {}),
    ("AttemptStopped.v1", {"dead_reason": "poison"}, {"dead_poison": 1}),
    ("LostWaitEnded.v1", {"dead_reason": "poison"}, {"dead_poison": 1}),
    ("TaskReleased.v1", {"dead_reason": "deadline"}, {"dead_deadline": 1}),
    ("DeadlinePassed.v1", {"then": "dead", "dead_reason": "deadline"}, {"deadline_dead": 1, "dead_deadline": 1}),
    ("DeadlinePassed.v1", {"then": "alarm"}, {"deadline_alarm": 1}),
    ("ReportedLate.v1", {"done_twice": True}, {"late_reports": 1, "done_twice": 1}),
    ("ReportedLate.v1", {"done_twice": False}, {"late_reports": 1}),
    ("ExpiryHeld.v1", {}, {"expiry_held": 1}),
    ("RequirementUnsatisfiable.v1", {}, {"unsatisfiable": 1}),
    ("RecordQuarantined.v1", {}, {"quarantined": 1}),
]


@pytest.mark.parametrize(("event", "fields", "counted"), CASES)
def test_an_event_counts_for(event: str, fields: dict[str, Any], counted: dict[str, int]) -> None:
    """One row for each rule; a second event adds to the first."""
    totals: dict[str, int] = {}
    TOTALS[event](totals, fields)
    assert totals == counted
    TOTALS[event](totals, fields)
    assert totals == {name: 2 * count for name, count in counted.items()}


def test_every_rule_has_a_row() -> None:
    """A new rule fails until it is tried here."""
    assert {event for event, _, _ in CASES} == set(TOTALS)


def test_totals_are_those_of_the_log(tmp_path: Path) -> None:
    """Over lives of tasks, through batches and restarts, they are what the events add up to."""
    world = World(tmp_path, begun=False)
    write_lives(world.log, seed=3, tasks=150)
    world.catch_up()
    wanted: dict[str, dict[str, int]] = {}
    for record in world.log.records():
        event = from_json(record.value)
        if event["type"] in TOTALS:
            TOTALS[event["type"]](wanted.setdefault(record.key, {}), event)
    found = {row["progress"]["pool"]: row["progress"]["totals"] for row in world.tables.pools().value}
    assert {pool: totals for pool, totals in found.items() if totals} == wanted
    assert any(totals.get("leases_expired") for totals in wanted.values())
    world.close()


def test_totals_do_not_depend_on_batches(tmp_path: Path) -> None:
    """Cut anywhere, the rows are the same."""
    log = ListLog()
    write_lives(log, seed=4, tasks=60)
    assert replayed(log, tmp_path / "a", records_max=1) == replayed(log, tmp_path / "b", records_max=64)
