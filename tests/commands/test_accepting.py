"""Assignments that are not taken: time-outs, lapses, rejects, exclusions and how they end."""

from tests.support.play import play
from tests.support.world import World


def test_not_accepted_in_time_is_withdrawn() -> None:
    """At accept-by, not at the end of a lease; accepted just before, whatever time it is when that is decided."""
    play("""
        t+0   submit   t1 accept=3
        t+0   robot    r1              -> TaskAssigned t1 #1 accept_by=1790000043000
        t+2.9 wait                     -> nothing
        t+3   wait                     -> AssignmentWithdrawn t1 #1 accept_timeout, TaskAssigned t1 #2
        t+4   accept   r1 t1 #1        -> refused not_current, nothing
    """)
    world = World(settled_lag_ms=4_000)
    robot = world.robot("r1")
    world.submit("t1")
    world.wait(8)
    assert robot.accept("t1")["type"] == "ack"
    assert world.at("t1") == "RUNNING"
    world.verify()


def test_three_lapses_in_a_row_are_an_error() -> None:
    """Until its next hello or an operator's clear; an accepted assignment begins the row anew."""
    world = World()
    robot = world.robot("r1")
    world.keep(robot)
    world.submit("t1", accept_ms=1_000)
    world.wait(2.5)
    robot.accept("t1")
    robot.complete("t1")
    world.submit("t2", accept_ms=1_000)
    world.wait(2.5)
    assert world.named("RobotFaulted") == []
    world.wait(1)
    [fault] = world.named("RobotFaulted")
    assert fault.reason == "does_not_accept"
    world.wait(10)
    assert world.at("t2") == "WAITING"
    assert robot.state == "ERROR"
    robot.hello()
    robot.ready()
    assert world.at("t2") == "ASSIGNED"
    world.verify()


def test_many_slots_that_lapse_at_once_are_one_lapse() -> None:
    """A moment without network is no reason to take a robot out of work, however many slots it has; three in a row are.
    What was given a little earlier or later than its neighbours lapses with them."""
    world = World()
    robot = world.robot("r1", slots=4)
    world.keep(robot)
    for task in ("t1", "t2", "t3"):
        world.submit(task, accept_ms=2_000)
        world.wait(0.1)
    world.submit("t4", accept_ms=2_000)
    world.wait(1.9)
    assert len(world.named("AssignmentWithdrawn")) >= 3
    assert (world.named("RobotFaulted"), world.state.robots["r1"].lapses) == ([], 1)
    world.wait(2.2)
    assert (world.named("RobotFaulted"), world.state.robots["r1"].lapses) == ([], 2)
    world.wait(2.2)
    [fault] = world.named("RobotFaulted")
    assert fault.reason == "does_not_accept"
    world.verify()


def test_what_was_given_before_an_outage_is_no_lapse() -> None:
    """Nobody could accept while the owner was away; what was given after it counts."""
    world = World()
    robot = world.robot("r1")
    world.keep(robot)
    world.submit("t1", accept_ms=1_000)
    world.wait(2.5)
    assert world.state.robots["r1"].lapses == 2
    world.take_over(5)
    world.wait(1.1)
    assert (world.named("RobotFaulted"), world.state.robots["r1"].lapses) == ([], 1)
    world.verify()


def test_clear_lets_a_robot_try_again() -> None:
    """The row of lapses begins anew."""
    play("""
        t+0   robot    r1
        t+0   keep     r1
        t+0   submit   t1 accept=1
        t+2   wait                     -> AssignmentWithdrawn, TaskAssigned, AssignmentWithdrawn, TaskAssigned
        t+3   wait                     -> AssignmentWithdrawn t1 #3, RobotFaulted r1 does_not_accept
        t+9   clear    r1              -> RobotRecovered r1 cleared, TaskAssigned t1
        t+10  wait                     -> AssignmentWithdrawn t1, TaskAssigned t1
    """)


