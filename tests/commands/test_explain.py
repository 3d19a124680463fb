"""`why`: for every state, what holds the task, with its data and a sentence; a read that changes nothing."""

from typing import Any

import pytest

from commands import inputs as i
from commands.decide import decide
from commands.rows import canonical
from commands.standing import COUNT_MAX
from commands.state import PoolState
from tests.support.play import play
from tests.support.world import START_AT, World

CASES: dict[str, tuple[str, list[str], str]] = {
    "no robots": ("", ["no_robots"], "no robot is registered"),
    "nobody able": ("t+0 robot r1 caps=x", ["unsatisfiable"], "no registered robot has gpu."),
    "nobody large enough": (
        "t+0 change t1 cost=2\nt+0 robot r1 caps=gpu",
        ["unsatisfiable"],
        "its slot cost 2 is above every robot's slots (of those with what it needs: 1)",
    ),
    "all busy": ("t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+0 submit t2 requirement=gpu", ["no_robot_free"], "1 busy"),
    "offline": ("t+0 hello r1 caps=gpu\nt+20 wait", ["no_robot_free"], "1 offline"),
    "silent": ("t+0 hello r1 caps=gpu\nt+10 wait", ["no_robot_free"], "1 silent"),
    "draining": ("t+0 hello r1 caps=gpu\nt+0 drain r1", ["no_robot_free"], "1 draining"),
    "error": ("t+0 hello r1 caps=gpu fault=x", ["no_robot_free"], "1 error"),
    "kept away as two programs": (
        "t+0 hello r1 caps=gpu\n" + 6 * "t+0 hello r1 caps=gpu fresh\n" + "t+20 wait",
        ["no_robot_free"],
        "1 error",
    ),
    "not ready": ("t+0 hello r1 caps=gpu", ["no_robot_free"], "1 not_ready"),
    "excluded": (
        "t+0 robot r1 caps=gpu\nt+0 hello r2 caps=gpu\nt+0 drain r2\nt+1 reject r1 t1",
        ["no_robot_free"],
        "1 excluded, 1 draining",
    ),
    "paused pool": ("t+0 pause pool\nt+0 robot r1 caps=gpu", ["pool_paused"], "pool is paused"),
    "paused kind": ("t+0 pause kind weld\nt+0 robot r1 caps=gpu", ["kind_paused"], "kind weld is paused"),
    "paused task": ("t+0 pause task t1\nt+0 robot r1 caps=gpu", ["task_paused"], "task t1 is paused"),
    "paused target": ("t+0 pause target dock\nt+0 robot r1 caps=gpu", ["target_paused"], "target dock is paused"),
    "not before": (
        "t+0 change t1 not_before=60\nt+0 robot r1 caps=gpu",
        ["not_before"],
        "it may not start for another 60 s",
    ),
    "back-off": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+1 fail r1 t1 after=50",
        ["back_off"],
        "after 1 failure for another 50 s",
    ),
    "target held": (
        "t+0 robot r1 caps=gpu\nt+0 submit t2 target=dock\nt+0 robot r2",
        ["target_held"],
        "target dock is held by task t1 (ASSIGNED, robot r1)",
    ),
    "held after release": (
        "t+0 robot r1 caps=gpu slots=2\nt+0 accept r1 t1\nt+0 release t1",
        ["target_held"],
        "target dock is held by task t1, whose robot r1 may still work on attempt 1",
    ),
    "target backs off": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+1 fail r1 t1 after=50\nt+1 submit t2 target=dock\nt+1 robot r2",
        ["target_backs_off"],
        "task t1 of target dock backs off, and only a higher priority passes it",
    ),
    "as many as may run": (
        "t+0 robot r1 caps=gpu\nt+0 limit kind weld running=1\nt+0 submit t2 requirement=gpu\nt+0 robot r2 caps=gpu",
        ["limit_reached"],
        "the limit of kind weld is reached: 1 of 1 run",
    ),
    "behind one that is at its limit": (
        """
        t+0 pause target dock
        t+0 limit kind cut running=1
        t+0 submit c1 kind=cut
        t+0 robot r1 caps=gpu slots=9
        t+0 submit c2 kind=cut target=dock priority=5
        t+0 submit t2 target=dock
        t+0 resume target dock
        """,
        ["target_limited"],
        "task c2 comes before it on target dock and is at its limit",
    ),
    "as many as may begin": (
        "t+0 limit kind weld rate=0.1\nt+0 robot r1 caps=gpu\nt+1 submit t2 requirement=gpu\nt+1 robot r2 caps=gpu",
        ["rate_reached"],
        "the rate of kind weld (0.1 a second) lets the next begin in 9 s",
    ),
    "slot held after release": (
        (
            "t+0 submit t2 requirement=gpu\nt+0 robot r1 caps=gpu\nt+0 robot r2 caps=gpu\nt+0 accept r2 t2\n"
            "t+0 release t2\nt+0 drain r1\nt+0 drain r2"
        ),
        ["no_robot_free", "held_after"],
        "its slot stays held for another 25 s: robot r2 may still work on attempt 1",
    ),
    "kept for a large one": (
        (
            "t+0 hello r1 caps=gpu slots=4\nt+0 robot r0 slots=4\nt+0 submit t0\nt+0 accept r0 t0\n"
            "t+0 submit t9 cost=4\nt+0 submit t2"
        ),
        ["robot_kept"],
        "robot r0 is kept for task t9, which needs 4 slots, 2 tasks stand before it",
    ),
    "start deadline passed": (
        "t+0 submit t2 start=5:alarm\nt+8 wait",
        ["no_robots", "deadline_passed"],
        "its start deadline passed 3 s ago: an alarm, it runs all the same",
    ),
    "run deadline passed": (
        "t+0 robot r1\nt+0 keep r1\nt+0 submit t2 run=5:dead\nt+0 accept r1 t2\nt+8 wait",
        ["running", "deadline_passed"],
        "its run deadline passed 3 s ago: its robot was asked to stop, after which the task is DEAD",
    ),
    "end deadline passed while assigned": (
        "t+0 robot r1\nt+0 submit t2 end=3:cancel\nt+4 wait",
        ["accept_awaited", "deadline_passed"],
        "its end deadline passed 1 s ago: at the next change of its state it is CANCELLED",
    ),
    "assigned": ("t+0 robot r1 caps=gpu\nt+2 wait", ["accept_awaited"], "robot r1 has 3 s left to accept"),
    "running": ("t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+2 wait", ["running"], "robot r1 runs it for 2 s"),
    "running, not heard of": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+15 wait",
        ["running", "missed_windows"],
        "2 of 3 windows missed",
    ),
    "running, heard of again": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+15 wait\nt+16 beat r1 t1#1\nt+21 wait",
        ["running"],
        "runs it",
    ),
    "running, cancel asked": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+1 cancel t1",
        ["running", "cancel_requested"],
        "robot r1 was asked to stop and has not yet",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_holds_a_task(case: str) -> None:
    """The word, and a sentence for people; asked about the newest task."""
    rows, words, text = CASES[case]
    world = play(f"t+0 submit t1 requirement=gpu target=dock\n{rows}")
    before, events = canonical(world.state), len(world.events)
    answer = world.verb(i.Explain, "t2" if "t2" in rows else "t1")
    assert [hold["reason"] for hold in answer["holds"]] == words
    assert text in answer["text"]
    assert (canonical(world.state), len(world.events)) == (before, events)


