"""What may wait: full queues, too many lanes, requirements that nobody meets, wrong submissions."""

from typing import Any

import pytest

from commands import inputs as i
from commands import messages as m
from commands.events import Deadlines, InstantDeadline, TaskChanges
from tests.support.play import play
from tests.support.world import World


def test_a_full_queue_refuses_with_a_time() -> None:
    """queue_full, retryable; all of a submission of several counts; what runs does not."""
    world = World(settings={"queue_max": 3})
    for k in range(3):
        world.submit(f"t{k}")
    answer = world.submit("t3")
    assert (answer["reason"], answer["retry_after_ms"]) == ("queue_full", 5_000)
    world.robot("r1")
    assert world.at("t0") == "ASSIGNED"
    both = i.Submissions(tasks=[i.Submission(task="a", kind="weld"), i.Submission(task="b", kind="weld")])
    assert world.do(i.SubmitAll, both)["reason"] == "queue_full"
    assert world.submit("t3")["changed"] is True
    world.verify()


def test_too_many_lanes() -> None:
    """Combinations of requirement, cost, kind and limit key that wait; a change or a redrive makes none beyond it."""
    world = World(settings={"lanes_max": 2})
    world.submit("t0", kind="a")
    world.submit("t1", kind="b", limit_key="x")
    assert world.submit("t2", kind="b")["reason"] == "too_many_lanes"
    assert world.submit("t2", kind="a", slot_cost=2)["reason"] == "too_many_lanes"
    several = i.Submissions(tasks=[i.Submission(task="n0", kind="a"), i.Submission(task="n1", kind="c")])
    assert world.do(i.SubmitAll, several)["field"] == "/tasks/1/requirement"
    assert world.submit("t3", kind="a")["changed"] is True
    refused = world.verb(i.ChangeTask, "t3", changed=TaskChanges(requirement=["gpu"]))
    assert refused["reason"] == "too_many_lanes"
    robot = world.robot("r1", slots=3)
    assert world.submit("t4", kind="c")["changed"] is True
    robot.accept("t0")
    robot.fail("t0", fatal=True)
    world.submit("w1", kind="v", requirement=["none"])
    world.submit("w2", kind="w", requirement=["none"])
    assert world.verb(i.RedriveTask, "t0")["reason"] == "too_many_lanes"
    world.verify()


def test_a_requirement_that_nobody_meets_is_said_once() -> None:
    """In the answer to each submission, as one event for all its tasks, and once more when that changes."""
    world = World()
    world.robot("r1", capabilities=["gpu"], slots=2)
    for k in range(3):
        answer = world.submit(f"t{k}", requirement=["gpu", "arm"], slot_cost=2)
        assert answer["unsatisfiable"] == ["arm", "gpu", "kind:weld", "slots>=2"]
    [said] = world.named("RequirementUnsatisfiable")
    assert (said.requirement, said.slot_cost) == (["arm", "gpu", "kind:weld"], 2)
    assert (said.waiting, said.first_task) == (1, "t0")
    assert said.missing == ["arm"]
    assert "unsatisfiable" not in world.submit("fine", requirement=["gpu"])
    world.verb(i.ChangeTask, "t1", changed=TaskChanges(priority=4))
    assert len(world.named("RequirementUnsatisfiable")) == 1
    arm = world.robot("r2", capabilities=["gpu", "arm"], slots=2)
    [met] = world.named("RequirementSatisfiable")
    assert (met.requirement, met.slot_cost, met.waiting, met.robot) == (["arm", "gpu", "kind:weld"], 2, 3, "r2")
    arm.accept(arm.assigned()[0])
    world.do(i.DrainRobot, i.RobotVerb(robot="r2"))
    arm.complete(arm.assigned()[0])
    assert len(world.named("RequirementUnsatisfiable")) == 1
    world.do(i.RetireRobot, i.RobotVerb(robot="r2", reason="sold"))
    assert len(world.named("RequirementUnsatisfiable")) == 2
    assert world.named("RequirementUnsatisfiable")[1].first_task == "t0"
    assert world.named("RequirementUnsatisfiable")[1].waiting == 2
    world.verify()


def test_many_requirements_that_nobody_meets_any_more() -> None:
    """A robot retires: one event for each requirement, with the first of its waiting tasks, however many wait."""
    world = World()
    world.robot("r1", capabilities=[f"c{n}" for n in range(20)], slots=1)
    world.submit("held", requirement=["c0"], priority=9)
    for k in range(100):
        world.submit(f"t{k}", requirement=[f"c{k % 20}"])
    world.robots["r1"].accept("held")
    world.robots["r1"].complete("held")
    world.robots["r1"].send(m.Bye)
    world.do(i.RetireRobot, i.RobotVerb(robot="r1", reason="sold"))
    said = {
        event.requirement[0]: (event.first_task, event.waiting) for event in world.named("RequirementUnsatisfiable")
    }
    assert said == {f"c{n}": (f"t{n}", 5) for n in range(20)}
    world.verify()


def test_one_waiting_task_that_changes_is_not_said_again() -> None:
    """It was unsatisfiable before and is still; another requirement of it is another matter."""
    world = World()
    world.submit("t1", requirement=["arm"])
    world.verb(i.ChangeTask, "t1", changed=TaskChanges(priority=4))
    assert len(world.named("RequirementUnsatisfiable")) == 1
    world.verb(i.ChangeTask, "t1", changed=TaskChanges(requirement=["leg"]))
    said = [event.requirement for event in world.named("RequirementUnsatisfiable")]
    assert said == [["arm", "kind:weld"], ["leg", "kind:weld"]]
    world.verify()


