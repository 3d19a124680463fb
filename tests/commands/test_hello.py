"""Hello: sessions and epochs, verdicts on what a robot holds, forgotten attempts, repeats, old hellos, two programs."""

from typing import Any

import pytest

from commands import inputs as i
from commands import messages as m
from commands.evolve.robots import FORMER_MAX
from tests.support.play import play
from tests.support.world import Robot, World


def verdicts(answer: dict[str, Any]) -> dict[tuple[str, int], tuple[str, str | None]]:
    """(task, attempt) -> (verdict, reason) of a welcome."""
    return {(h["task"], h["attempt"]): (h["verdict"], h.get("reason")) for h in answer["held"]}


def require_refused(world: World, robot: Robot, hello: Any, reason: str, closed: int) -> None:
    """Whether the state is the live one, comes from the log or from a snapshot; and nothing is written."""
    events = len(world.events)
    for known in (world.state, world.folded(), world.restored()):
        world.pool.state = known
        answer = robot.deliver(hello)
        assert (answer["reason"], answer["closed"]) == (reason, closed)
    assert len(world.events) == events


def test_the_first_hello_registers() -> None:
    """RobotRegistered, then RobotSessionStarted whose sequence is the epoch; ready is 0 and nothing is assigned."""
    world = play("""
        t+0   submit   t1
        t+0   hello    r1 slots=2 caps=gpu|gpu_mem:24 -> RobotRegistered r1, RobotSessionStarted r1 slots=2
        t+1   ready    r1 1            -> RobotReadyChanged r1 n=1, TaskAssigned t1 r1, ack
        t+1   ready    r1 1            -> ack, nothing
        t+1   ready    r1 3            -> refused invalid_field, nothing
    """)
    started = world.named("RobotSessionStarted")[0]

    assert started.epoch == started.sequence
    assert started.capabilities == ["gpu", "gpu_mem=24"]
    assert world.robots["r1"].news("welcome")[0] | {"of": ""} == {
        "type": "welcome",
        "of": "",
        "epoch": started.epoch,
        "protocol": 1,
        "window_ms": 5_000,
        "heartbeat_every_ms": 2_500,
        "draining": False,
        "held": [],
        "payload_max_bytes": 262_144,
    }


def test_each_held_attempt_gets_a_verdict() -> None:
    """Run what is current, accept what was not yet accepted, stop everything else, and say why."""
    world = play("""
        t+0   robot    r2 caps=two
        t+0   submit   others requirement=two
        t+0   submit   running lease=60
        t+0   submit   ended
        t+0   submit   expired
        t+0   submit   released
        t+0   submit   dead
        t+0   robot    r1 slots=5
        t+0   accept   r1 running
        t+0   accept   r1 ended
        t+0   accept   r1 expired
        t+0   accept   r1 released
        t+0   accept   r1 dead
        t+0   drain    r1
        t+0   complete r1 ended
        t+0   fail     r1 dead fatal
        t+0   release  released
        t+20  wait
    """)
    robot = world.robots["r1"]
    names = ("running", "ended", "expired", "released", "dead", "others", "ghost")
    answer = robot.hello(*((name, 1) for name in names), ("others", 3), ("running", 9))

    assert verdicts(answer) == {
        ("running", 1): ("run", None),
        ("ended", 1): ("stop", "ended"),
        ("expired", 1): ("stop", "expired"),
        ("released", 1): ("stop", "released"),
        ("dead", 1): ("stop", "ended"),
        ("others", 1): ("stop", "newer_attempt"),
        ("others", 3): ("stop", "unknown"),
        ("ghost", 1): ("stop", "unknown"),
        ("running", 9): ("stop", "unknown"),
    }
    world.verify()


