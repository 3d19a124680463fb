"""The order inside a pool: levels, turns, deadlines, ageing, back-off, reservations, and which robot gets a task."""

import pytest

from commands import events as e
from commands import inputs as i
from commands import messages as m
from tests.support.play import play
from tests.support.world import START_AT, Robot, World


def served(world: World) -> list[str]:
    """Tasks in the order of their first assignment."""
    return list(dict.fromkeys(event.task for event in world.named("TaskAssigned")))


def serve(world: World, robot: Robot, tasks: int, seconds: float = 0.0) -> list[str]:
    """The robot does so many tasks, one after the other; their names in order."""
    done = []
    for _ in range(tasks):
        task = next(t for t in reversed(robot.assigned()) if world.at(t) == "ASSIGNED")
        robot.accept(task)
        world.wait(seconds)
        robot.complete(task)
        done.append(task)
    return done


def test_first_in_first_out() -> None:
    """Tasks of one priority without target: by sequence."""
    world = World()
    for k in range(20):
        world.submit(f"t{k}")
    robot = world.robot("r1")
    assert serve(world, robot, 20) == [f"t{k}" for k in range(20)]
    world.verify()


def test_priority_comes_first_and_age_is_worth_one_level_per_interval() -> None:
    """A task gains one level per ageing interval: priority 0 of three intervals ago goes before priority 2 of now."""
    world = World(settings={"ageing_ms": 10_000})
    world.submit("old", priority=0)
    world.wait(30)
    world.submit("low", priority=0)
    world.submit("two", priority=2)
    world.submit("three", priority=3)
    world.submit("four", priority=4)
    robot = world.robot("r1")
    assert serve(world, robot, 5) == ["four", "old", "three", "two", "low"]
    world.verify()


@pytest.mark.parametrize("target", [None, "dock"])
def test_an_earlier_deadline_goes_first_within_a_level(target: str | None) -> None:
    """And tasks with a deadline before those without; between targets, and inside one."""
    world = World()
    for name, seconds in (("none", None), ("late", 900), ("soon", 300)):
        at = None if seconds is None else START_AT + seconds * 1000
        deadlines = None if at is None else e.Deadlines(end=e.InstantDeadline(at=at))
        world.submit(name, deadlines=deadlines, target=target)
    assert serve(world, world.robot("r1"), 3) == ["soon", "late", "none"]
    world.verify()


def test_targets_take_turns() -> None:
    """S4: a target with a long queue delays no other; within a target the order of submission stays."""
    world = World()
    for k in range(30):
        world.submit(f"busy{k}", target="busy")
    for k in range(3):
        world.submit(f"a{k}", target="a")
        world.submit(f"b{k}", target="b")
    robot = world.robot("r1")
    first = serve(world, robot, 9, seconds=0.1)
    assert first == ["busy0", "a0", "b0", "busy1", "a1", "b1", "busy2", "a2", "b2"]
    rules = [event.because.rule for event in world.named("TaskAssigned")]
    assert rules[:4] == ["first come", "first come", "turn (never served)", "turn"]
    world.verify()


def test_service_is_round_robin_over_a_thousand_targets() -> None:
    """S4, in small: with 200 targets that all have work, nobody is served a second time before all were once."""
    world = World()
    for k in range(600):
        world.submit(f"t{k}", target=f"s{k % 200}")
    robots = [world.robot("r1", slots=8)]
    order: list[str] = []
    while len(order) < 600:
        for task in [t for t in robots[0].assigned() if world.at(t) == "ASSIGNED"]:
            robots[0].accept(task)
            robots[0].complete(task)
            order.append(f"s{int(task[1:]) % 200}")
        world.wait(0.05)
        robots[0].beat()
    assert [sorted(set(order[n : n + 200])) for n in (0, 200, 400)] == [sorted({f"s{k}" for k in range(200)})] * 3
    world.verify()


@pytest.mark.parametrize(("at", "first"), [(7, "n1"), (11, "a2")])
def test_a_turn_counts_within_its_ageing_interval(at: int, first: str) -> None:
    """A target that was served is behind others in the same interval; for later ones it counts as never served."""
    play(
        f"""
        t+0   robot    r1
        t+5   submit   a1 target=s1    -> TaskSubmitted a1, TaskAssigned a1
        t+5   keep     r1
        t+5   accept   r1 a1
        t+{at} submit  a2 target=s1
        t+{at}.5 submit n1
        t+12  complete r1 a1           -> TaskCompleted a1, TaskAssigned {first}
    """,
        ageing_ms=10_000,
    )


