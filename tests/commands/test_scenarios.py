"""The scenarios of robots, servers and bad input that the core must pass, each under its own name."""

from itertools import pairwise

import pytest

from commands import events as e
from commands import inputs as i
from commands import messages as m
from tests.support.play import play
from tests.support.world import START_AT, World


def test_r1_the_states_of_a_robot() -> None:
    """Registers: IDLE. Takes a task: BUSY. Finishes: IDLE. Falls silent: OFFLINE. Fault: ERROR, with its lease kept."""
    world = World()
    states = []

    def note() -> None:
        states.append(robot.state)

    robot = world.robot("r1", capabilities=["gpu"], slots=2)
    note()
    world.submit("t1")
    note()
    robot.accept("t1")
    robot.complete("t1")
    note()
    world.wait(20)
    note()
    robot.beat()
    world.wait(5)
    note()
    world.submit("t2")
    robot.accept("t2")
    robot.send(m.Fault, text="arm jammed", code="E7")
    note()
    world.submit("t3")
    world.keep(robot)
    world.wait(30)
    assert world.at("t2") == "RUNNING"
    assert world.at("t3") == "WAITING"
    robot.send(m.Recovered)
    note()
    assert world.at("t3") == "ASSIGNED"
    robot.accept("t3")
    robot.complete("t2")
    robot.complete("t3")
    note()
    robot.send(m.Bye)
    note()
    assert states == ["IDLE", "BUSY", "IDLE", "OFFLINE", "IDLE", "ERROR", "BUSY", "IDLE", "OFFLINE"]
    [fault] = world.named("RobotFaulted")
    assert (fault.reason, fault.code, fault.text) == ("reported", "E7", {"json": "arm jammed"})
    assert all(event.caused_by and event.actor and event.occurred_at for event in world.events)
    world.verify()


def test_r2_a_robot_vanishes_in_the_middle_of_a_task() -> None:
    """The lease ends after its time, at latest one window more, and another capable robot finishes it."""
    play("""
        t+0   robot    r1 caps=gpu
        t+0   robot    r2
        t+0   robot    r3 caps=gpu
        t+0   keep     r1 r2 r3
        t+0   submit   t1 requirement=gpu -> TaskSubmitted t1, TaskAssigned t1 #1 r1
        t+1   accept   r1 t1           -> LeaseStarted t1 #1
        t+9   beat     r1 t1#1
        t+9   silent   r1
        t+24  wait                     -> nothing
        t+25  wait                     -> LeaseExpired t1 #1 r1 WAITING lost=1, TaskAssigned t1 #2 r3
        t+25  accept   r3 t1           -> LeaseStarted t1 #2 r3
        t+30  complete r3 t1           -> TaskCompleted t1 #2 r3
    """)