def test_an_assignment_survives_a_reconnect() -> None:
    """It is sent again with the same id and accept-by; the verdict is `accept`, and it can be accepted."""
    world = play("""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+2   hello    r1 holding=t1#1 -> RobotSessionStarted r1
        t+4   accept   r1 t1           -> LeaseStarted t1 #1
    """)
    first, second = world.robots["r1"].news("assign")

    assert verdicts(world.robots["r1"].news("welcome")[1]) == {("t1", 1): ("accept", None)}
    assert (first["accept_within_ms"], second["accept_within_ms"]) == (5_000, 3_000)
    assert first["assignment_id"] == second["assignment_id"] == world.named("TaskAssigned")[0].id


def test_a_lost_attempt_that_is_named_resumes() -> None:
    """Before its time is over, the same robot goes on with it; the new session has a new epoch."""
    play("""
        t+0   submit   t1 policy=wait wait=60
        t+0   robot    r1
        t+0   accept   r1 t1
        t+20  wait                     -> LeaseExpired t1 LOST
        t+30  hello    r1 holding=t1#1 -> RobotSessionStarted r1, LeaseResumed t1 #1 RUNNING
        t+31  complete r1 t1           -> TaskCompleted t1 late=False, ack
    """)


def test_an_attempt_named_twice_resumes_once() -> None:
    """A list with a repeat is the list without it."""
    play("""
        t+0   submit   t1 policy=ask
        t+0   robot    r1
        t+0   accept   r1 t1
        t+20  wait                     -> LeaseExpired t1 LOST
        t+30  hello    r1 holding=t1#1|t1#1 -> RobotSessionStarted r1, LeaseResumed t1 #1
    """)


@pytest.mark.parametrize(
    ("options", "expired"),
    [
        ("", "LeaseExpired t1 #1 not_held WAITING held=True held_until=1790000067000 first_window="),
        ("lost_max=1", "LeaseExpired t1 #1 not_held DEAD held=True dead_reason=poison"),
        ("policy=wait wait=30", "LeaseExpired t1 #1 not_held LOST held=False wait_until=1790000097000"),
        ("policy=ask", "LeaseExpired t1 #1 not_held LOST wait_until="),
        ("policy=never", "LeaseExpired t1 #1 not_held LOST wait_until="),
    ],
)
def test_a_forgotten_attempt_is_lost_at_once(options: str, expired: str) -> None:
    """RUNNING and not named: the lease is over; slot and target stay held until the robot has surely stopped."""
    play(f"""
        t+0   submit   t1 {options}
        t+0   robot    r1
        t+0   accept   r1 t1
        t+2   hello    r1              -> RobotSessionStarted r1, {expired}
    """)


def test_another_attempt_number_is_not_the_attempt() -> None:
    """Naming attempt 2 while attempt 1 runs forgets attempt 1."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+2   hello    r1 holding=t1#2 -> RobotSessionStarted r1, LeaseExpired t1 #1 not_held
    """)


def test_hello_counts_for_what_it_names() -> None:
    """A robot that reconnects in the last moment keeps its lease: hello is a message that names the attempt."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+19  hello    r1 holding=t1#1 -> RobotSessionStarted r1
        t+34  wait                     -> nothing
        t+35  wait                     -> LeaseExpired t1 #1
    """)


def test_a_repeated_hello_gets_its_welcome_again() -> None:
    """The same id: no event, the same epoch, verdicts as things stand, open assignments and cancels once more."""
    world = play("""
        t+0   submit   t1
        t+0   submit   t2
        t+0   robot    r1 slots=2
        t+0   accept   r1 t1
        t+1   cancel   t1              -> CancelRequested t1
        t+2   hello    r1 holding=t1#1 -> RobotSessionStarted r1, told r1 cancel t1, told r1 assign t2
        t+2   again                    -> nothing, told r1 cancel t1, told r1 assign t2
    """)
    first, second = world.robots["r1"].news("welcome")[-2:]

    assert first == second
    assert verdicts(second) == {("t1", 1): ("run", None)}


