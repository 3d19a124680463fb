"""F: robots that fall silent, or nearly so. Through HTTP and WebSocket, on a clock that stands until it is moved: which
lease ends, in which window, and what ends none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from streams.port import Topic
from tests.support.hall import LEASE_S, WINDOW_S, Hall, Hand
from tests.support.site import until


@pytest.fixture
def hall() -> Iterator[Hall]:
    """A pool as it is by default."""
    with Hall() as made:
        yield made


def say_in_the_log(hall: Hall, robot: Hand, kind: str, **fields: object) -> str:
    """The robot says something, and it is in the log, whether or not the owner has seen it."""
    there = len(hall.site.store.place(Topic.REPORTS, 0).records)
    of = robot.say(kind, **fields)
    until(lambda: len(hall.site.store.place(Topic.REPORTS, 0).records) > there, "the report")
    return of


def test_f09_beats_that_come_late_cost_no_lease(hall: Hall) -> None:
    """Beats 0 to 3 intervals late, so that windows are missed now and then: no lease ends before three in a row were.

    That a handler which computes does not stop beats: test_f09_heartbeats_go_on_while_a_handler_computes of the SDK.
    """
    dice = random.Random(9)
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    for _ in range(60):
        hall.wait(WINDOW_S / 2 * (1 + dice.choice((0, 1, 2, 3))))
        robot.beat()
    assert len(hall.events("WindowMissed")) > 10
    assert hall.events("LeaseExpired") == []
    assert hall.state("t1") == "RUNNING"
    last = hall.clock.wall()
    hall.wait(LEASE_S + WINDOW_S)
    [(after_s, task)] = hall.since(last, "LeaseExpired")
    assert task == "t1"
    assert LEASE_S <= after_s <= LEASE_S + WINDOW_S


@pytest.mark.parametrize("first", ["completed", "expired"])
def test_f11_completion_and_expiry_in_both_orders(hall: Hall, first: str) -> None:
    """Whichever is first in the log wins; the other is nothing, or a late report that a newer attempt does not feel."""
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    other = hall.robot("r2")
    if first == "completed":
        hall.wait(LEASE_S, other)
        assert robot.complete("t1")["type"] == "ack"
        hall.wait(LEASE_S, other)
        assert hall.events("LeaseExpired", "ReportedLate") == []
        assert hall.state("t1") == "COMPLETED"
        return
    hall.wait(LEASE_S + WINDOW_S, other)
    assert other.accept("t1") == 2
    assert robot.complete("t1", result="first")["late"] is True
    assert hall.state("t1") == "RUNNING"
    assert other.complete("t1", result="second")["type"] == "ack"
    [completed] = hall.events("TaskCompleted")
    assert (completed.attempt, completed.robot, completed.late) == (2, "r2", False)


def test_f12_nothing_runs_for_longer_than_a_lease_and_a_window_without_a_heartbeat_that_names_it(hall: Hall) -> None:
    """Of ten robots some beat on without naming what they hold, some fall silent, each at a moment of its own. A task
    that is not named is RUNNING for at most a lease and a window more; each is counted in the metrics, for an alarm."""
    dice = random.Random(12)
    robots = [hall.robot(f"r{number}", capabilities=(f"c{number}",)) for number in range(10)]
    named_at: dict[str, int] = {}
    forgets_at: dict[str, float] = {}
    for number, robot in enumerate(robots):
        hall.submit(f"t{number}", requirement=[f"c{number}"])
        robot.accept(f"t{number}")
        forgets_at[robot.robot] = dice.uniform(0, 60)
    passed_s = 0.0
    while passed_s < 100:
        for robot in robots:
            if passed_s >= forgets_at[robot.robot]:
                robot.holds.clear()
            named_at |= dict.fromkeys(robot.holds, hall.clock.wall())
        beating = [robot for robot in robots if robot.holds or int(robot.robot[1:]) % 2]
        hall.wait(WINDOW_S / 2, *beating)
        passed_s += WINDOW_S / 2
    first_end = {event.task: event.occurred_at for event in reversed(hall.events("LeaseExpired"))}
    silent_s = {task: (at - named_at[task]) / 1_000 for task, at in first_end.items()}
    assert sorted(silent_s) == sorted(named_at) == [f"t{number}" for number in range(10)]
    assert all(LEASE_S <= seconds <= LEASE_S + WINDOW_S for seconds in silent_s.values()), silent_s
    assert hall.site.client.get("/v1/tasks/count", params={"where": "state=RUNNING"}).json()["count"] == 0
    ended = len(hall.events("LeaseExpired"))
    counted = f'fleetlog_leases_expired_total{{pool="hall"}} {ended}.0'
    until(lambda: counted in hall.site.client.get("/metrics").text.splitlines(), counted)


def test_f17_total_silence(hall: Hall) -> None:
    """One lease, and nothing else on any topic from then on: it ends, by time alone."""
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    robot.leave()
    began = hall.clock.wall()
    inputs = [len(hall.site.store.place(topic, 0).records) for topic in (Topic.REPORTS, Topic.COMMANDS)]
    hall.wait(LEASE_S)
    assert hall.since(began, "LeaseExpired") == []
    hall.wait(WINDOW_S)
    assert hall.since(began, "LeaseExpired") == [(LEASE_S + WINDOW_S, "t1")]
    assert [len(hall.site.store.place(topic, 0).records) for topic in (Topic.REPORTS, Topic.COMMANDS)] == inputs
    assert hall.state("t1") == "WAITING"


def test_f18_a_completion_in_the_log_is_not_overtaken_by_time(hall: Hall) -> None:
    """The report is in the log, no owner and no table has seen it, by then the lease is long over: it is completed."""
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    hall.wait(LEASE_S)
    hall.site.stop_projector()
    with hall.owner_stands_still():
        of = say_in_the_log(hall, robot, "complete", task="t1", attempt=1, result=7)
        hall.clock.advance(10 * LEASE_S)
    assert robot.answer_to(of)["type"] == "ack"
    hall.wait(2 * LEASE_S)
    assert hall.events("LeaseExpired", "ReportedLate") == []
    [completed] = hall.events("TaskCompleted")
    assert (completed.attempt, completed.late) == (1, False)
    hall.site.start_projector()
    assert hall.state("t1") == "COMPLETED"


@pytest.mark.parametrize("others", [0, 5])
def test_f20_a_lease_ends_at_the_same_time_whoever_else_speaks(hall: Hall, others: int) -> None:
    """With heartbeats of other robots flowing, and with none at all."""
    robot = hall.robot("r1", capabilities=("gpu",))
    hall.submit("t1", requirement=["gpu"])
    robot.accept("t1")
    beside = [hall.robot(f"o{number}") for number in range(others)]
    began = hall.clock.wall()
    hall.wait(3 * LEASE_S, *beside)
    assert hall.since(began, "LeaseExpired") == [(LEASE_S + WINDOW_S, "t1")]


def test_f21_a_hand_over_while_many_leases_are_close_to_their_end() -> None:
    """1,000 leases in their last window, then another owner: each ends exactly once, none before three windows of the
    new owner, and all at latest one window after that and the one for which so many at once are held."""
    with Hall(accept_ms=600_000) as hall:
        robots = [hall.robot(f"r{number}", slots=100) for number in range(10)]
        tasks = [{"id": f"t{number}", "kind": "weld"} for number in range(1_000)]
        hall.site.client.post("/v1/pools/hall/tasks", json={"tasks": tasks}).raise_for_status()
        for robot in robots:
            given = [robot.expect("assign") for _ in range(100)]
            said = [robot.say("accept", task=one["task"], attempt=1) for one in given]
            assert {robot.answer_to(of)["type"] for of in said} == {"ack"}
        hall.wait(LEASE_S + WINDOW_S / 2)
        assert hall.events("LeaseExpired") == []
        handed_over = hall.clock.wall()
        hall.next_owner()
        hall.wait(LEASE_S)
        assert hall.events("LeaseExpired") == []
        hall.wait(2 * WINDOW_S)
        ended = hall.since(handed_over, "LeaseExpired")
        assert Counter(task for _, task in ended) == Counter(f"t{number}" for number in range(1_000))
        assert max(after_s for after_s, _ in ended) <= LEASE_S + 2 * WINDOW_S
        assert len(hall.events("ExpiryHeld")) == 1


@pytest.mark.parametrize("set_s", [60, -60, 3_600, -3_600, 63_072_000, -63_072_000])
def test_f27_a_wall_clock_that_is_set(hall: Hall, set_s: int) -> None:
    """The owner's by a minute, an hour, two years, forward or back, then another owner's that is right: a robot that
    beats keeps its lease, one that is silent loses it in its window; nothing took a negative time, and the log is in
    order. (No message of a robot carries an instant, so its clock is nowhere asked.)"""
    beats, silent = hall.robot("r1", capabilities=("a",)), hall.robot("r2", capabilities=("b",))
    began = hall.clock.boot()
    for task, robot in (("a1", beats), ("b1", silent)):
        hall.submit(task, requirement=[task[0]])
        robot.accept(task)
    hall.wait(LEASE_S / 3, beats)
    hall.clock.set_wall(set_s)
    while not hall.events("LeaseExpired"):
        hall.wait(WINDOW_S / 2, beats)
        assert hall.clock.boot() - began <= 1_000 * (LEASE_S + WINDOW_S) * 1.01 + 1_000 * WINDOW_S / 2
    assert hall.clock.boot() - began >= 1_000 * LEASE_S
    hall.clock.set_wall(-set_s)
    hall.next_owner()
    hall.wait(2 * LEASE_S, beats)
    assert [event.task for event in hall.events("LeaseExpired")] == ["b1"]
    assert beats.complete("a1")["type"] == "ack"
    times = [event.occurred_at for event in hall.events(*ALL)]
    assert times == sorted(times)
    [completed] = hall.events("TaskCompleted")
    assert completed.ran_ms >= 0
    assert all(event.waited_ms >= 0 for event in hall.events("TaskAssigned"))
    shown = [event["sequence"] for event in hall.history("a1")]
    assert shown == sorted(shown)


ALL = ("TaskSubmitted", "TaskAssigned", "LeaseStarted", "WindowMissed", "LeaseExpired", "TaskCompleted")
