"""Verbs of operators on tasks, robots and scopes: what each does in each state, and what it refuses."""

from typing import Any

import pytest

from commands import events as e
from commands import inputs as i
from commands.decide.tasks import ALLOWED_VERBS
from tests.support.play import play
from tests.support.world import World

SHAPES: dict[str, Any] = {
    "change": i.ChangeTask,
    "cancel": i.CancelTask,
    "redrive": i.RedriveTask,
    "discard": i.DiscardTask,
    "resolve": i.ResolveTask,
    "release": i.ReleaseTask,
}
INTO = {
    "WAITING": "t+1 drain r1\nt+1 submit t1",
    "ASSIGNED": "t+1 submit t1",
    "RUNNING": "t+1 submit t1\nt+1 accept r1 t1",
    "LOST": "t+1 submit t1 policy=never\nt+1 accept r1 t1\nt+25 wait",
    "COMPLETED": "t+1 submit t1\nt+1 accept r1 t1\nt+1 complete r1 t1",
    "CANCELLED": "t+1 submit t1\nt+1 cancel t1",
    "DEAD": "t+1 submit t1\nt+1 accept r1 t1\nt+1 fail r1 t1 fatal",
    "DISCARDED": "t+1 submit t1\nt+1 accept r1 t1\nt+1 fail r1 t1 fatal\nt+1 discard t1",
}
IN_PLACE = {"cancel": "CANCELLED", "redrive": "WAITING", "discard": "DISCARDED", "resolve": "COMPLETED"}
DOES = {
    "change": "TaskChanged",
    "cancel": "TaskCancelled",
    "redrive": "TaskRedriven",
    "discard": "TaskDiscarded",
    "resolve": "TaskCompleted",
    "release": "TaskReleased",
}


@pytest.mark.parametrize("state", INTO)
@pytest.mark.parametrize("verb", SHAPES)
def test_each_verb_in_each_state(verb: str, state: str) -> None:
    """Allowed: its event. Its effect in place already: CommandNoted and changed=false. Else wrong_state with a list."""
    world = play("t+0 robot r1\n" + INTO[state])
    assert world.at("t1") == state
    events = len(world.events)
    fields: dict[str, Any] = {"changed": e.TaskChanges(priority=3)} if verb == "change" else {}
    answer = world.verb(SHAPES[verb], "t1", **fields)
    news = [event.name for event in world.events[events:]]

    if verb in ALLOWED_VERBS.get(state, ()):
        expected = "CancelRequested" if (verb, state) == ("cancel", "RUNNING") else DOES[verb]
        assert news[0] == expected
        assert answer["changed"] is True
        assert answer["sequence"] == world.events[events].sequence
        if verb != "release" and (verb, state) not in (("redrive", "DEAD"), ("cancel", "RUNNING")):
            assert answer["state"] == world.at("t1")
    elif IN_PLACE.get(verb) == state:
        assert news == ["CommandNoted"]
        assert answer["changed"] is False
        assert answer["state"] == state
    else:
        assert news == []
        assert answer["reason"] == "wrong_state"
        assert answer["state"] == state
        assert answer["allowed"] == list(ALLOWED_VERBS.get(state, ()))
    world.verify()


@pytest.mark.parametrize("verb", SHAPES)
def test_a_verb_on_an_unknown_task(verb: str) -> None:
    """no_such_task, and nothing is written."""
    world = World()
    world.submit("t1")
    fields: dict[str, Any] = {"changed": e.TaskChanges(priority=3)} if verb == "change" else {}
    answer = world.verb(SHAPES[verb], "ghost", **fields)

    assert answer["reason"] == "no_such_task"
    assert world.events[-1].name != "CommandNoted"


@pytest.mark.parametrize("verb", ["discard", "resolve", "release"])
def test_a_reason_is_required(verb: str) -> None:
    """It is recorded with what was done."""
    play("t+0 robot r1\n" + INTO["DEAD"] + f"\nt+2 {verb} t1 unexplained -> refused reason_required, nothing")


