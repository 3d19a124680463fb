"""R2, R3 and R5 through the public surface, on the embedded log and on a genuine Kafka broker, in real time."""

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_gateway.conformance.raw_robot import WebSocketRobot
from tests.support.broker import Broker
from tests.system.judge import judge
from tests.system.product import Part, Product, embedded, on_kafka, wait_until

WINDOW_S, LEASE_S = 1.0, 3.0


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The running product, on either log."""
    folder = tmp_path_factory.mktemp(request.param)
    made = embedded(folder) if request.param == "embedded" else _on_kafka(request, folder)
    made.start()
    yield made
    reader = made.reader()
    assert judge(reader, set(), []).findings == []
    reader.close()
    made.stop()


def _on_kafka(request: pytest.FixtureRequest, folder: Path) -> Product:
    broker: Broker = request.getfixturevalue("broker")
    return on_kafka(folder, broker.address)


@pytest.fixture
def kind() -> str:
    """A kind of its own for each test: only its robots can take its tasks."""
    return f"kind-{uuid.uuid4().hex[:8]}"


def robot(product: Product, name: str, kind: str) -> WebSocketRobot:
    """A robot that is ready for one task of `kind`."""
    made = WebSocketRobot(product.url, "default", f"{name}-{kind}")
    made.hello(slots=1, capabilities=[kind])
    made.ask("ready", n=1)
    return made


def shell_robot(product: Product, kind: str) -> Part:
    """A robot in a process of its own that does every task of `kind` at once, and beats."""
    made = Part(
        "robot", "robot", "--gateway", product.url, "--id", kind, "--kind", "scenario=true", "--capability", kind
    )
    made.start()
    return made


def submit(product: Product, kind: str) -> str:
    """One task for the robots of `kind`."""
    task = f"task-{uuid.uuid4().hex[:8]}"
    product.ask("POST", "/v1/pools/default/tasks", {"id": task, "kind": "scenario", "requirement": [kind]})
    return task


def begin(one: WebSocketRobot, task: str) -> int:
    """The robot takes the task; the attempt."""
    assignment = one.expect_where(lambda m: m["type"] == "assign" and m["task"] == task)
    assert one.ask("accept", task=task, attempt=assignment["attempt"])["type"] == "ack"
    return int(assignment["attempt"])


def history(product: Product, task: str) -> list[dict[str, Any]]:
    """The events of a task."""
    return list(product.ask("GET", f"/v1/pools/default/tasks/{task}/history")["items"])


def events_of(product: Product, task: str, name: str) -> list[dict[str, Any]]:
    """Those of one type, once there is one."""
    return list(
        wait_until(lambda: [event for event in history(product, task) if event["type"].startswith(f"{name}.")], 60)
    )


def test_r2_a_robot_vanishes_and_another_finishes(product: Product, kind: str) -> None:
    """The lease ends after its time, at latest one window more; another capable robot finishes the task."""
    task = submit(product, kind)
    first = robot(product, "a", kind)
    assert begin(first, task) == 1
    first.leave()
    second = shell_robot(product, kind)
    completed = events_of(product, task, "TaskCompleted")[0]
    assert (completed["attempt"], completed["robot"]) == (2, kind)
    expired, started = events_of(product, task, "LeaseExpired")[0], events_of(product, task, "LeaseStarted")[0]
    waited_ms = expired["occurred_at"] - started["occurred_at"]
    assert expired["last_window"] - expired["first_window"] == 1_000 * (LEASE_S - WINDOW_S)
    assert waited_ms >= 1_000 * LEASE_S
    assert product.ask("GET", f"/v1/pools/default/tasks/{task}?wait_s=30")["state"] == "COMPLETED"
    second.stop()


def test_r3_the_answer_was_lost_and_the_report_comes_again(product: Product, kind: str) -> None:
    """After reconnecting the robot reports again and gets the same ack; the task is completed once."""
    task = submit(product, kind)
    one = robot(product, "a", kind)
    attempt = begin(one, task)
    one.say("complete", task=task, attempt=attempt, result=7)
    one.leave()
    again = WebSocketRobot(product.url, "default", f"a-{kind}")
    again.hello(slots=1, capabilities=[kind], holding=[{"task": task, "attempt": attempt, "started": True}])
    answers = [again.ask("complete", task=task, attempt=attempt, result=7) for _ in range(2)]
    assert [answer["type"] for answer in answers] == ["ack", "ack"]
    assert len(events_of(product, task, "TaskCompleted")) == 1
    again.leave()


def test_r3_the_idempotency_key_is_the_same_for_every_attempt(product: Product, kind: str) -> None:
    """Given the task again, a robot sees from the key that it already did it."""
    task = submit(product, kind)
    one = robot(product, "a", kind)
    first = one.expect_where(lambda m: m["type"] == "assign" and m["task"] == task)
    one.ask("accept", task=task, attempt=1)
    one.ask("fail", task=task, attempt=1, **{"class": "retryable"}, error={"type": "jam", "message": "it is stuck"})
    second = one.expect_where(lambda m: m["type"] == "assign" and m["task"] == task)
    assert second["attempt"] == 2
    assert second["idempotency_key"] == first["idempotency_key"]
    one.ask("accept", task=task, attempt=2)
    one.ask("complete", task=task, attempt=2)
    one.leave()


def test_f01_a_lost_assignment_comes_back_by_accept_by(product: Product, kind: str) -> None:
    """The robot never answers the assignment: withdrawn after accept_s, not after the lease; counts for nothing."""
    task = submit(product, kind)
    one = robot(product, "a", kind)
    one.expect_where(lambda m: m["type"] == "assign" and m["task"] == task)
    one.leave()
    withdrawn, assigned = (
        events_of(product, task, "AssignmentWithdrawn")[0],
        events_of(product, task, "TaskAssigned")[0],
    )
    assert withdrawn["occurred_at"] - assigned["occurred_at"] >= 2_000
    found = product.ask("GET", f"/v1/pools/default/tasks/{task}")
    assert (found["failures"], found["lost"]) == (0, 0)
    product.ask("POST", f"/v1/pools/default/tasks/{task}/cancel", {})


@pytest.mark.parametrize("product", ["kafka"], indirect=True)
def test_r5_a_paused_owner_writes_nothing_more(product: Product, kind: str) -> None:
    """An owner is stopped past the session time-out and goes on: another decides meanwhile, nothing happens twice.

    The judge of the fixture reads the whole log afterwards: one writer, no gap, no id twice.
    """
    shell = Part(
        "robot", "robot", "--gateway", product.url, "--id", kind, "--kind", "scenario=true", "--capability", kind
    )
    shell.start()
    for owner in product.parts[:2]:
        owner.send(signal.SIGSTOP)
        meanwhile = submit(product, kind)
        assert len(events_of(product, meanwhile, "TaskCompleted")) == 1
        time.sleep(2.0)
        owner.send(signal.SIGCONT)
        after = submit(product, kind)
        assert len(events_of(product, after, "TaskCompleted")) == 1
    shell.stop()
