"""Commands are done once: repeats get the answer they had, other content is refused, ids are forgotten in time."""

from typing import Any

import pytest

from commands import events as e
from commands import inputs as i
from commands.rows import canonical
from tests.support.play import play
from tests.support.world import World


def commands() -> dict[str, tuple[str, Any, Any]]:
    """Name -> (what leads there, shape, body) of every kind of command that is accepted."""
    waiting, running = "t+0 submit t1", "t+0 robot r1\nt+0 submit t1\nt+0 accept r1 t1"
    dead = running + "\nt+1 fail r1 t1 fatal"
    why: dict[str, Any] = {"task": "t1", "reason": "because"}
    robot: dict[str, Any] = {"robot": "r1", "reason": "because"}
    return {
        "submit": ("t+0 robot r1", i.Submit, i.Submission(task="t1", kind="weld")),
        "submit, nobody able": ("t+0 robot r1", i.Submit, i.Submission(task="t1", kind="weld", requirement=["b", "a"])),
        "submit, known": (running, i.Submit, i.Submission(task="t1", kind="weld")),
        "submit_all": (
            running,
            i.SubmitAll,
            i.Submissions(
                tasks=[
                    i.Submission(task="t2", kind="weld"),
                    i.Submission(task="t3", kind="cut"),
                    i.Submission(task="t2", kind="weld"),
                ]
            ),
        ),
        "change": (waiting, i.ChangeTask, i.ChangeBody(task="t1", changed=e.TaskChanges(priority=3))),
        "cancel": (waiting, i.CancelTask, i.TaskVerb(task="t1")),
        "cancel, running": (running, i.CancelTask, i.TaskVerb(task="t1", reason="changed our mind")),
        "cancel, in place": (waiting + "\nt+1 cancel t1", i.CancelTask, i.TaskVerb(task="t1")),
        "redrive": (dead, i.RedriveTask, i.RedriveBody(**why)),
        "discard": (dead, i.DiscardTask, i.TaskVerb(**why)),
        "resolve": (dead, i.ResolveTask, i.ResolveBody(**why, result={"json": 7})),
        "release": (running, i.ReleaseTask, i.ReleaseBody(**why)),
        "release, forced": (running, i.ReleaseTask, i.ReleaseBody(**why, force=True)),
        "release, of a hold": (running + "\nt+1 release t1", i.ReleaseTask, i.ReleaseBody(**why, force=True)),
        "pause": (waiting, i.Pause, i.ScopeBody(scope="kind", name="weld")),
        "pause, in place": (waiting + "\nt+1 pause pool", i.Pause, i.ScopeBody(scope="pool")),
        "resume": (waiting + "\nt+1 pause pool", i.Resume, i.ScopeBody(scope="pool")),
        "limit_set": (waiting, i.SetLimit, i.LimitBody(scope="kind", name="weld", running=2, rate_per_s=0.5)),
        "limit_set, in place": (
            waiting + "\nt+1 limit key ann running=2",
            i.SetLimit,
            i.LimitBody(scope="key", name="ann", running=2),
        ),
        "limit_rm": (waiting + "\nt+1 limit kind weld rate=2", i.RemoveLimit, i.LimitVerb(scope="kind", name="weld")),
        "drain": (running, i.DrainRobot, i.RobotVerb(**robot)),
        "drain, in place": (running + "\nt+1 drain r1", i.DrainRobot, i.RobotVerb(**robot)),
        "undrain": (running + "\nt+1 drain r1", i.UndrainRobot, i.RobotVerb(**robot)),
        "clear": (running + "\nt+1 fault r1", i.ClearRobot, i.RobotVerb(**robot)),
        "retire": ("t+0 robot r1\nt+0 submit t1", i.RetireRobot, i.RobotVerb(**robot)),
        "pool_create, in place": (waiting, i.CreatePool, i.SettingsBody()),
        "pool_set": (waiting, i.ConfigurePool, i.SettingsBody(settings={"ageing_ms": 30_000})),
        "pool_set, in place": (waiting, i.ConfigurePool, i.SettingsBody(settings={"ageing_ms": 60_000})),
        "raise_format, in place": (waiting, i.RaiseFormat, i.FormatBody(to_format=1)),
    }


@pytest.mark.parametrize("name", commands())
def test_a_repeated_command_gets_its_answer_again(name: str) -> None:
    """As it stood then, whatever happened since, also from a state that only the log or a snapshot gave; no event."""
    rows, shape, body = commands()[name]
    world = play(rows)
    before = len(world.events)
    answer = world.do(shape, body, "once")
    assert answer["changed" if "changed" in answer else "tasks"] is not None
    first = world.events[before]
    assert first.command_digest is not None
    assert first.caused_by == "command:once"
    assert all(event.command_digest is None for event in world.events[before + 1 :])
    for known in (world.folded, world.restored):
        world.wait(3)
        events = len(world.events)
        world.pool.state = known()
        assert world.do(shape, body, "once") == answer
        assert all(event.caused_by != "command:once" for event in world.events[events:])