def test_cancel_while_running_waits_for_the_robot() -> None:
    """Once per attempt; the robot may still complete, and then the task is COMPLETED; why names who does not obey."""
    world = play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   keep     r1
        t+0   accept   r1 t1
        t+1   cancel   t1              -> CancelRequested t1 #1 because, told r1 cancel t1 #1 because
        t+2   cancel   t1              -> unchanged, nothing
        t+60  wait                     -> nothing
    """)
    holds = world.verb(i.Explain, "t1")["holds"]
    assert [hold["reason"] for hold in holds] == ["running", "cancel_requested"]
    play("t+61 complete r1 t1 -> TaskCompleted t1 cancel_requested=True, ack", world)


def test_a_change_to_what_is_so_already_changes_nothing() -> None:
    """It is noted, and answered so; with one thing that differs, or labels, it is a change."""
    world = play("t+0 submit t1 requirement=gpu|ssd priority=2 not_before=60 end=900:alarm")
    task = world.state.tasks["t1"]
    same: dict[str, Any] = {
        "priority": 2,
        "requirement": ["ssd", "gpu"],
        "not_before": task.eligible_at,
        "deadlines": task.deadlines,
    }
    assert world.verb(i.ChangeTask, "t1", changed=e.TaskChanges(**same))["changed"] is False
    assert world.verb(i.ChangeTask, "t1", changed=e.TaskChanges())["changed"] is False
    assert world.named("TaskChanged") == []
    for other in ({"priority": 3}, {"not_before": task.eligible_at + 1}, {"slot_cost": 2}, {"labels": {"line": "3"}}):
        assert world.verb(i.ChangeTask, "t1", changed=e.TaskChanges(**{**same, **other}))["changed"] is True


def test_change_keeps_what_it_does_not_name() -> None:
    """Priority, requirement, cost, not-before, deadlines: each alone; requirements are stored as a submission's are."""
    world = play("""
        t+0   submit   t1 requirement=gpu priority=2
        t+1   change   t1 requirement=ssd|gpu|ssd -> TaskChanged t1
        t+2   change   t1 priority=9   -> TaskChanged t1
        t+3   change   t1 not_before=60 -> TaskChanged t1
        t+4   robot    r1 caps=gpu|ssd -> nothing
        t+4   keep     r1
        t+60  wait                     -> TaskAssigned t1
    """)

    assert world.named("TaskChanged")[0].changed.requirement == ["gpu", "ssd"]
    assert world.state.tasks["t1"].terms.priority == 9


def test_a_not_before_in_the_past_makes_nobody_older() -> None:
    """Eligible from the later of submission and not-before: a change cannot jump the queue."""
    play("""
        t+5   submit   t1
        t+6   change   t1 not_before=1 -> TaskChanged t1
        t+9   robot    r1              -> TaskAssigned t1 waited_ms=4000
    """)


CHANGES: dict[str, e.TaskChanges] = {
    "/priority": e.TaskChanges(priority=10),
    "/slot_cost": e.TaskChanges(slot_cost=0),
    "/not_before": e.TaskChanges(not_before=-1),
    "/requirement": e.TaskChanges(requirement=["gpu mem"]),
    "/prefer": e.TaskChanges(prefer=["x>y"]),
    "/labels": e.TaskChanges(labels={"line": "x" * 257}),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_wrong_change_is_refused_with_its_field(field: str) -> None:
    """For change and for redrive."""
    world = play("t+0 robot r1\n" + INTO["DEAD"] + "\nt+2 submit t2 requirement=none")
    for answer in (
        world.verb(i.ChangeTask, "t2", changed=CHANGES[field]),
        world.verb(i.RedriveTask, "t1", changed=CHANGES[field]),
    ):
        assert (answer["reason"], answer["field"]) == ("invalid_field", field)


def test_redrive_begins_anew_but_attempts_go_on() -> None:
    """Counters are 0 again, the attempt number is not; eligible from now; changed if asked."""
    world = play("""
        t+0   submit   t1 failures_max=2 first=0
        t+0   robot    r1
        t+0   accept   r1 t1
        t+1   fail     r1 t1           -> AttemptFailed t1 failures=1, TaskAssigned t1 #2
        t+2   accept   r1 t1
        t+3   fail     r1 t1           -> AttemptFailed t1 DEAD failures=2
        t+90  hello    r1
        t+90  redrive  t1 priority=5   -> TaskRedriven t1
        t+91  ready    r1              -> TaskAssigned t1 #3 waited_ms=1000
        t+91  accept   r1 t1
        t+91  fail     r1 t1           -> AttemptFailed t1 WAITING failures=1, TaskAssigned t1 #4
    """)

    assert world.state.tasks["t1"].terms.priority == 5


def test_pause_scopes() -> None:
    """Pool, target, kind and task: nothing of it is assigned; what runs goes on; resume lets it be assigned again."""
    for scope in ("pool", "target dock", "kind weld", "task t1"):
        play(f"""
            t+0   submit   t1 target=dock
            t+0   pause    {scope}         -> DispatchPaused {scope.partition(" ")[0]}
            t+0   pause    {scope}         -> unchanged, nothing
            t+0   robot    r1              -> nothing
            t+9   resume   {scope}         -> DispatchResumed, TaskAssigned t1
            t+9   resume   {scope}         -> unchanged, nothing
            t+9   accept   r1 t1
            t+9   pause    {scope}         -> DispatchPaused
            t+10  fail     r1 t1           -> AttemptFailed t1 WAITING
            t+60  wait                     -> nothing
        """)


def test_a_pause_holds_up_only_its_scope() -> None:
    """Other targets, kinds and tasks pass, and a paused task is not counted as first of its target."""
    play("""
        t+0   submit   t1 target=dock
        t+0   submit   t2 target=dock
        t+0   submit   t3 kind=cut
        t+0   pause    task t1
        t+0   pause    kind cut
        t+0   robot    r1 slots=3      -> TaskAssigned t2 r1
        t+1   resume   kind cut        -> DispatchResumed kind cut, TaskAssigned t3
        t+1   resume   task t1         -> DispatchResumed task t1
        t+2   accept   r1 t2
        t+2   complete r1 t2           -> TaskCompleted t2, TaskAssigned t1
    """)


def test_a_pause_may_have_an_end() -> None:
    """Until an instant, after which it is resumed by time; another end is another pause."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   pause    pool until=10   -> DispatchPaused pool until=1790000050000
        t+0   pause    pool until=10   -> unchanged, nothing
        t+4   pause    pool until=20   -> DispatchPaused pool until=1790000060000
        t+19  wait                     -> AssignmentWithdrawn t1
        t+20  robot    r1              -> DispatchResumed pool, RobotSessionStarted r1, TaskAssigned t1
    """)


