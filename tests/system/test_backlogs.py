"""F: backlogs, bursts, shares and delays through HTTP and WebSocket, hours passing in no time."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from commands.events import Event, decode_event
from robot_gateway.wire import instant_text
from streams.memory_log import MemoryLog
from streams.owner import OwnerSettings
from streams.port import Topic, partition_of
from streams.processor import Processor
from tests.support.site import Site, until
from tests.support.virtual_clock import VirtualClock
from tests.support.worker import Worker

POOL = "hall"
PATH = f"/v1/pools/{POOL}"
DEFAULTS = {"window_ms": 60_000, "lease_ms": 180_000, "accept_ms": 60_000}


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    """Moved by the test."""
    with VirtualClock() as made:
        yield made


@pytest.fixture
def site(clock: VirtualClock) -> Iterator[Site]:
    """A whole Fleetlog on that clock."""
    with Site(partitions=1, defaults=DEFAULTS) as made:
        yield made


def submit(site: Site, *tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """Many at once, in order; what was answered."""
    answers: list[dict[str, Any]] = []
    for first in range(0, len(tasks), 1_000):
        answer = site.client.post(f"{PATH}/tasks", json={"tasks": tasks[first : first + 1_000]})
        answers += answer.json()["tasks"]
    assert {row["status"] for row in answers} == {201}
    return answers


def events(site: Site, *names: str) -> list[Any]:
    """What is in the log, of these types."""
    records = site.store.place(Topic.EVENTS, partition_of(POOL, site.store.partitions)).records
    found: list[Event] = [decode_event(record.value) for record in list(records) if record.key == POOL]
    return [event for event in found if event.name in names]


def named(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    """Tasks with numbers as ids."""
    return [{"id": f"t{number}", "kind": "weld", **more} for number in range(first, first + count)]


def test_f04_a_backlog_is_worked_off_oldest_first(site: Site, clock: VirtualClock) -> None:
    """80 minutes without robots at a task a second, then a robot under continued input: the age of the oldest only
    falls until the backlog is gone; first in, first out within the priority."""
    for minute in range(80):
        submit(site, *named(60 * minute, 60))
        clock.advance(60)
    ages: list[int] = []
    known = 4_800

    def enough() -> bool:
        nonlocal known
        if robot.finished >= 200 * (len(ages) + 1):
            submit(site, *named(known, 20))
            known += 20
            clock.advance(20)
            waited = events(site, "TaskAssigned")[-1].waited_ms
            ages.append(waited)
        return bool(ages) and ages[-1] <= 40_000

    with Worker(site.url, POOL, "r1", slots=64) as robot:
        robot.work_until(enough)
    assert len(ages) > 20
    assert all(later < former for former, later in pairwise(ages))
    assert robot.order == [f"t{number}" for number in range(len(robot.order))]


def test_f10_equal_robots_get_equal_shares(site: Site) -> None:
    """1,000 tasks, 10 equal robots: the most and the least differ by at most one; also after another owner."""
    robots = [site.robot(f"r{number}", POOL) for number in range(10)]
    for robot in robots:
        robot.hello(slots=200, capabilities=[])
        robot.ask("ready", n=200)
    submit(site, *named(0, 500))
    assert shares_after(site, 500) == [50] * 10
    site.processor.close()
    site.processor = Processor(MemoryLog(site.store), OwnerSettings(name="other", software="test"))
    site.processor.start()
    submit(site, *named(500, 500))
    shares = shares_after(site, 1_000)
    assert max(shares) - min(shares) <= 1
    site.processor.close()
    for robot in robots:
        robot.connection.close_timeout = 0.1  # what it was told is left unread
        robot.leave()


def shares_after(site: Site, count: int) -> list[int]:
    """How many tasks each robot has, once so many were assigned."""
    until(lambda: site.client.get("/v1/tasks/count", params={"where": "state=ASSIGNED"}).json()["count"] == count)
    found = events(site, "TaskAssigned")
    return sorted(Counter(event.robot for event in found).values())


def test_f15_a_delay_longer_than_the_lease(site: Site, clock: VirtualClock) -> None:
    """Not before six hours from now, a lease of 180 s: not assigned before its time, and executed once."""
    six_hours_ms = clock.wall() + 21_600_000
    submit(site, {"id": "t1", "kind": "weld", "not_before": instant_text(six_hours_ms)})
    clock.advance(21_500)
    submit(site, *named(10, 5))
    with Worker(site.url, POOL, "r1", slots=1) as robot:
        robot.work_until(enough_of(robot, 5))
        assert "t1" not in robot.order
    clock.advance(120)
    with Worker(site.url, POOL, "r1", slots=1) as robot:
        robot.work_until(enough_of(robot, 1))
        assert robot.order == ["t1"]
    assigned = [event for event in events(site, "TaskAssigned") if event.task == "t1"]
    assert [event.occurred_at >= six_hours_ms for event in assigned] == [True]


def test_f25_a_burst_and_a_mismatch(site: Site) -> None:
    """1,000 at once and 2 robots: all queue, none fails, nothing goes to who cannot; a reject goes elsewhere."""
    tasks = named(0, 1_000)
    for number, task in enumerate(tasks):
        task["requirement"] = ["left" if number % 3 else "right"]
    submit(site, *tasks)
    for side in ("left", "right"):
        with Worker(site.url, POOL, side, slots=8, capabilities=[side]) as worker:
            worker.work_until(enough_of(worker, len([task for task in tasks if task["requirement"] == [side]])))
            assert {tasks[int(task[1:])]["requirement"][0] for task in worker.order} == {side}
    assert len(events(site, "TaskCompleted")) == 1_000
    assert events(site, "AttemptFailed", "LeaseExpired") == []
    first, second = site.robot("first", POOL), site.robot("second", POOL)
    for robot in (first, second):
        robot.hello(slots=1, capabilities=["left"])
        robot.ask("ready", n=1)
    submit(site, {"id": "odd", "kind": "weld", "requirement": ["left"]})
    given = first.expect("assign")
    assert first.ask("reject", task="odd", attempt=given["attempt"], reason="cannot")["type"] == "ack"
    assert second.expect("assign")["task"] == "odd"
    first.leave()
    second.leave()


def enough_of(robot: Worker, count: int) -> Callable[[], bool]:
    """So many have ended."""
    return lambda: robot.finished == count


@pytest.mark.parametrize(("target", "intervals"), [(None, 10), ("busy", 20)])
def test_f28_low_priority_runs_under_higher_load(
    site: Site, clock: VirtualClock, target: str | None, intervals: int
) -> None:
    """110 % load of priority 9 and one task of priority 0: nothing that became eligible more than ten ageing intervals
    after it (with a busy target: twice that) is served before it."""
    ageing_ms = 5_000
    assert site.client.post("/v1/pools", json={"pool": POOL, "settings": {"ageing_s": 5}}).is_success
    number = 0
    with Worker(site.url, POOL, "r1", slots=1) as robot:
        assert robot.ask("ready", n=0)["type"] == "ack"
        submit(site, {"id": "low", "kind": "weld", "priority": 0, **({"target": target} if target else {})})
        for second in range(5 * intervals + 30):
            for _ in range(2 if second % 10 == 0 else 1):
                on = {"target": target} if target and number % 2 else {}
                submit(site, {"id": f"t{number}", "kind": "weld", "priority": 9, **on})
                number += 1
            robot.say("ready", n=1)
            robot.work_until(enough_of(robot, second + 1))
            robot.say("ready", n=0)
            clock.advance(1)
    submitted = {event.task: event.occurred_at for event in events(site, "TaskSubmitted")}
    order = [event.task for event in events(site, "TaskAssigned")]
    before = order[: order.index("low")]
    assert before
    assert all(submitted[task] <= submitted["low"] + intervals * ageing_ms for task in before)


def test_f29_a_task_that_needs_more_slots_than_there_are(site: Site) -> None:
    """Said at once, in the answer to the submission, as an event, by `why` and in the metrics; it waits for who can."""
    with site.robot("r1", POOL) as small:
        small.hello(slots=4, capabilities=[])
        small.ask("ready", n=4)
        [answer] = submit(site, {"id": "t1", "kind": "weld", "slot_cost": 5})
        assert "slots>=5" in answer["task"]["unsatisfiable"]
        [said] = events(site, "RequirementUnsatisfiable")
        assert (said.slot_cost, said.missing, said.first_task) == (5, ["slots>=5"], "t1")
        [hold] = site.client.get(f"{PATH}/tasks/t1/why").json()["holds"]
        assert (hold["reason"], hold["slots_max"]) == ("unsatisfiable", 4)
        counted = f'fleetlog_unsatisfiable_total{{pool="{POOL}"}} 1.0'
        until(lambda: counted in site.client.get("/metrics").text.splitlines(), counted)
        with site.robot("r2", POOL) as large:
            large.hello(slots=5, capabilities=[])
            large.ask("ready", n=5)
            assert large.expect("assign")["task"] == "t1"
