"""Failure: back-off with jitter, the limits of failures and lost attempts, fatal, dead letters and their history."""

import pytest

from commands.ids import jitter_share
from tests.support.play import play
from tests.support.world import World


def waits(world: World) -> list[int]:
    """The back-off after each failure, in ms."""
    return [
        event.not_again_before - event.occurred_at
        for event in world.named("AttemptFailed")
        if event.not_again_before is not None
    ]


def fail_until_dead(world: World, task: str) -> None:
    """One robot fails the task again and again."""
    robot = world.robots["r1"]
    while world.at(task) != "DEAD":
        if world.at(task) == "ASSIGNED":
            robot.accept(task)
            robot.fail(task)
        world.wait(1)


def test_back_off_grows_and_ends_in_a_dead_letter() -> None:
    """First 1 s, times 2, at most 300 s, each with 20 % jitter from (task, attempt); then DEAD "failed"."""
    world = World(settings={"failures_max": 12})
    world.keep(world.robot("r1"))
    world.submit("t1")
    fail_until_dead(world, "t1")
    found = waits(world)
    plain = [min(300_000, 1_000 * 2**k) for k in range(11)]

    assert found == [int(wait * (0.9 + 0.2 * jitter_share("t1", attempt))) for attempt, wait in enumerate(plain, 1)]
    assert all(0.9 * wait <= had <= 1.1 * wait for had, wait in zip(found, plain, strict=True))
    assert world.named("AttemptFailed")[-1].dead_reason == "failed"
    assert len({had / wait for had, wait in zip(found, plain, strict=True)}) > 5
    world.verify()


def test_jitter_spreads_tasks_that_failed_together() -> None:
    """A hundred tasks that failed in the same instant do not come back in the same instant."""
    shares = [jitter_share(f"t{k}", 1) for k in range(100)]

    assert len({round(share, 2) for share in shares}) > 50
    assert all(0 <= share < 1 for share in shares)


def test_a_task_brings_its_own_retry_policy() -> None:
    """First, factor, max and limit of the submission; eligible again exactly then, and no sooner."""
    world = play("""
        t+0   submit   t1 first=10 factor=3 max=40 failures_max=4
        t+0   robot    r1
        t+0   keep     r1
        t+0   accept   r1 t1
        t+0   fail     r1 t1           -> AttemptFailed t1 WAITING
    """)
    again = world.named("AttemptFailed")[0].not_again_before
    world.wait((again - 1 - world.now) / 1000)
    assert world.at("t1") == "WAITING"
    world.wait(0.001)
    assert world.at("t1") == "ASSIGNED"
    fail_until_dead(world, "t1")
    assert [round(wait / 10_000) for wait in waits(world)] == [1, 3, 4]


def test_a_robots_own_time_to_retry_is_followed_where_longer() -> None:
    """retry_after_ms; at most a day."""
    world = play("""
        t+0   submit   t1 failures_max=9
        t+0   robot    r1
        t+0   accept   r1 t1
        t+0   fail     r1 t1 after=50  -> AttemptFailed t1 not_again_before=1790000090000
        t+50  robot    r1              -> RobotSessionStarted r1, TaskAssigned t1
        t+50  accept   r1 t1
        t+50  fail     r1 t1 after=0.1 -> AttemptFailed t1
        t+53  accept   r1 t1           -> TaskAssigned t1, LeaseStarted t1
        t+54  fail     r1 t1 after=99999999999 -> AttemptFailed t1
    """)

    assert 1_800 <= waits(world)[1] <= 2_200
    assert waits(world)[2] == 86_400_000


def test_fatal_goes_to_the_dead_letters_at_once() -> None:
    """And carries its error."""
    world = play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+1   fail     r1 t1 fatal     -> AttemptFailed t1 DEAD dead_reason=fatal failures=1 not_again_before=
    """)

    assert world.named("AttemptFailed")[0].error.message == {"json": "it did not work"}


def test_eligible_at_does_not_move() -> None:
    """Back-off is a separate instant: the task keeps its place among its target's tasks."""
    play("""
        t+0   submit   t1 target=dock first=10
        t+1   submit   t2 target=dock
        t+1   robot    r1              -> TaskAssigned t1
        t+1   keep     r1
        t+1   accept   r1 t1
        t+2   fail     r1 t1           -> AttemptFailed t1 WAITING
        t+10  wait                     -> nothing
        t+14  wait                     -> TaskAssigned t1 #2
    """)


def test_five_lost_attempts_are_poison() -> None:
    """Each lease that ends counts; the robots are not blamed."""
    world = World()
    robots = [world.robot(f"r{k}") for k in range(6)]
    world.submit("t1")
    while world.at("t1") != "DEAD":
        for robot in robots:
            if robot.assigned():
                robot.accept("t1")
                robot.told.clear()
                robot.alive = False
            elif world.at("t1") != "RUNNING":
                robot.beat()
        world.wait(2.5)
    expired = world.named("LeaseExpired")
    assert [event.lost for event in expired] == [1, 2, 3, 4, 5]
    assert (expired[-1].to, expired[-1].dead_reason) == ("DEAD", "poison")
    assert world.named("RobotFaulted") == []
    world.verify()


def test_withdrawn_and_rejected_count_for_nothing() -> None:
    """Attempts grow; failures and lost do not."""
    world = World()
    r1, r2 = world.robot("r1"), world.robot("r2")
    world.keep(r1, r2)
    world.submit("t1", accept_ms=1_000)
    world.wait(4)
    holder = world.robots[world.named("TaskAssigned")[-1].robot]
    holder.reject("t1")
    task = world.row("t1")

    assert task.attempt >= 4
    assert (task.failures, task.lost) == (0, 0)
    world.verify()


@pytest.mark.parametrize("policy", ["requeue", "wait", "ask", "never"])
def test_the_four_policies_of_a_lost_robot(policy: str) -> None:
    """requeue: at once to another. wait: the same robot has its time. ask, never: LOST until somebody decides."""
    after = {
        "requeue": """
            t+20  wait -> LeaseExpired t1 WAITING, TaskAssigned t1 #2 r2""",
        "wait": """
            t+20  wait -> LeaseExpired t1 LOST wait_until=1790000070000
            t+30  wait -> LostWaitEnded t1 WAITING, TaskAssigned t1 #2 r2""",
        "ask": """
            t+999 wait -> LeaseExpired t1 LOST wait_until=
            t+999 release t1 force -> TaskReleased t1 WAITING, TaskAssigned t1 #2 r2""",
        "never": """
            t+999 wait -> LeaseExpired t1 LOST wait_until=
            t+999 release t1 force -> TaskReleased t1 WAITING, TaskAssigned t1 #2 r2""",
    }[policy]
    options = f"policy={policy}" + (" wait=10" if policy == "wait" else "")
    world = play(f"""
        t+0   submit   t1 {options}
        t+0   robot    r1
        t+0   accept   r1 t1
        t+1   robot    r2
        t+1   keep     r2
        {after}
    """)
    stop_after = {"requeue": 15_000, "wait": 25_000, "ask": None, "never": None}[policy]

    assert world.named("TaskAssigned")[0].stop_after_ms == stop_after