def test_pause_of_a_pool_has_no_name() -> None:
    """A name given with the scope pool says nothing."""
    play("""
        t+0   submit   t1
        t+0   pause    pool hall       -> DispatchPaused pool name_=
        t+0   robot    r1              -> nothing
        t+1   resume   pool            -> DispatchResumed pool, TaskAssigned t1
    """)


@pytest.mark.parametrize(
    ("scope", "reason"),
    [("target", "invalid_field"), ("kind", "invalid_field"), ("task", "invalid_field"), ("task ghost", "no_such_task")],
)
def test_a_scope_that_names_nothing(scope: str, reason: str) -> None:
    """Refused with the reason; an ended task has a wrong state."""
    play(f"""
        t+0   submit   t1
        t+0   cancel   t1
        t+1   pause    {scope}         -> refused {reason}, nothing
        t+1   resume   {scope}         -> refused {reason}, nothing
        t+1   pause    task t1         -> refused wrong_state, nothing
    """)


def test_drain_undrain_and_retire() -> None:
    """Drained: nothing new, what runs goes on, also over a new session. Retired: forgotten, with nothing left open."""
    world = play("""
        t+0   robot    r1 slots=2
        t+0   submit   t1
        t+0   submit   t2
        t+0   accept   r1 t1
        t+1   drain    r1              -> RobotDrained r1, told r1 session_note
        t+1   drain    r1              -> unchanged, nothing
        t+2   submit   t3              -> TaskSubmitted t3
        t+3   complete r1 t1           -> TaskCompleted t1
        t+4   accept   r1 t2           -> LeaseStarted t2
        t+4   retire   r1              -> refused robot_has_attempts, nothing
        t+4   complete r1 t2           -> TaskCompleted t2
        t+5   robot    r1              -> RobotSessionStarted r1
        t+6   undrain  r1              -> RobotUndrained r1, TaskAssigned t3
        t+6   undrain  r1              -> unchanged, nothing
        t+7   retire   r1              -> AssignmentWithdrawn t3 retired, RobotSessionEnded r1 retired, RobotRetired r1
        t+8   drain    r1              -> refused no_such_robot, nothing
        t+8   undrain  r1              -> refused no_such_robot, nothing
        t+8   clear    r1              -> refused no_such_robot, nothing
        t+8   retire   r1              -> refused no_such_robot, nothing
        t+9   robot    r1              -> RobotRegistered r1, RobotSessionStarted r1 superseded_epoch=, TaskAssigned t3
    """)
    assert world.robots["r1"].news("session_note")[-1] == {"type": "session_note", "closed": 4004}
    answer = world.do(i.RetireRobot, i.RobotVerb(robot="r1"))
    assert answer["reason"] == "reason_required"


@pytest.mark.parametrize("rest", ["t+1 release t1", "t+20 wait"])
def test_a_robot_with_holds_or_lost_attempts_is_not_retired(rest: str) -> None:
    """Its slot and target are still its own."""
    play(f"""
        t+0   submit   t1 policy=ask
        t+0   robot    r1
        t+0   accept   r1 t1
        {rest}
        t+21  retire   r1              -> refused robot_has_attempts, nothing
        t+22  bye      r1
        t+23  retire   r1              -> RobotRetired r1
    """)


def test_clear_ends_an_error_and_only_that() -> None:
    """Cleared by an operator's word, whatever the fault; not_in_error where there is none."""
    play(
        """
        t+0   robot    r1
        t+0   clear    r1              -> refused not_in_error, nothing
        t+1   fault    r1              -> RobotFaulted r1 reported jammed
        t+2   submit   t1              -> TaskSubmitted t1
        t+3   clear    r1              -> RobotRecovered r1 cleared, TaskAssigned t1
    """.replace(" jammed", "")
    )