def test_what_nobody_has_is_named_and_nothing_else() -> None:
    """The conditions that no robot meets; all of them where each is met, but by no robot together."""
    world = World()
    world.robot("r1", capabilities=["gpu", "kind:cut"])
    world.submit("t1", kind="weld", requirement=["gpu"])
    assert world.verb(i.Explain, "t1")["text"] == "t1 is WAITING: no registered robot does weld."
    world.robot("r2", capabilities=["kind:weld"])
    assert world.verb(i.Explain, "t1")["text"] == "t1 is WAITING: no registered robot does weld and has gpu."
    world.submit("t2", kind="weld", requirement=["arm", "gpu"])
    assert world.verb(i.Explain, "t2")["text"] == "t2 is WAITING: no registered robot has arm."


@pytest.mark.parametrize(
    ("policy", "word", "text"),
    [
        ("wait wait=60", "lost_wait", "has 55 s to come back"),
        ("ask", "lost_operator", "the policy ask waits for an operator"),
        ("never", "lost_operator", "the policy never waits for an operator"),
    ],
)
def test_a_lost_task(policy: str, word: str, text: str) -> None:
    """Whom it waits for, and how long; which verbs help."""
    world = play(f"t+0 submit t1 policy={policy}\nt+0 robot r1\nt+0 accept r1 t1\nt+25 wait")
    answer = world.verb(i.Explain, "t1")
    assert [hold["reason"] for hold in answer["holds"]] == [word]
    assert text in answer["text"]


def test_dead_and_ended_tasks() -> None:
    """A dead letter says why and what can be done; an ended task says that nothing follows."""
    world = play("t+0 submit t1\nt+0 robot r1\nt+0 accept r1 t1\nt+1 fail r1 t1 fatal")
    [dead] = world.verb(i.Explain, "t1")["holds"]
    assert (dead["reason"], dead["dead_reason"]) == ("dead", "fatal")
    assert dead["verbs"] == ["redrive", "discard", "resolve"]
    world.verb(i.DiscardTask, "t1")
    answer: dict[str, Any] = world.verb(i.Explain, "t1")
    assert (answer["state"], answer["attempt"]) == ("DISCARDED", 1)
    assert "nothing follows" in answer["text"]
    assert world.verb(i.Explain, "ghost")["reason"] == "no_such_task"