def test_a_cancel_by_deadline_follows_a_hello_too() -> None:
    """Whatever the robot was asked to end, it is asked again in its new session."""
    play("""
        t+0   submit   t1 run=2:dead
        t+0   robot    r1
        t+0   accept   r1 t1
        t+3   hello    r1 holding=t1#1 -> DeadlinePassed t1 run, RobotSessionStarted r1, told r1 cancel t1 deadline
    """)


def test_a_hello_that_comes_late_takes_nothing_over() -> None:
    """F26: order is by the number within the program's life, not by arrival; an old hello is refused with 4001."""
    world = World()
    robot = world.robot("r1")
    old = world.sent[1]
    robot.hello()
    first = m.Hello(id="r1-boot1.1", slots=1, capabilities=[], holding=[])
    events = len(world.events)
    for hello in (first, m.Hello(id="r1-boot1.2", slots=1, capabilities=[], holding=[])):
        answer = robot.deliver(hello)
        assert (answer["reason"], answer["closed"]) == ("superseded", 4001)
    assert len(world.events) == events
    assert robot.deliver(old)["reason"] == "no_session"
    world.verify()


def test_a_late_hello_of_a_former_program_takes_nothing_over() -> None:
    """The robot was started anew twice, and then the network brings a hello of its first life once more."""
    world = World()
    robot = world.stranger("r1")
    robot.hello()
    old = world.sent[1]
    for _ in range(2):
        world.wait(30)
        robot.hello(fresh=True)
    require_refused(world, robot, old, "superseded", 4001)
    assert robot.ready()["type"] == "ack"
    world.verify()


def test_so_many_former_programs_are_remembered() -> None:
    """A robot that is started anew again and again keeps its row small."""
    world = World()
    robot = world.robot("r1")
    for _ in range(FORMER_MAX + 3):
        world.wait(30)
        robot.hello(fresh=True)
    row = world.state.robots["r1"]
    assert len(row.former) == FORMER_MAX
    assert row.hello not in row.former
    robot.hello()
    assert len(row.former) == FORMER_MAX


def test_a_hello_from_before_a_bye_opens_nothing() -> None:
    """Said again after bye, an old hello would show a robot that has gone as idle."""
    play("""
        t+0   hello    r1
        t+1   bye      r1              -> RobotSessionEnded r1
    """)
    world = World()
    robot = world.stranger("r1")
    robot.hello()
    hello = world.sent[1]
    robot.send(m.Bye)
    answer = robot.deliver(hello)

    assert answer["reason"] == "superseded"
    assert robot.state == "OFFLINE"
    world.verify()


def test_a_retired_robots_old_hello_registers_nothing() -> None:
    """Its welcome was lost, it was retired, and the hello comes again: refused with 4004. A new one registers anew."""
    world = World()
    robot = world.stranger("r1")
    robot.hello()
    hello = world.sent[1]
    world.do(i.RetireRobot, i.RobotVerb(robot="r1", reason="sold"))
    require_refused(world, robot, hello, "forbidden", 4004)
    assert robot.hello()["type"] == "welcome"
    assert len(world.named("RobotRegistered")) == 2
    world.verify()


def test_a_refused_hello_may_be_taken_later() -> None:
    """After `clear` the very same message opens a session, and no event id comes twice."""
    world = World()
    robot = world.robot("r1")
    for _ in range(6):
        robot.hello(fresh=True)
    refused = world.sent[1]
    assert robot.deliver(refused)["reason"] == "two_programs"
    world.do(i.ClearRobot, i.RobotVerb(robot="r1", reason="the other one was stopped"))
    assert robot.deliver(refused)["type"] == "welcome"
    world.verify()


