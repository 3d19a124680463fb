"""What a robot does in the product it does in the kit."""

from pathlib import Path
from typing import Any

import pytest

from fleetlog.testing import FAULTS, Fleet, after, command, dispatch, event, given, says
from robot_gateway.sdk import Reject, Robot, TaskContext
from robot_gateway.sdk.errors import NotJson


@pytest.fixture
def fleet() -> Any:
    """Short windows."""
    with Fleet(window_s=1, lease_s=3) as made:
        yield made


def waits(ctx: TaskContext, payload: float) -> str:
    """Ends after so many seconds, or when it is told to."""
    if ctx.sleep(payload):
        raise ctx.Stopped
    return "done"


def test_the_check_of_a_handler_is_asked(fleet: Fleet) -> None:
    """A Reject stands in the task's history, and so does a fault of the check; another robot takes the task."""

    def cell(name: str, volts_max: int) -> Robot:
        robot = Robot(name)

        def is_safe(assign: Any) -> None:
            if assign.payload["volts"] > volts_max:
                raise Reject("unsafe", f"{name} takes up to {volts_max} V")

        @robot.task("weld", check=is_safe)
        def weld(ctx: TaskContext, payload: Any) -> str:
            return name

        return robot

    fleet.robot_like(cell("small", 200))
    tasks = [fleet.submit("weld", payload) for payload in ({"volts": 300}, {})]
    fleet.advance(seconds=2)
    rejected = {e.task: (e.reason, e.text["json"]) for e in fleet.events("AssignmentRejected")}
    assert rejected == {
        tasks[0].id: ("unsafe", "small takes up to 200 V"),
        tasks[1].id: ("other", "KeyError: 'volts'"),
    }
    fleet.robot_like(cell("large", 400))
    assert tasks[0].wait().result == "large"
    tasks[1].cancel()


def test_a_robot_that_stops_is_given_nothing_more(fleet: Fleet) -> None:
    """Not what it has given back either; also where it lost its connection meanwhile."""
    robot = fleet.robot("r1", {"wait": waits}, slots=2)
    long, short = fleet.submit("wait", 100), fleet.submit("wait", 4)
    fleet.advance(seconds=1)
    robot.stop(grace_s=6)
    fleet.advance(seconds=1)
    robot.cut(seconds=0.2)
    third = fleet.submit("wait", 1)
    fleet.advance(seconds=20)
    assert (short.result, long.state, third.state) == ("done", "WAITING", "WAITING")
    assert (len(fleet.events("TaskAssigned")), fleet.events("AssignmentRejected")) == (2, [])
    for task in (long, third):
        task.cancel()


@pytest.mark.parametrize("after_ms", [0, 10])
def test_work_that_begins_when_a_pause_ends_begins_once(fleet: Fleet, after_ms: int) -> None:
    """A robot is paused before it hears that it may begin; when it has ended, another works on the target."""
    robot = fleet.robot("r1", {"wait": waits})
    fleet.advance(seconds=1)
    first = fleet.submit("wait", 1, target="dock")
    fleet.advance(seconds=after_ms / 1_000)
    robot.pause(seconds=2)
    first.wait()
    robot.stop()
    fleet.robot("r2", {"wait": waits})
    assert fleet.submit("wait", 1, target="dock").wait().robot == "r2"


def test_what_is_no_json_is_refused(fleet: Fleet) -> None:
    """As `Client.submit` does it."""
    for payload in (float("nan"), {"at": object()}, "\ud800"):
        with pytest.raises(NotJson):
            fleet.submit("wait", payload)


def test_a_line_of_the_story_is_a_line(fleet: Fleet) -> None:
    """Whatever a handler says."""

    def fails(ctx: TaskContext, payload: Any) -> None:
        raise ValueError("not two\nassert 1 == 2")

    fleet.robot("r1", {"fail": fails})
    fleet.submit("fail", retry={"failures_max": 1}).wait()
    lines = fleet.story().strip().splitlines()
    assert "not two assert 1 == 2" in lines[-1]
    assert len(lines) == len(fleet.events())


def test_what_has_been_decided_is_in_the_log_when_it_is_judged() -> None:
    """An owner that was away for a while takes note of it in its next batch; until then nothing is judged."""
    with Fleet() as fleet:
        fleet.robot("r1", {"wait": waits})
        fleet.submit("wait", 1).wait()
        for seconds in range(12):
            fleet.cut_log(seconds=6 + seconds / 4)
            fleet.advance(seconds=6)
            fleet.check()


def test_a_lease_that_expired_may_be_given() -> None:
    """What is left out follows from the task."""
    submitted = event("TaskSubmitted", task="t1", kind="weld")
    robot = (event("RobotRegistered", robot="r1"), event("RobotSessionStarted", robot="r1"))
    running = (submitted, *robot, event("TaskAssigned", task="t1", robot="r1"), event("LeaseStarted", task="t1"))
    complete = says("r1", "complete", task="t1", attempt=1, result=7)
    lost = (*running, event("LeaseExpired", task="t1"))
    given(*lost).when(complete).then(event("TaskCompleted", late=True))
    again = says("r1", "hello", slots=1), says("r1", "ready", n=1), dispatch()
    given(*lost, *again).when(complete).then(event("ReportedLate", done_twice=True))
    asks = event("TaskSubmitted", task="t1", kind="weld", on_lost={"policy": "ask"})
    given(asks, *running[1:], event("LeaseExpired", task="t1")).when(command("cancel", task="t1")).then(
        event("TaskCancelled", **{"from": "LOST"})
    )


def test_every_fault_is_named_in_the_guide() -> None:
    """By the name that `inject` takes."""
    guide = (Path(__file__).parents[2] / "docs/guides/testing.md").read_text()
    assert [fault for fault in FAULTS if f"`{fault}`" not in guide] == []


def test_nobody_was_told_anything() -> None:
    """Said in a sentence."""
    with pytest.raises(AssertionError, match="nobody was told anything; there followed:\n  nothing"):
        _ = given().when(after(1)).answer