def test_a_task_that_waits_for_its_turn() -> None:
    """How many stand before it, counted up to 10,000."""
    world = World()
    world.dispatching = False
    for k in range(7):
        world.submit(f"t{k}")
    world.robot("r1")
    [hold] = world.verb(i.Explain, "t5")["holds"]
    assert (hold["reason"], hold["ahead"]) == ("in_queue", 5)


def test_several_things_may_hold_a_task() -> None:
    """All of them are named."""
    world = play("""
        t+0   submit   t1 target=dock not_before=60
        t+0   pause    kind weld
        t+0   pause    pool
    """)
    words = [hold["reason"] for hold in world.verb(i.Explain, "t1")["holds"]]
    assert words == ["pool_paused", "kind_paused", "not_before", "no_robots"]


def test_who_paused_and_why() -> None:
    """By whom, since when, until when and why; the same after a restart from a snapshot."""
    world = play("t+0 submit t1")
    body: Any = {"scope": "kind", "name": "weld", "until": world.now + 60_000, "reason": "the belt is worn"}
    world.do(i.Pause, i.ScopeBody(**body), actor="anna")
    for state in (world.state, world.restored()):
        [paused, _] = explained(state, "t1", world)["holds"]
        assert paused["text"] == "kind weld is paused by anna for another 60 s: the belt is worn"
        assert (paused["paused_by"], paused["why"]) == ("anna", "the belt is worn")
        assert (paused["paused_at"], paused["until"]) == (START_AT, START_AT + 60_000)


def explained(state: PoolState, task: str, world: World) -> Any:
    """What a state says of a task."""
    asked = i.Explain(id="c", pool="hall", actor="local", reply_to="g1", body=i.TaskVerb(task=task))
    return decide(state, asked, world.context()).drafts[0].message["answer"]


def test_the_deadline_that_made_a_dead_letter() -> None:
    """Which one it was."""
    world = play("t+0 submit t1 end=5:dead\nt+6 wait")
    [dead] = world.verb(i.Explain, "t1")["holds"]
    assert (dead["dead_reason"], dead["which"]) == ("deadline", "end")
    assert "a dead letter (end deadline)" in dead["text"]


def test_what_an_ended_task_still_holds() -> None:
    """Cancelled while its robot was lost: target and slot are not free before it has surely stopped."""
    world = play("""
        t+0   submit   t1 target=dock policy=wait wait=60
        t+0   robot    r1
        t+0   accept   r1 t1
        t+25  cancel   t1
    """)
    answer = world.verb(i.Explain, "t1")
    assert (answer["state"], answer["robot"], answer["late"]) == ("CANCELLED", "r1", False)
    [held] = answer["holds"]
    assert (held["reason"], held["robot"], held["target"]) == ("held_after", "r1", "dock")
    assert held["until"] == START_AT + 110_000
    assert "its slot and target dock stay held for another 85 s" in answer["text"]


def test_a_place_in_line_is_by_order() -> None:
    """First tasks of other targets before its own target, then the tasks of its own target before it; only of those
    that its robots could take."""
    world = play("""
        t+0   submit   low requirement=cpu
        t+0   submit   a1 requirement=cpu target=a priority=5
        t+0   submit   a2 requirement=cpu target=a priority=5
        t+0   submit   a3 requirement=cpu target=a priority=5
        t+0   submit   b1 requirement=cpu target=b priority=7
        t+0   submit   other requirement=gpu priority=9
        t+0   hello    r1 caps=cpu
        t+0   hello    r2 caps=gpu
    """)
    ahead = {task: world.verb(i.Explain, task)["holds"][0].get("ahead") for task in ("low", "a1", "a2", "a3", "b1")}
    assert ahead == {"low": 2, "a1": 1, "a2": 2, "a3": 3, "b1": 0}


def test_a_place_in_line_is_counted_up_to_ten_thousand() -> None:
    """And it says so; entries that are stale are not counted."""
    world = World()
    world.stranger("r1").hello()
    for k in range(10_050):
        world.submit(f"t{k}")
    for k in range(40):
        world.verb(i.CancelTask, f"t{k}")
    [hold] = world.verb(i.Explain, "t10030")["holds"]
    assert hold["ahead"] == 9_990
    [hold] = world.verb(i.Explain, "t10049")["holds"]
    assert hold["ahead"] == COUNT_MAX == 10_000
    assert "10000 tasks or more stand before it" in hold["text"]
