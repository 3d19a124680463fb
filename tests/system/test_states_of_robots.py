"""R1 and F26: how robots stand, and what an older message cannot change. Through HTTP and WebSocket, on a clock that
stands until it is moved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from robot_gateway.conformance.raw_robot import Closed
from tests.support.hall import LEASE_S, WINDOW_S, Hall


@pytest.fixture
def hall() -> Iterator[Hall]:
    """A pool as it is by default."""
    with Hall() as made:
        yield made


def test_r1_the_states_of_a_robot(hall: Hall) -> None:
    """It registers with capabilities: IDLE. Takes a task: BUSY. Finishes: IDLE. Falls silent: OFFLINE. Is back: IDLE.
    Reports a fault with a task at work: ERROR, keeps its lease, gets nothing new. Recovers: BUSY. Every change has an
    event, a time and a cause."""
    seen: list[dict[str, Any]] = []

    def note(state: str) -> None:
        hall.settle()
        card = hall.robot_card("r1")
        assert card["state"] == state
        seen.append(card)

    robot = hall.robot("r1", slots=2, capabilities=("gpu", "reach=2.5"))
    note("IDLE")
    assert seen[0]["capabilities"] == ["gpu", "reach=2.5"]
    hall.submit("t1", requirement=["gpu", "reach>=2"])
    robot.accept("t1")
    note("BUSY")
    robot.complete("t1")
    note("IDLE")
    hall.wait(4 * WINDOW_S)
    note("OFFLINE")
    hall.wait(WINDOW_S, robot)
    note("IDLE")
    hall.submit("t2")
    robot.accept("t2")
    robot.ask("fault", text="arm jammed", code="E7")
    note("ERROR")
    hall.submit("t3")
    hall.wait(LEASE_S + WINDOW_S, robot)
    assert (hall.state("t2"), hall.state("t3")) == ("RUNNING", "WAITING")
    assert hall.events("LeaseExpired") == []
    robot.ask("recovered")
    robot.accept("t3")
    note("BUSY")
    for task in ("t2", "t3"):
        assert robot.complete(task)["type"] == "ack"
    note("IDLE")
    robot.ask("bye")
    note("OFFLINE")
    causes = [card["cause"].removesuffix(".v1") for card in seen]
    assert causes == [
        "RobotSessionStarted", "TaskAssigned", "TaskCompleted", "WindowMissed", "WindowMissed",
        "RobotFaulted", "RobotRecovered", "TaskCompleted", "RobotSessionEnded",
    ]  # fmt: skip
    times = [card["since_at"] for card in seen]
    assert times == sorted(times)
    [fault] = hall.events("RobotFaulted")
    assert (fault.reason, fault.code, fault.text) == ("reported", "E7", {"json": "arm jammed"})
    assert all(event.caused_by and event.actor and event.occurred_at for event in hall.events(*causes))


@pytest.mark.parametrize("policy", ["requeue", "wait", "ask", "never"])
def test_f26_an_older_message_overwrites_nothing(hall: Hall, policy: str) -> None:
    """A robot drops out in the middle of a task and is OFFLINE. Its older idle messages, from the connection before and
    with numbers from before, arrive after that: they change nothing, and the task goes by its lost-robot policy."""
    first = hall.robot("r1")
    hall.submit("t1", on_lost={"policy": policy} | ({"wait_s": 60} if policy == "wait" else {}))
    first.accept("t1")
    second = hall.robot("r1", holding=[{"task": "t1", "attempt": 1, "started": True}])

    def old_messages() -> None:
        for kind, fields in (("recovered", {}), ("ready", {"n": 1})):
            of = second.next_id()
            second.send(json.dumps({"type": kind, "id": of, "epoch": second.epoch, "seq": 1, **fields}))
            assert second.answer_to(of)["reason"] == "invalid_field"
        hall.settle()

    assert second.ask("fault", text="jammed")["type"] == "ack"
    old_messages()
    assert hall.robot_card("r1")["state"] == "ERROR"
    assert second.ask("recovered")["type"] == "ack"
    hall.wait(LEASE_S + 2 * WINDOW_S)
    assert hall.robot_card("r1")["state"] == "OFFLINE"
    old_messages()
    with pytest.raises(Closed) as closed:
        first.ask("ready", n=1)
    assert closed.value.code == 4001
    hall.settle()
    assert hall.robot_card("r1")["state"] == "OFFLINE"
    assert hall.state("t1") == ("WAITING" if policy == "requeue" else "LOST")
    hall.wait(60 + WINDOW_S)
    assert hall.state("t1") == ("WAITING" if policy in ("requeue", "wait") else "LOST")
    if policy in ("ask", "never"):
        hall.verb("t1", "resolve", reason="seen on the camera")
        assert hall.state("t1") == "COMPLETED"
