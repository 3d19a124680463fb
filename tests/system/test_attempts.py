"""R2, R3 and F01: an attempt whose robot vanishes, whose answer is lost, or whose assignment never arrives.

Through HTTP and WebSocket, on a clock that stands; in real time, and on Kafka too, test_scenarios.py plays them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hall import LEASE_S, WINDOW_S, Hall


@pytest.fixture
def hall() -> Iterator[Hall]:
    """A pool as it is by default."""
    with Hall() as made:
        yield made


@pytest.mark.parametrize("handed_over", [False, True], ids=["one owner", "another owner"])
def test_r2_a_robot_vanishes_and_another_finishes(hall: Hall, handed_over: bool) -> None:
    """Its lease ends after its time, at latest one window more; counted from the hand-over where there was one. A robot
    that can finishes the task, one that cannot is not asked; nothing stays RUNNING."""
    vanishing = hall.robot("r1", capabilities=("gpu",))
    hall.submit("t1", requirement=["gpu"])
    vanishing.accept("t1")
    cannot, can = hall.robot("r2"), hall.robot("r3", capabilities=("gpu",))
    hall.wait(WINDOW_S / 2, vanishing, cannot, can)
    vanishing.leave()
    counted_from = hall.clock.wall() - round(1_000 * WINDOW_S / 2)
    if handed_over:
        hall.wait(WINDOW_S / 2, cannot, can)
        counted_from = hall.clock.wall()
        hall.next_owner()
    hall.wait(LEASE_S - WINDOW_S / 2, cannot, can)
    assert hall.events("LeaseExpired") == []
    hall.wait(1.5 * WINDOW_S, cannot, can)
    [(after_s, task)] = hall.since(counted_from, "LeaseExpired")
    assert task == "t1"
    assert LEASE_S <= after_s <= LEASE_S + WINDOW_S
    assert can.accept("t1") == 2
    assert can.complete("t1")["type"] == "ack"
    assert hall.state("t1") == "COMPLETED"
    assert [event.robot for event in hall.events("TaskAssigned")] == ["r1", "r3"]


def test_r3_the_answer_was_lost_and_the_report_comes_again(hall: Hall) -> None:
    """The robot reconnects and says the same again, twice: the same ack, and the task is completed once."""
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    robot.say("complete", task="t1", attempt=1, result=7)
    hall.settle()
    robot.leave()
    again = hall.robot("r1", holding=[{"task": "t1", "attempt": 1, "started": True}])
    answers = [again.complete("t1", 1, result=7) for _ in range(2)]
    assert [(answer["type"], answer.get("late", False)) for answer in answers] == [("ack", False)] * 2
    [completed] = hall.events("TaskCompleted")
    assert completed.result == {"json": 7}
    assert hall.events("ReportedLate") == []


def test_r3_the_idempotency_key_is_the_same_for_every_attempt(hall: Hall) -> None:
    """Given the task again after its lease was lost, a robot sees by the key that it did it already."""
    keys: list[str] = []
    for name in ("r1", "r2"):
        robot = hall.robot(name)
        if not keys:
            hall.submit("t1")
        given = robot.expect("assign")
        keys.append(given["idempotency_key"])
        robot.ask("accept", task="t1", attempt=given["attempt"])
        robot.leave()
        hall.wait(LEASE_S + WINDOW_S)
    assert len(set(keys)) == 1
    assert hall.task("t1")["lost"] == 2


def test_f01_an_assignment_that_is_lost_comes_back_by_its_accept_by(hall: Hall) -> None:
    """With a lease of two hours: after five seconds it is given again, as the next attempt; it counts as no failure."""
    robot = hall.robot("r1")
    hall.submit("t1", lease_s=7_200)
    assert robot.expect("assign")["attempt"] == 1
    began = hall.clock.wall()
    hall.wait(WINDOW_S, robot)
    assert hall.since(began, "AssignmentWithdrawn") == [(5.0, "t1")]
    assert robot.accept("t1") == 2
    task = hall.task("t1")
    assert [task[name] for name in ("state", "attempt", "failures", "lost")] == ["RUNNING", 2, 0, 0]