def test_r3_the_answer_to_a_completion_was_lost() -> None:
    """Sent again after reconnecting: the same ack, and the task is completed once."""
    world = play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+1   complete r1 t1           -> TaskCompleted t1, ack
        t+2   hello    r1 holding=t1#1 -> RobotSessionStarted r1
        t+2   complete r1 t1 #1        -> ack, nothing
    """)
    assert world.robots["r1"].news("welcome")[1]["held"] == [
        {"task": "t1", "attempt": 1, "verdict": "stop", "reason": "ended"}
    ]


def test_r6_retries_are_bounded_and_then_an_operator_decides() -> None:
    """Exponential back-off, then a dead letter; redriven or discarded with a reason that is recorded."""
    world = World()
    robot = world.robot("r1")
    world.keep(robot)
    for task in ("t1", "t2"):
        world.submit(task)
    for _ in range(400):
        for task in ("t1", "t2"):
            if world.at(task) == "ASSIGNED":
                robot.accept(task)
                robot.fail(task)
        world.wait(0.1)
    assert [event.failures for event in world.named("AttemptFailed") if event.task == "t1"] == [1, 2, 3]
    assert world.at("t1") == world.at("t2") == "DEAD"
    assert world.verb(i.Explain, "t1")["holds"][0]["dead_reason"] == "failed"
    world.verb(i.RedriveTask, "t1", reason="the link is mended")
    world.verb(i.DiscardTask, "t2", reason="no longer needed")
    assert world.named("TaskRedriven")[0].reason == "the link is mended"
    assert world.named("TaskDiscarded")[0].reason == "no longer needed"
    robot.accept("t1")
    robot.complete("t1")
    assert (world.at("t1"), world.at("t2")) == ("COMPLETED", "DISCARDED")
    world.verify()


def test_s1_one_action_per_server_at_a_time() -> None:
    """add (1, 11), (2, 12), (1, 13): poll gives 11, 12, then nothing; finish(1), poll gives 13."""
    play("""
        t+0   robot    r1 slots=3
        t+0   submit   11 target=1     -> TaskSubmitted 11, TaskAssigned 11
        t+0   submit   12 target=2     -> TaskSubmitted 12, TaskAssigned 12
        t+0   submit   13 target=1     -> TaskSubmitted 13, nothing
        t+0   accept   r1 11
        t+1   complete r1 11           -> TaskCompleted 11, TaskAssigned 13
    """)


def test_s5_a_link_is_down() -> None:
    """The task waits with back-off, the others of its server behind it in order, other servers are not touched."""
    play("""
        t+0   robot    r1
        t+0   keep     r1
        t+0   submit   a1 target=a first=4 -> TaskSubmitted a1, TaskAssigned a1
        t+0   submit   a2 target=a
        t+0   submit   b1 target=b
        t+1   accept   r1 a1
        t+1   fail     r1 a1           -> AttemptFailed a1, TaskAssigned b1
        t+2   accept   r1 b1
        t+2   complete r1 b1           -> TaskCompleted b1
        t+6   wait                     -> TaskAssigned a1 #2
        t+6   accept   r1 a1
        t+6   complete r1 a1           -> TaskCompleted a1, TaskAssigned a2
    """)


def test_f01_the_assignment_is_lost_on_its_way() -> None:
    """Back in the queue after accept-by, not after the lease; attempts grow, failures and lost do not."""
    world = play("""
        t+0   submit   t1 lease=7200
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+0   keep     r1
        t+5   wait                     -> AssignmentWithdrawn t1 #1, TaskAssigned t1 #2
        t+5   accept   r1 t1
    """)
    task = world.row("t1")
    assert (task.state, task.attempt, task.failures, task.lost) == ("RUNNING", 2, 0, 0)


def test_f02_a_robot_that_never_reports() -> None:
    """After five lost attempts the task is DEAD with reason poison."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1")
    for _ in range(200):
        if world.at("t1") == "ASSIGNED":
            robot.accept("t1")
        robot.beat(("other", 1))
        world.wait(1)
    assert [event.to for event in world.named("LeaseExpired")] == ["WAITING"] * 4 + ["DEAD"]
    assert world.named("LeaseExpired")[-1].dead_reason == "poison"
    world.verify()


def test_f03_a_slow_robot_finishes_after_its_lease() -> None:
    """Recorded as a late report; the state of the newer attempt is not touched."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+18  robot    r2
        t+20  wait                     -> LeaseExpired t1 #1, TaskAssigned t1 #2 r2
        t+21  accept   r2 t1
        t+22  complete r1 t1 #1        -> ReportedLate t1 #1 r1 complete RUNNING done_twice=True, late
        t+23  complete r2 t1           -> TaskCompleted t1 #2 r2 late=False
    """)


def test_f04_a_backlog_is_worked_off_oldest_first() -> None:
    """After 80 minutes without robots, under continued input, the age of the oldest waiting task only falls."""
    world = World(settings={"queue_max": 10_000})
    world.dispatching = False
    for k in range(480):
        world.submit(f"t{k}")
        world.now += 10_000
    world.dispatching = True
    robot = world.robot("r1", slots=4)
    ages, order = [], []
    for k in range(480, 900):
        world.submit(f"t{k}")
        tasks = robot.assigned()
        robot.told.clear()
        for task in tasks:
            robot.accept(task)
            robot.complete(task)
            order.append(int(task[1:]))
        waiting = [t for t in world.state.tasks.values() if t.state == "WAITING"]
        ages.append(world.now - min((t.base_at for t in waiting), default=world.now))
        world.now += 1_000
        robot.beat()
    assert order == sorted(order)
    done = next(k for k, age in enumerate(ages) if age <= 4_000)
    assert all(later < former for former, later in pairwise(ages[: done + 1]))
    assert max(ages[done:]) <= 4_000
    world.verify()


