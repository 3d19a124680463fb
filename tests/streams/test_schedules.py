"""Schedules with real owners and a real clock: restart, hand-over, a commit without an answer, snapshots, an outage.

The book of firings (tests/support/ledger.py) reads the log alone: each instant once, or counted, in order.
"""

import time
from typing import Any

import pytest

from commands import inputs as i
from streams.memory_log import CommitFault, MemoryLog, MemoryStore
from tests.streams.test_owner import FAST, POOL, Office, wait_for
from tests.support.ledger import check_firings


def every_second(office: Office, name: str, overlap: Any = "allow", **more: Any) -> None:
    """A schedule with an instant a second."""
    task = i.Submission(task=name, kind="weld")
    body = i.ScheduleBody(schedule=name, every_ms=1_000, overlap=overlap, task=task, **more)
    assert office.ask(i.SetSchedule, body)["status"] == "accepted"


def fired(office: Office, name: str) -> list[int]:
    """The instants that became tasks of a schedule."""
    events: Any = office.events("TaskSubmitted")
    return [event.schedule.instant for event in events if event.schedule is not None and event.schedule.id == name]


def skipped(office: Office, name: str) -> list[Any]:
    """What was skipped."""
    events: Any = office.events("FiringsSkipped")
    return [event for event in events if event.schedule == name]


@pytest.mark.parametrize("fault", [None, *CommitFault])
def test_hand_overs_fire_no_instant_twice_and_lose_none(fault: CommitFault | None) -> None:
    """Owner after owner takes the partition while schedules fire, with snapshots in between; one commit goes wrong."""
    office = Office(MemoryStore(partitions=1), defaults=FAST, snapshot_events=1)
    office.open()
    every_second(office, "a")
    every_second(office, "b", "skip")
    every_second(office, "c", "queue_one", jitter_ms=900)
    for _ in range(5):
        seen = len(fired(office, "a"))
        if fault is not None:
            office.store.next_commits.append(fault)
        office.open()
        wait_for(lambda: len(fired(office, "a")) > seen)  # noqa: B023
    wait_for(lambda: MemoryLog(office.store).find_snapshots(0))
    assert len(fired(office, "b")) == len(fired(office, "c")) == 1
    check_firings(office.events())
    office.close()
    office.check()


def test_after_an_outage_the_latest_is_fired_and_the_others_are_counted() -> None:
    """Nobody decided for some seconds: the next owner says how many instants passed, and fires the latest."""
    office = Office(MemoryStore(partitions=1), defaults=FAST)
    office.open()
    every_second(office, "a")
    wait_for(lambda: fired(office, "a"))
    office.close()
    before = fired(office, "a")
    time.sleep(3.5)
    office.open()
    [event] = wait_for(lambda: skipped(office, "a"))
    assert (event.reason, event.first) == ("catch_up", before[-1] + 1_000)
    assert event.count >= 2
    wait_for(lambda: len(fired(office, "a")) > len(before))
    assert fired(office, "a")[len(before)] == event.last + 1_000
    check_firings(office.events())
    office.close()
    office.check()


def test_a_firing_reaches_its_robot_with_its_payload() -> None:
    """From the schedule to the handler: the payload is in the task's own event, as for any submission."""
    office = Office(MemoryStore(partitions=1), defaults=FAST)
    office.open()
    office.hello("r1")
    task = i.Submission(task="a", kind="weld", payload={"json": {"seam": 7}})
    office.ask(i.SetSchedule, i.ScheduleBody(schedule="a", every_ms=1_000, task=task))
    name = wait_for(lambda: office.events("TaskAssigned"))[0].task
    message = office.assigned(name)
    assert (message["payload"], name) == ({"seam": 7}, office.events("TaskSubmitted")[0].task)  # type: ignore[attr-defined]
    office.close()
    office.check()


def test_a_schedule_wakes_an_owner_that_has_nothing_else_to_do() -> None:
    """Total silence on every topic: the instant comes all the same."""
    office = Office(MemoryStore(partitions=1), defaults=FAST)
    office.open()
    every_second(office, "a")
    first = wait_for(lambda: fired(office, "a"))[0]
    submitted: Any = next(event for event in office.events("TaskSubmitted"))
    assert submitted.pool == POOL
    assert submitted.occurred_at - first < 60_000
    office.close()
    office.check()