def test_the_same_id_with_other_content_is_refused() -> None:
    """command_id_conflict; and another actor's id is another id."""
    world = World()
    world.submit("t1", "once")
    events = len(world.events)
    answer = world.submit("t2", "once")
    assert answer["reason"] == "command_id_conflict"
    assert world.verb(i.CancelTask, "t1")["changed"] is True
    assert len(world.events) == events + 1
    other = i.Submit(id="once", pool="hall", actor="somebody", reply_to="g1", body=i.Submission(task="t3", kind="weld"))
    assert world.redo(other)["changed"] is True
    world.verify()


def test_a_refused_command_leaves_no_memory() -> None:
    """It is decided anew, and may be accepted then."""
    world = World()
    world.submit("t1")
    refused = world.do(i.DiscardTask, i.TaskVerb(task="t1", reason="because"), "once")
    assert refused["reason"] == "wrong_state"
    robot = world.robot("r1")
    robot.accept("t1")
    robot.fail("t1", fatal=True)
    assert world.do(i.DiscardTask, i.TaskVerb(task="t1", reason="because"), "once")["state"] == "DISCARDED"
    world.verify()


def test_the_same_task_is_the_same_task() -> None:
    """Same content: known, as it stands, in any state, also when it has ended. Other content: id_conflict."""
    world = World()
    assert world.submit("t1", priority=3)["changed"] is True
    answer = world.submit("t1", priority=3)
    assert (answer["changed"], answer["state"], answer["attempt"]) == (False, "WAITING", 0)
    assert world.events[-1].name == "CommandNoted"
    conflict = world.submit("t1", priority=4)
    assert (conflict["reason"], conflict["field"]) == ("id_conflict", "/id")
    robot = world.robot("r1")
    robot.accept("t1")
    robot.complete("t1")
    answer = world.submit("t1", priority=3)
    assert (answer["changed"], answer["state"], answer["attempt"]) == (False, "COMPLETED", 1)
    assert world.submit("t1")["reason"] == "id_conflict"
    assert len(world.named("TaskSubmitted")) == 1
    world.verify()


def test_all_or_none() -> None:
    """One wrong task refuses all, with its place; known ones count as done; ids may repeat with the same content."""
    world = World()
    world.submit("known")
    good, bad = i.Submission(task="t1", kind="weld"), i.Submission(task="t2", kind="weld", priority=10)
    answer = world.do(i.SubmitAll, i.Submissions(tasks=[good, bad]))
    assert (answer["reason"], answer["field"]) == ("invalid_field", "/tasks/1/priority")
    twice = i.Submission(task="t1", kind="cut")
    answer = world.do(i.SubmitAll, i.Submissions(tasks=[good, twice]))
    assert (answer["reason"], answer["field"]) == ("id_conflict", "/tasks/1/id")
    assert world.at("t1") == "unknown"
    known = i.Submission(task="known", kind="weld")
    answer = world.do(i.SubmitAll, i.Submissions(tasks=[known, good, good]))
    assert [(task["task"], task["changed"]) for task in answer["tasks"]] == [
        ("known", False),
        ("t1", True),
        ("t1", False),
    ]
    answer = world.do(i.SubmitAll, i.Submissions(tasks=[known, good]))
    assert [task["changed"] for task in answer["tasks"]] == [False, False]
    assert world.events[-1].name == "CommandNoted"
    world.verify()


def test_ids_are_forgotten_by_time() -> None:
    """After `remember_days` of event time a task id and a command id mean something new; event ids do not repeat."""
    world = World(settings={"remember_days": 1})
    world.submit("t1", "first")
    world.verb(i.CancelTask, "t1")
    world.wait(86_400 - 60)
    assert world.submit("t1", "second")["changed"] is False
    world.wait(120)
    world.submit("other")
    assert world.submit("t1", "third")["changed"] is True
    assert world.submit("t2", "first")["changed"] is True
    assert len(world.named("TaskSubmitted")) == 4


def test_ids_are_forgotten_by_number() -> None:
    """At most `remember_max` ended tasks and commands are known, the oldest are forgotten first."""
    world = World(settings={"remember_max": 3})
    for k in range(6):
        world.submit(f"t{k}", f"submit-{k}")
        world.verb(i.CancelTask, f"t{k}")
    assert list(world.state.ended) == ["t3", "t4", "t5"]
    assert len(world.state.commands) == 3
    assert world.submit("t5", "again-5")["changed"] is False
    assert world.submit("t0", "again-0")["changed"] is True
    world.verify()


def test_forgetting_is_bounded_per_event() -> None:
    """A pool that has been quiet for a week does not forget everything at once; but it forgets all in the end."""
    world = World(settings={"remember_days": 1})
    for k in range(50):
        world.submit(f"t{k}")
        world.verb(i.CancelTask, f"t{k}")
    world.wait(2 * 86_400)
    world.submit("later")
    assert 30 <= len(world.state.ended) < 50
    for k in range(20):
        world.submit(f"later{k}")
    assert len(world.state.ended) == 0
    world.verify()


def test_what_an_answer_is_true_for() -> None:
    """An outcome carries the sequence up to which it is true: that of the command's last event."""
    world = World()
    world.dispatching = False
    world.pool.take(
        i.Submit(id="c", pool="hall", actor="a", reply_to="g", create=True, body=i.Submission(task="t1", kind="weld")),
        world.context(),
    )
    submitted = world.written.events[1]
    answer = world.written.outcomes[0]

    assert answer.draft.message["answer"]["sequence"] == submitted.event.sequence
    assert answer.position == submitted.event.sequence
    assert canonical(world.state)