@pytest.mark.parametrize(
    ("capabilities", "requirement", "missing"),
    [
        (["gpu"], ["gpu", "arm"], ["arm"]),
        (["gpu_mem=8"], ["gpu_mem>=16"], ["gpu_mem>=16"]),
        (["zone=a"], ["zone=b"], ["zone=b"]),
        (["zone"], ["zone=b"], ["zone=b"]),
    ],
)
def test_missing_names_what_no_robot_has(capabilities: list[str], requirement: list[str], missing: list[str]) -> None:
    """The conditions that no registered robot meets."""
    world = World()
    world.robot("r1", capabilities=capabilities)
    world.submit("t1", requirement=requirement)
    assert world.named("RequirementUnsatisfiable")[0].missing == missing


def test_missing_combination() -> None:
    """Where each condition is met by some robot but all by none, all of them are named."""
    world = World()
    world.robot("r1", capabilities=["gpu"])
    world.robot("r2", capabilities=["arm"], slots=4)
    world.submit("t1", requirement=["gpu", "arm"], slot_cost=2)
    assert world.named("RequirementUnsatisfiable")[0].missing == ["arm", "gpu", "kind:weld", "slots>=2"]


def test_an_update_of_a_robot_is_seen() -> None:
    """Capabilities and slots that change while it runs decide at once what it gets."""
    play("""
        t+0   submit   t1 requirement=arm
        t+0   robot    r1 slots=1
        t+1   update   r1 caps=arm|arm -> RobotChanged r1, RequirementSatisfiable r1, TaskAssigned t1
        t+1   update   r1 caps=arm     -> ack, nothing
        t+2   submit   t2 cost=3       -> RequirementUnsatisfiable t2
        t+3   update   r1 slots=4      -> RobotChanged r1, RequirementSatisfiable r1
        t+4   ready    r1 4            -> TaskAssigned t2
    """)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "an id of 10,000 characters": ({"task": "x" * 10_000}, "invalid_field", "/id"),
    "an id with an @": ({"task": "nightly@1"}, "invalid_field", "/id"),
    "an id with a leading _": ({"task": "_t"}, "invalid_field", "/id"),
    "an empty id": ({"task": ""}, "invalid_field", "/id"),
    "an id with a line end": ({"task": "t1\n"}, "invalid_field", "/id"),
    "a kind of 65 characters": ({"kind": "k" * 65}, "invalid_field", "/kind"),
    "a target with a space": ({"target": "dock 7"}, "invalid_field", "/target"),
    "a limit key with a space": ({"limit_key": "a b"}, "invalid_field", "/limit_key"),
    "priority 10": ({"priority": 10}, "invalid_field", "/priority"),
    "priority -1": ({"priority": -1}, "invalid_field", "/priority"),
    "cost 0": ({"slot_cost": 0}, "invalid_field", "/slot_cost"),
    "cost 1025": ({"slot_cost": 1025}, "invalid_field", "/slot_cost"),
    "a negative time": ({"not_before": -1}, "invalid_field", "/not_before"),
    "a time beyond 2^53": ({"not_before": 2**53}, "invalid_field", "/not_before"),
    "a lease below three windows": ({"lease_ms": 14_999}, "lease_too_short", "/lease"),
    "a lease over a day": ({"lease_ms": 86_400_001}, "invalid_field", "/lease"),
    "a lease of 0": ({"lease_ms": 0}, "invalid_field", "/lease"),
    "accept below half a second": ({"accept_ms": 499}, "invalid_field", "/accept"),
    "lost_max 0": ({"lost_max": 0}, "invalid_field", "/lost_max"),
    "65 labels": ({"labels": {f"l{k}": "" for k in range(65)}}, "invalid_field", "/labels"),
    "a label of 257 characters": ({"labels": {"line": "x" * 257}}, "invalid_field", "/labels"),
    "65 conditions": ({"requirement": [f"c{k}" for k in range(65)]}, "invalid_field", "/requirement"),
    "a condition that is none": ({"requirement": ["gpu mem"]}, "invalid_field", "/requirement"),
    "a comparison with a word": ({"requirement": ["gpu_mem>=lots"]}, "invalid_field", "/requirement"),
    "a comparison with NaN": ({"requirement": ["gpu_mem>=nan"]}, "invalid_field", "/requirement"),
    "a condition of 129 characters": ({"prefer": ["x" * 129]}, "invalid_field", "/prefer"),
    "a deadline that has passed": (
        {"deadlines": Deadlines(end=InstantDeadline(at=1))}, "deadline_passed", "/deadlines/end/at"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_submission_is_refused_and_the_next_is_taken(what: str) -> None:
    """F24, I1: the field and the reason; nothing is written, and nothing stops."""
    fields, reason, field = WRONG[what]
    world = World()
    world.robot("r1")
    events = len(world.events)
    answer = world.submit(fields.pop("task", "t1"), **dict(fields))
    assert (answer["reason"], answer["field"]) == (reason, field)
    assert len(world.events) == events
    world.submit("next")
    assert world.at("next") == "ASSIGNED"
    world.verify()


def test_a_robot_that_names_its_kinds_is_given_no_other() -> None:
    """`kind:NAME` among the capabilities: only those kinds; a robot that names none takes every kind."""
    world = World()
    world.robot("welder", capabilities=["kind:weld"])
    world.submit("t1", kind="paint")
    world.submit("t2", kind="weld")
    assert [(a.task, a.robot) for a in world.named("TaskAssigned")] == [("t2", "welder")]
    assert world.named("RequirementUnsatisfiable")[0].missing == ["kind:paint"]
    world.robot("any")
    assert [(a.task, a.robot) for a in world.named("TaskAssigned")][1:] == [("t1", "any")]