def test_a_task_that_nobody_can_take_changes_no_turns() -> None:
    """An older task whose robot drains: the targets behind it take turns all the same."""
    play(
        """
        t+0   robot    g caps=gpu
        t+0   drain    g
        t+0   submit   t0 requirement=gpu
        t+0   submit   x1 target=x
        t+0   submit   x2 target=x
        t+12  submit   y1 target=y
        t+12  robot    r1              -> RobotSessionStarted r1, TaskAssigned x1
        t+12  keep     r1
        t+12  accept   r1 x1
        t+13  complete r1 x1           -> TaskCompleted x1, TaskAssigned y1
    """,
        ageing_ms=10_000,
    )


def test_one_target_is_never_held_twice() -> None:
    """S3: whatever the kind, the robot or the failure; other targets go on."""
    world = play("""
        t+0   submit   t1 target=s1 first=5
        t+0   submit   t2 target=s1 kind=reboot
        t+0   submit   t3 target=s2
        t+0   robot    r1 slots=4      -> TaskAssigned t1, TaskAssigned t3
        t+0   robot    r2 slots=4
        t+1   accept   r1 t1
        t+2   fail     r1 t1           -> AttemptFailed t1
        t+3   accept   r1 t3
    """)
    assert world.at("t2") == "WAITING"


def test_only_higher_priority_passes_a_task_that_backs_off() -> None:
    """Of the same target; by pass: all of the task that backs off, every one; other targets are not touched."""
    rows = """
        t+0   submit   t1 target=s1 first=100 {passing} priority=4
        t+0   robot    r1              -> TaskAssigned t1
        t+0   keep     r1
        t+0   accept   r1 t1
        t+0   fail     r1 t1           -> AttemptFailed t1
        t+1   submit   same target=s1 priority=4 -> {same}
    """
    play(
        rows.format(passing="", same="TaskSubmitted same") + "t+2 submit high target=s1 priority=5 -> TaskAssigned high"
    )
    play(rows.format(passing="", same="TaskSubmitted same") + "t+2 submit other target=s2 -> TaskAssigned other")
    play(rows.format(passing="pass=all", same="TaskSubmitted same, TaskAssigned same"))


def test_each_task_that_backs_off_holds_up_for_itself() -> None:
    """pass: all of one lets nobody pass another one that says pass: higher."""
    play("""
        t+0   submit   t1 target=s1 first=100 priority=2
        t+0   robot    r1              -> TaskAssigned t1
        t+0   keep     r1
        t+0   accept   r1 t1
        t+0   fail     r1 t1           -> AttemptFailed t1
        t+1   submit   t2 target=s1 first=10 priority=7 pass=all -> TaskAssigned t2
        t+1   accept   r1 t2
        t+1   fail     r1 t2           -> AttemptFailed t2
        t+2   submit   t3 target=s1 priority=2 -> TaskSubmitted t3
        t+3   submit   t4 target=s1 priority=3 -> TaskAssigned t4
    """)


def test_not_before_is_no_back_off() -> None:
    """A task that may not start yet holds nobody up; it takes its place by its not-before."""
    play("""
        t+0   submit   t1 target=s1 not_before=100 priority=9
        t+0   submit   t2 target=s1
        t+0   robot    r1              -> TaskAssigned t2
        t+0   keep     r1
        t+0   accept   r1 t2
        t+99  complete r1 t2           -> TaskCompleted t2
        t+100 wait                     -> TaskAssigned t1 waited_ms=0
    """)


