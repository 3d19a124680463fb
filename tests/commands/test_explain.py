"""`why`: for every state, what holds the task, with its data and a sentence; a read that changes nothing."""

from typing import Any

import pytest

from commands import inputs as i
from commands.rows import canonical
from tests.support.play import play
from tests.support.world import World

CASES: dict[str, tuple[str, list[str], str]] = {
    "no robots": ("", ["no_robots"], "no robot is registered"),
    "nobody able": ("t+0 robot r1 caps=x", ["unsatisfiable"], "gpu"),
    "nobody large enough": ("t+0 change t1 cost=2\nt+0 robot r1 caps=gpu", ["unsatisfiable"], "slots>=2"),
    "all busy": ("t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+0 submit t2 requirement=gpu", ["no_robot_free"], "1 busy"),
    "offline": ("t+0 hello r1 caps=gpu\nt+20 wait", ["no_robot_free"], "1 offline"),
    "silent": ("t+0 hello r1 caps=gpu\nt+10 wait", ["no_robot_free"], "1 silent"),
    "draining": ("t+0 hello r1 caps=gpu\nt+0 drain r1", ["no_robot_free"], "1 draining"),
    "error": ("t+0 hello r1 caps=gpu fault=x", ["no_robot_free"], "1 error"),
    "not ready": ("t+0 hello r1 caps=gpu", ["no_robot_free"], "1 busy"),
    "excluded": (
        "t+0 robot r1 caps=gpu\nt+0 hello r2 caps=gpu\nt+0 drain r2\nt+1 reject r1 t1",
        ["no_robot_free"],
        "1 excluded, 1 draining",
    ),
    "paused pool": ("t+0 pause pool\nt+0 robot r1 caps=gpu", ["pool_paused"], "pool is paused"),
    "paused kind": ("t+0 pause kind weld\nt+0 robot r1 caps=gpu", ["kind_paused"], "kind weld is paused"),
    "paused task": ("t+0 pause task t1\nt+0 robot r1 caps=gpu", ["task_paused"], "task t1 is paused"),
    "paused target": ("t+0 pause target dock\nt+0 robot r1 caps=gpu", ["target_paused"], "target dock is paused"),
    "not before": ("t+0 change t1 not_before=60\nt+0 robot r1 caps=gpu", ["not_before"], "60000 ms"),
    "back-off": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+1 fail r1 t1 after=50",
        ["back_off"],
        "after 1 failures for another 50000 ms",
    ),
    "target held": (
        "t+0 robot r1 caps=gpu\nt+0 submit t2 target=dock\nt+0 robot r2",
        ["target_held"],
        "target dock is held by task t1",
    ),
    "held after release": (
        "t+0 robot r1 caps=gpu slots=2\nt+0 accept r1 t1\nt+0 release t1",
        ["target_held"],
        "target dock is held by task t1",
    ),
    "target backs off": (
        "t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+1 fail r1 t1 after=50\nt+1 submit t2 target=dock\nt+1 robot r2",
        ["target_backs_off"],
        "an earlier task of target dock backs off",
    ),
    "as many as may run": (
        "t+0 robot r1 caps=gpu\nt+0 limit kind weld running=1\nt+0 submit t2 requirement=gpu\nt+0 robot r2 caps=gpu",
        ["limit_reached"],
        "the limit of kind weld is reached: 1 of 1 run",
    ),
    "as many as may begin": (
        "t+0 limit kind weld rate=0.1\nt+0 robot r1 caps=gpu\nt+1 submit t2 requirement=gpu\nt+1 robot r2 caps=gpu",
        ["rate_reached"],
        "the rate of kind weld (0.1 a second) lets the next begin in 9000 ms",
    ),
    "assigned": ("t+0 robot r1 caps=gpu\nt+2 wait", ["accept_awaited"], "robot r1 has 3000 ms left to accept"),
    "running": ("t+0 robot r1 caps=gpu\nt+0 accept r1 t1\nt+2 wait", ["running"], "robot r1 runs it for 2000 ms"),
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


@pytest.mark.parametrize(
    ("policy", "word", "text"),
    [
        ("wait wait=60", "lost_wait", "has 55000 ms to come back"),
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