def test_ten_rejects_in_a_row_are_an_error() -> None:
    """A robot that takes nothing gets nothing more."""
    world = World()
    robot = world.robot("r1")
    for k in range(11):
        world.submit(f"t{k}")
    for _ in range(10):
        robot.reject(robot.assigned()[-1], "cannot")
    [fault] = world.named("RobotFaulted")
    assert fault.reason == "does_not_accept"
    assert len(world.named("TaskAssigned")) == 10
    world.verify()


def test_a_rejected_task_goes_elsewhere() -> None:
    """The pair is excluded for ten minutes, or until the robot's next hello; other tasks still go to it."""
    play(
        """
        t+0   submit   t1 cost=2
        t+0   robot    r1 slots=2      -> TaskAssigned t1 #1 r1
        t+0   robot    r2 slots=2
        t+0   drain    r2
        t+0   keep     r1 r2
        t+1   reject   r1 t1 unsafe    -> AssignmentRejected t1 #1 unsafe clears_exclusions=False \
excluded_until=1790000641000
        t+2   submit   t2              -> TaskSubmitted t2, TaskAssigned t2 r1
        t+2   accept   r1 t2
        t+3   complete r1 t2
        t+600 wait                     -> nothing
        t+601 wait                     -> TaskAssigned t1 #2 r1
    """.replace("\\\n", "")
    )
    play("""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1 r1
        t+0   robot    r2
        t+0   drain    r2
        t+1   reject   r1 t1           -> AssignmentRejected t1 #1
        t+9   robot    r1              -> RobotSessionStarted r1, TaskAssigned t1 #2 r1
    """)


def test_when_all_able_robots_said_no_exclusions_end_with_back_off() -> None:
    """The wait grows with each clearing; a robot that is not able is not asked."""
    world = play("""
        t+0   submit   t1 requirement=gpu
        t+0   robot    r0
        t+0   robot    r1 caps=gpu     -> TaskAssigned t1 #1 r1
        t+0   robot    r2 caps=gpu
        t+0   keep     r0 r1 r2
        t+1   reject   r1 t1           -> AssignmentRejected t1 #1 clears_exclusions=False, TaskAssigned t1 #2 r2
        t+2   reject   r2 t1           -> AssignmentRejected t1 #2 clears_exclusions=True
        t+4   wait                     -> TaskAssigned t1 #3
    """)
    clearing = world.named("AssignmentRejected")[-1]
    assert 900 <= clearing.not_again_before - clearing.occurred_at <= 1_100
    for _ in range(2):
        robot = world.robots[world.named("TaskAssigned")[-1].robot]
        robot.reject("t1")
    clearing = world.named("AssignmentRejected")[-1]
    assert clearing.clears_exclusions is True
    assert 1_800 <= clearing.not_again_before - clearing.occurred_at <= 2_200
    world.verify()


def test_a_clearing_ends_the_exclusions_of_all() -> None:
    """Not only of the robot that said no last."""
    play("""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1 r1
        t+0   robot    r2
        t+0   keep     r1 r2
        t+1   reject   r1 t1           -> AssignmentRejected t1 #1, TaskAssigned t1 #2 r2
        t+2   reject   r2 t1           -> AssignmentRejected t1 #2 clears_exclusions=True
        t+2   drain    r2
        t+4   wait                     -> TaskAssigned t1 #3 r1
    """)


def test_i3_a_reject_in_a_loop_does_not_stop_others() -> None:
    """I3: what one robot rejects over and over is done by another, and what nobody wants stops nothing else."""
    world = World()
    bad, good = world.robot("bad", slots=4), world.robot("good", slots=4)
    world.keep(bad, good)
    for k in range(20):
        world.submit(f"t{k}")
    for _ in range(60):
        for task in [t for t in bad.assigned() if world.at(t) == "ASSIGNED" and _robot(world, t) == "bad"]:
            bad.reject(task)
        for task in [t for t in good.assigned() if world.at(t) == "ASSIGNED" and _robot(world, t) == "good"]:
            good.accept(task)
            good.complete(task)
        world.wait(1)
    assert {world.at(f"t{k}") for k in range(20)} == {"COMPLETED"}
    world.verify()


def _robot(world: World, task: str) -> str | None:
    current = world.row(task).current
    return None if current is None else str(current.robot)