def test_f09_small_delays_kill_nobody() -> None:
    """Beats 4 s apart against windows of 5 s, and beats that come up to 3 intervals late."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1")
    robot.accept("t1")
    for gap in [4.0] * 50 + [2.5, 10.0, 2.5, 9.9, 7.4, 10.0] * 10:
        world.wait(gap)
        robot.beat()
    assert world.named("LeaseExpired") == []
    assert world.at("t1") == "RUNNING"
    world.verify()


def test_f10_equal_robots_get_equal_shares() -> None:
    """1,000 tasks, 10 equal robots: shares differ by at most 1; the same after the dispatcher started anew."""
    world = World()
    robots = [world.robot(f"r{k}", slots=100) for k in range(10)]
    for k in range(500):
        world.submit(f"t{k}")
    world.take_over()
    for k in range(500, 1000):
        world.submit(f"t{k}")
    shares = [len(robot.assigned()) for robot in robots]
    assert sum(shares) == 1000
    assert max(shares) - min(shares) <= 1
    world.verify()


@pytest.mark.parametrize("first", ["completed", "expired"])
def test_f11_completion_and_expiry_in_both_orders(first: str) -> None:
    """Whichever is first in the log wins; the second is a late report, or nothing."""
    start = "t+0 submit t1\nt+0 robot r1\nt+0 accept r1 t1\n"
    if first == "completed":
        play(start + "t+19.9 complete r1 t1 -> TaskCompleted t1, ack\nt+60 wait -> nothing")
    else:
        play(start + "t+20 wait -> LeaseExpired t1\nt+20 complete r1 t1 #1 -> TaskCompleted t1 late=True, late")


def test_f13_a_task_that_kills_its_robots() -> None:
    """After so many lost robots it is poison; the fleet is not blamed."""
    world = World(settings={"lost_max": 3})
    for k in range(4):
        world.robot(f"r{k}")
    world.submit("bomb")
    for _ in range(40):
        for robot in world.robots.values():
            if "bomb" in robot.assigned() and world.at("bomb") == "ASSIGNED" and robot.news("ack"):
                robot.accept("bomb")
                robot.alive = False
            elif robot.holds == {}:
                robot.beat()
        world.wait(2.5)
    assert world.at("bomb") == "DEAD"
    assert world.named("LeaseExpired")[-1].dead_reason == "poison"
    assert world.named("RobotFaulted") == []
    world.verify()


def test_f15_a_delay_longer_than_the_lease() -> None:
    """Not before six hours from now with a lease of 30 s: not assigned before, and executed once."""
    world = play("""
        t+0     submit   t1 lease=30 not_before=21600
        t+0     robot    r1
        t+21600 robot    r1            -> RobotSessionStarted r1, TaskAssigned t1
    """)
    robot = world.robots["r1"]
    robot.accept("t1")
    robot.complete("t1")
    assert [event.occurred_at for event in world.named("TaskAssigned")] == [START_AT + 21_600_000]
    world.verify()


@pytest.mark.parametrize("ended", ["COMPLETED", "CANCELLED", "DISCARDED"])
def test_f16_nothing_leads_out_of_a_terminal_state(ended: str) -> None:
    """Every report and every verb, in every order: the state stays, and a superseded attempt never becomes current."""
    end = {
        "COMPLETED": "t+1 complete r1 t1",
        "CANCELLED": "t+1 cancel t1\nt+1 stopped r1 t1 cancel",
        "DISCARDED": "t+1 fail r1 t1 fatal\nt+1 discard t1",
    }[ended]
    world = play("t+0 submit t1 policy=ask\nt+0 robot r1\nt+0 accept r1 t1\n" + end)
    robot = world.robots["r1"]
    for _ in range(2):
        robot.accept("t1", 1)
        robot.reject("t1", attempt=1)
        robot.checkpoint("t1", 1, attempt=1)
        robot.beat(("t1", 1))
        robot.stopped("t1", "stop", 1)
        robot.fail("t1", 1)
        robot.complete("t1", 1)
        for shape in (i.CancelTask, i.RedriveTask, i.DiscardTask, i.ResolveTask, i.ReleaseTask):
            world.verb(shape, "t1")
        robot.hello(("t1", 1))
        robot.ready()
        world.wait(30)
        world.take_over()
    assert world.at("t1") == ended
    assert len(world.named("TaskAssigned")) == 1
    world.verify()


def test_f17_total_silence() -> None:
    """One lease, no further event on any topic: its end comes by time."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+20  wait                     -> LeaseExpired t1
    """)


def test_f18_completion_before_expiry_is_never_overtaken_by_time() -> None:
    """Time acts only up to the instant before which all input is applied, however late that is known."""
    world = World(settled_lag_ms=60_000)
    robot = world.robot("r1")
    world.submit("t1")
    robot.accept("t1")
    world.wait(70)
    assert world.named("LeaseExpired") == []
    assert robot.complete("t1")["type"] == "ack"
    world.wait(120)
    assert world.named("LeaseExpired") == []
    assert world.at("t1") == "COMPLETED"
    world.verify()


def test_f19_a_lease_below_three_windows() -> None:
    """Refused at submission, with the least lease there is; robots are told to beat twice a window."""
    world = World()
    answer = world.submit("t1", lease_ms=14_000)
    assert (answer["reason"], answer["field"]) == ("lease_too_short", "/lease")
    assert "15000 ms" in answer["text"]
    welcome = world.robot("r1").news("welcome")[0]
    assert welcome["heartbeat_every_ms"] * 2 == welcome["window_ms"]


@pytest.mark.parametrize("others", [0, 5])
def test_f20_expiry_does_not_wait_for_other_events(others: int) -> None:
    """With heartbeats of others, and with none at all: at the same time."""
    world = World()
    world.submit("t1", requirement=["gpu"])
    robot = world.robot("r1", capabilities=["gpu"])
    robot.accept("t1")
    world.keep(*(world.robot(f"o{k}") for k in range(others)))
    world.wait(60)
    assert [event.occurred_at - START_AT for event in world.named("LeaseExpired")] == [20_000]


def test_f21_a_hand_over_while_many_leases_are_close_to_their_end() -> None:
    """1,000 expiries come exactly once, none early: n windows after the take-over."""
    world = World(settings={"expiry_held_min": 0})
    for k in range(10):
        robot = world.robot(f"r{k}", slots=100)
        for task in range(100):
            world.submit(f"t{k}-{task}")
            robot.accept(f"t{k}-{task}")
    world.wait(19)
    world.take_over()
    world.wait(60)
    expired = world.named("LeaseExpired")
    assert len({event.task for event in expired}) == len(expired) == 1000
    assert {event.occurred_at - START_AT for event in expired} == {35_000}
    world.verify()


def test_f24_a_bad_request_stops_nobody() -> None:
    """Malformed: refused. Unsatisfiable: said. The next task is dispatched as ever."""
    play("""
        t+0   robot    r1
        t+0   submit   bad priority=77 -> refused invalid_field, nothing
        t+0   submit   odd requirement=teleport -> TaskSubmitted odd, RequirementUnsatisfiable odd
        t+0   submit   t1              -> TaskSubmitted t1, TaskAssigned t1
    """)


def test_f25_a_burst_and_a_mismatch() -> None:
    """1,000 tasks and 2 robots: all queue, none fails, nothing goes to who cannot; a reject goes elsewhere."""
    world = World()
    left = world.robot("left", capabilities=["left"], slots=2)
    right = world.robot("right", capabilities=["right"], slots=2)
    for k in range(1000):
        world.submit(f"t{k}", requirement=["left" if k % 3 else "right"])
    for _ in range(600):
        for robot in (left, right):
            tasks = robot.assigned()
            robot.told.clear()
            for task in tasks:
                robot.accept(task)
                robot.complete(task)
            robot.beat()
        world.wait(0.01)
    assert {world.at(f"t{k}") for k in range(1000)} == {"COMPLETED"}
    assert world.named("AttemptFailed") == []
    world.verify()
    play("""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 r1
        t+0   robot    r2
        t+1   reject   r1 t1 cannot    -> AssignmentRejected t1 r1 cannot, TaskAssigned t1 #2 r2
    """)


@pytest.mark.parametrize("policy", ["requeue", "never"])
def test_f26_an_older_message_overwrites_nothing(policy: str) -> None:
    """Order is by session epoch and number, not by arrival; the task follows its lost-robot policy."""
    world = World()
    robot = world.robot("r1")
    lost: i.OnLostAsked = i.OnLostAsked(policy=policy)  # type: ignore[arg-type]
    world.submit("t1", on_lost=lost)
    robot.accept("t1")
    ready = m.Ready(id="r1-boot1.90", epoch=robot.epoch, seq=90, n=1)
    robot.deliver(m.Fault(id="r1-boot1.91", epoch=robot.epoch, seq=91, text="jammed"))
    assert robot.deliver(ready)["reason"] == "invalid_field"
    old = m.Recovered(id="r1-boot1.89", epoch=robot.epoch, seq=89)
    assert robot.deliver(old)["reason"] == "invalid_field"
    assert robot.state == "ERROR"
    first = robot.epoch
    robot.hello(("t1", 1))
    robot.send(m.Bye)
    assert robot.state == "OFFLINE"
    idle = m.Ready(id="r1-boot1.99", epoch=first, seq=99, n=1)
    assert robot.deliver(idle)["reason"] == "no_session"
    world.take(
        i.Heartbeats(pool="hall", gateway="g1", beats=[i.Beat(robot="r1", epoch=robot.epoch, seq=9, holding=[])])
    )
    assert robot.state == "OFFLINE"
    assert world.at("t1") == "WAITING"
    world.verify()


@pytest.mark.parametrize("skew_s", [60, -60, 3_600, -3_600, 63_072_000, -63_072_000])
def test_f27_a_clock_that_jumps(skew_s: int) -> None:
    """Whatever the wall clock does and an operator accepts: no lease ends early, nothing has a negative duration."""
    world = World()
    robot = world.robot("r1")
    world.keep(robot)
    world.submit("t1")
    robot.accept("t1")
    world.wait(12)
    world.wall_at = world.now + skew_s * 1000
    world.do(i.AcceptClock, i.ReasonBody(reason="because"))
    if skew_s > 0:
        world.now = world.wall_at
        world._next_beat_at = world.now
    world.wall_at = None
    world.wait(60)
    assert world.named("LeaseExpired") == []
    robot.complete("t1")
    times = [event.occurred_at for event in world.events]
    assert times == sorted(times)
    assert world.named("TaskCompleted")[0].ran_ms >= 0
    assert all(event.waited_ms >= 0 for event in world.named("TaskAssigned"))
    world.verify()


@pytest.mark.parametrize(("target", "intervals"), [(None, 10), ("busy", 20)])
def test_f28_low_priority_runs_under_higher_load(target: str | None, intervals: int) -> None:
    """110 % load of priority 9 and one task of priority 0: nothing that became eligible more than ten ageing
    intervals after it (with a busy target: twice that) is served before it."""
    world = World(settings={"ageing_ms": 5_000})
    robot = world.robot("r1")
    world.submit("low", priority=0, target=target)
    began, k = world.now, 0
    for second in range(5 * intervals + 60):
        for _ in range(2 if second % 10 == 0 else 1):
            world.submit(f"t{k}", priority=9, target=target if k % 2 else None)
            k += 1
        for task in [t for t in robot.assigned() if world.at(t) == "ASSIGNED"]:
            robot.accept(task)
            robot.complete(task)
            break
        robot.beat()
        world.wait(1)
    order = [event.task for event in world.named("TaskAssigned")]
    assert "low" in order
    submitted = {event.task: event.occurred_at for event in world.named("TaskSubmitted")}
    assert all(submitted[task] <= began + intervals * 5_000 for task in order[: order.index("low")])
    world.verify()


def test_f29_a_task_that_needs_more_slots_than_there_are() -> None:
    """Unsatisfiable within one dispatch cycle, with what is missing; it keeps waiting until a robot can."""
    play("""
        t+0   robot    r1 slots=4
        t+0   submit   t1 cost=5       -> TaskSubmitted t1, RequirementUnsatisfiable t1 slot_cost=5
        t+60  robot    r2 slots=5      -> RequirementSatisfiable r2, TaskAssigned t1 r2
    """)


def test_i1_bad_input_is_refused_with_its_field() -> None:
    """An id of 10,000 characters, a priority out of range, a negative time, a lease below three windows."""
    play(f"""
        t+0   robot    r1
        t+0   submit   {"x" * 10_000}  -> refused invalid_field, nothing
        t+0   submit   t1 priority=10  -> refused invalid_field, nothing
        t+0   submit   t1 not_before=-99999999999 -> refused invalid_field, nothing
        t+0   submit   t1 lease=14     -> refused lease_too_short, nothing
        t+0   submit   t1              -> TaskSubmitted t1, TaskAssigned t1
    """)


def test_i2_somebody_elses_and_nobodys() -> None:
    """The same id with other content, a report about another robot's attempt, a heartbeat without a hello."""
    world = play("""
        t+0   submit   t1              -> TaskSubmitted t1
        t+0   submit   t1 priority=1   -> refused id_conflict, nothing
        t+0   robot    r1
        t+0   accept   r1 t1
        t+0   robot    r2
        t+1   complete r2 t1 #1        -> refused not_yours, nothing
        t+1   fail     r2 t1 #1        -> refused not_yours, nothing
        t+1   checkpoint r2 t1 1 #1    -> refused not_yours, nothing
        t+1   complete ghost t1 #1     -> refused no_session, nothing
    """)
    events = len(world.events)
    world.stranger("nobody").beat(("t1", 1))
    assert len(world.events) == events
    assert world.at("t1") == "RUNNING"
    assert e.TaskCompleted not in {type(event) for event in world.events}