def test_a_large_task_is_not_starved_by_small_ones() -> None:
    """The robot with most free slots is kept for it: it takes nothing that stands behind; others do."""
    world = World()
    robots = {name: world.robot(name, slots=4) for name in ("r1", "r2")}
    for k in range(8):
        world.submit(f"s{k}")
    for robot in robots.values():
        for task in robot.assigned():
            robot.accept(task)
    world.submit("large", slot_cost=4)
    for k in range(8, 40):
        world.submit(f"s{k}")
    r1, r2 = robots["r1"], robots["r2"]
    r1.complete(r1.assigned()[0])
    assert r1.assigned()[4:] == []
    for k in range(3):
        task = r2.assigned()[k]
        r2.complete(task)
        fresh = r2.assigned()[-1]
        assert world.at(fresh) in ("ASSIGNED", "COMPLETED")
    for task in r1.assigned()[1:4]:
        r1.complete(task)
    assert world.row("large").current.robot == "r1"
    world.verify()


def test_a_reservation_that_cannot_be_kept_is_left_to_the_next() -> None:
    """The only robot for the first large task is away; the next large task gets its robot kept."""
    world = World()
    world.robot("far", slots=4, capabilities=["gpu"])
    world.wait(20)
    near = world.robot("near", slots=4)
    world.submit("s0")
    near.accept("s0")
    world.submit("first", slot_cost=4, requirement=["gpu"])
    world.submit("second", slot_cost=4)
    world.submit("s1")
    assert [world.at(task) for task in ("first", "second", "s1")] == ["WAITING"] * 3
    near.complete("s0")
    assert world.at("second") == "ASSIGNED"
    world.verify()


def test_what_stands_before_the_reserved_task_is_not_held_up() -> None:
    """Higher priority passes."""
    world = World()
    robot = world.robot("r1", slots=4)
    world.submit("s0")
    robot.accept("s0")
    world.submit("large", slot_cost=4)
    world.submit("behind")
    world.submit("before", priority=3)
    assert [world.at(task) for task in ("before", "large", "behind")] == ["ASSIGNED", "WAITING", "WAITING"]


def test_which_robot() -> None:
    """Most preferred conditions, then who ran it before, then fewest spare capabilities, then least load, then idle."""
    world = World()
    world.robot("many", capabilities=["a", "b", "c"], slots=4)
    world.robot("few", capabilities=["a"], slots=4)
    world.robot("near", capabilities=["a", "zone=1"], slots=4)
    world.submit("t1", requirement=["a"], prefer=["zone=1"])
    world.submit("t2", requirement=["a"])
    world.submit("t3", requirement=["a"], prefer=["b", "c"])
    robots = {event.task: event.robot for event in world.named("TaskAssigned")}
    assert robots == {"t1": "near", "t2": "few", "t3": "many"}
    few = world.robots["few"]
    few.accept("t2")
    world.submit("t4", requirement=["a"])
    assert world.row("t4").current.robot == "few"


def test_a_task_goes_back_to_the_robot_that_had_it() -> None:
    """Where nothing is preferred: its robot may have things ready."""
    world = World()
    robots = [world.robot(f"r{k}", slots=2) for k in range(3)]
    world.submit("t1", retry=i.RetryAsked(first_ms=0))
    first = world.row("t1").current.robot
    holder = world.robots[first]
    holder.accept("t1")
    world.submit("t2")
    world.submit("t3")
    holder.fail("t1")
    assert world.row("t1").current.robot == first
    assert len(robots) == 3


def test_it_says_why() -> None:
    """The rule that decided, and at most three robots that were passed over, each with a word."""
    world = World()
    world.robot("busy")
    world.submit("t0")
    world.robots["busy"].accept("t0")
    world.robot("draining")
    world.do(i.DrainRobot, i.RobotVerb(robot="draining"))
    world.robot("faulty").send(m.Fault, text="jammed")
    world.submit("t1")
    world.robot("free")
    because = world.named("TaskAssigned")[-1].because
    assert because.rule == "only candidate"
    assert {row.robot: row.reason for row in because.passed_over} == {
        "busy": "busy",
        "draining": "draining",
        "faulty": "error",
    }


@pytest.mark.parametrize("robots", [2, 10])
def test_a_burst_is_shared_equally(robots: int) -> None:
    """F10: equal robots get equal numbers."""
    world = World()
    doubles = [world.robot(f"r{k}", slots=1000) for k in range(robots)]
    for k in range(1000):
        world.submit(f"t{k}")
    shares = [len(robot.assigned()) for robot in doubles]
    assert max(shares) - min(shares) <= 1