def test_a_newer_session_supersedes_the_older() -> None:
    """The older one is told to end; its messages are refused; leases go on where they are named."""
    world = World()
    first = world.robot("r1")
    world.submit("t1")
    first.accept("t1")
    told = first.told
    epoch = first.epoch
    first.hello(("t1", 1), fresh=True)

    assert [message["closed"] for message in told if message["type"] == "superseded"] == [4001]
    assert world.named("RobotSessionStarted")[1].superseded_epoch == epoch
    first.epoch = epoch
    assert first.complete("t1")["reason"] == "no_session"
    assert world.at("t1") == "RUNNING"
    world.verify()


def test_the_sixth_supersession_in_a_minute_is_two_programs() -> None:
    """Refused with 4002; the session goes on in ERROR and may reconnect; other programs wait for `clear`."""
    world = World()
    robot = world.robot("r1")
    for _ in range(5):
        assert robot.hello(fresh=True)["type"] == "welcome"
    current, boot, epoch, seq = robot.boot, robot.counter, robot.epoch, robot.seq
    answer = robot.hello(fresh=True)
    assert (answer["reason"], answer["closed"]) == ("two_programs", 4002)
    assert world.named("RobotFaulted")[-1].reason == "two_programs"
    assert robot.state == "ERROR"
    assert robot.hello(fresh=True)["reason"] == "two_programs"
    assert len(world.named("RobotFaulted")) == 1

    other = robot.boot
    robot.boot, robot.counter, robot.epoch, robot.seq = current, boot, epoch, seq
    assert robot.ready()["type"] == "ack"
    assert robot.hello(fault=m.FaultText(text="jammed"))["type"] == "welcome"
    assert robot.state == "ERROR"
    assert world.state.robots["r1"].fault == "two_programs"
    robot.send(m.Bye)
    robot.boot = other
    world.wait(120)
    assert robot.hello()["reason"] == "two_programs"

    world.do(i.ClearRobot, i.RobotVerb(robot="r1"))
    assert robot.hello()["type"] == "welcome"
    assert robot.state == "IDLE"
    world.verify()


def test_slow_restarts_are_not_two_programs() -> None:
    """Five within a minute are let through, and a minute later five more."""
    world = World()
    robot = world.robot("r1")
    for _ in range(12):
        world.wait(12)
        assert robot.hello(fresh=True)["type"] == "welcome"


def test_reconnects_of_one_program_are_not_two_programs() -> None:
    """The boot id is the same, so it is the same program, however often its connection breaks."""
    world = World()
    robot = world.robot("r1")
    for _ in range(20):
        assert robot.hello()["type"] == "welcome"


def test_a_fault_in_hello_is_a_reported_fault() -> None:
    """The robot is in ERROR from its first moment, and recovers by its own word."""
    play("""
        t+0   submit   t1
        t+0   robot    r1 fault=jammed -> RobotSessionStarted r1, RobotFaulted r1 reported
        t+1   recovered r1             -> RobotRecovered r1 reported, TaskAssigned t1 r1
    """)


def test_messages_outside_a_session_are_refused() -> None:
    """No hello, an epoch that is over, a number not above the last: each has its reason, and nothing happens."""
    world = World()
    world.submit("t1")
    stranger = world.stranger("r9")
    assert stranger.ready()["reason"] == "no_session"
    robot = world.robot("r1")
    epoch = robot.epoch
    robot.hello()
    robot.epoch = epoch
    assert robot.ready()["reason"] == "no_session"
    robot.epoch = world.state.robots["r1"].epoch
    robot.seq = 7
    assert robot.ready(1)["type"] == "ack"
    events = len(world.events)
    robot.seq = 6
    refused = robot.ready(0)
    assert (refused["reason"], refused["field"]) == ("invalid_field", "/seq")
    assert len(world.events) == events
    world.verify()


def test_a_heartbeat_inside_a_report_is_no_report() -> None:
    """Heartbeats travel gathered; one that comes as a report is refused by its type."""
    world = World()
    robot = world.robot("r1")

    assert robot.send(m.Heartbeat, holding=[])["reason"] == "unknown_type"
