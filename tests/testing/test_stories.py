"""Given what happened, when something is asked or said, then this follows."""

from typing import Any

import pytest

from fleetlog.testing import Fleet, after, command, dispatch, event, given, says
from robot_gateway.sdk.errors import BY_REASON

SUBMITTED = event("TaskSubmitted", task="t1", kind="weld", target="dock-1")
ROBOT = (event("RobotRegistered", robot="r1"), event("RobotSessionStarted", robot="r1"))
ASSIGNED = (SUBMITTED, *ROBOT, event("TaskAssigned", task="t1", robot="r1"))
RUNNING = (*ASSIGNED, event("LeaseStarted", task="t1"))


def test_given_events_when_a_command_then_events() -> None:
    """A waiting task is cancelled at once, a running one by asking its robot, an ended one not at all."""
    cancel = command("cancel", task="t1", reason="not wanted")
    given(SUBMITTED).when(cancel).then(event("TaskCancelled", task="t1", reason="not wanted"))
    given(*RUNNING).when(cancel).then(event("CancelRequested", robot="r1"))
    given(*RUNNING, event("TaskCompleted", task="t1")).when(cancel).then_refused("wrong_state")


def test_when_a_robot_says_something() -> None:
    """Its epoch and numbers are those of its session; the answer is there."""
    done = given(*RUNNING).when(says("r1", "complete", task="t1", attempt=1, result={"seam": 7}))
    done.then(event("TaskCompleted", robot="r1", result={"json": {"seam": 7}}))
    assert done.answer["type"] == "ack"
    given(*RUNNING).when(says("r1", "complete", task="t1", attempt=2)).then_refused("not_accepted")
    given(SUBMITTED).when(says("r1", "bye")).then_refused("no_session")


def test_when_time_passes() -> None:
    """Three windows without a heartbeat end a lease; the last of them says so."""
    quiet = given(*RUNNING, window_s=1, lease_s=3).when(after(4))
    assert [found.name for found in quiet.events] == ["WindowMissed"] * 3 + ["LeaseExpired"]
    given(*RUNNING, window_s=1, lease_s=3).when(after(2)).then(event("WindowMissed", attempts=[
        {"task": "t1", "attempt": 1, "missed": 1}]))  # fmt: skip


def test_inputs_may_be_given_too() -> None:
    """A history of what was asked and said, and the dispatcher's choice."""
    history = (says("r1", "hello", slots=2), says("r1", "ready", n=2))
    tasks = [command("submit", task=name, kind="weld", priority=priority) for name, priority in (("a", 0), ("b", 9))]
    given(*history, *tasks).when(dispatch()).then(event("TaskAssigned", task="b"), event("TaskAssigned", task="a"))
    given(*tasks).when(dispatch()).then_nothing()


def test_the_events_of_a_fleet_may_be_given() -> None:
    """What a fleet did is the history, and the rules are asked about it."""
    with Fleet() as fleet:
        fleet.robot("r1", kinds={"weld": lambda ctx, payload: payload})
        task = fleet.submit("weld", payload=5).wait()
    given(*fleet.events()).when(command("redrive", task=task.id)).then_refused("wrong_state")


def test_an_answer_is_there_or_raises() -> None:
    """What the one who asked was told; a refusal is the error of the SDK."""
    assert given(SUBMITTED).when(command("cancel", task="t1")).answer["state"] == "CANCELLED"
    with pytest.raises(BY_REASON["no_such_task"]):
        _ = given().when(command("cancel", task="t2")).answer


def test_what_does_not_follow_fails() -> None:
    """Too few, too many, other fields, another reason: each names what followed instead."""
    cancel = command("cancel", task="t1")
    cancelled = given(SUBMITTED).when(cancel)
    for check in (
        cancelled.then_nothing,
        lambda: cancelled.then(event("TaskCancelled"), event("TaskCancelled")),
        lambda: cancelled.then(event("TaskCancelled", task="t2")),
        lambda: cancelled.then(event("TaskCompleted", task="t1")),
        lambda: cancelled.then_refused("wrong_state"),
    ):
        with pytest.raises(AssertionError, match=r"there followed:\n  TaskCancelled \{'task': 't1'"):
            check()
    with pytest.raises(AssertionError, match="refused: no_such_task"):
        given().when(cancel).then_refused("wrong_state")


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("there is no event Nothing", lambda: event("Nothing")),
        ("TaskCancelled has no field robots", lambda: event("TaskCancelled", robots=1)),
        ("command cancel has no field why", lambda: command("cancel", task="t1", why="")),
        ("command cancel: task: Field required", lambda: command("cancel")),
        ("follows from a TaskAssigned", lambda: given(event("LeaseStarted", task="t1"))),
        ("follows from a TaskSubmitted", lambda: given(event("TaskAssigned", task="t1", robot="r1"))),
        ("AttemptFailed.*: Field required", lambda: given(event("AttemptFailed", task="t1"))),
        ("cannot have these settings", lambda: given(lease_s=1)),
    ],
)
def test_what_cannot_be_given_is_said_in_a_sentence(text: str, make: Any) -> None:
    """Types, fields, shapes, and events that nothing leads to."""
    with pytest.raises(ValueError, match=text):
        make()
