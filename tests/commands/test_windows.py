"""Windows: what counts, what is missed, when a lease ends, robots that fall silent and return, resets and changes."""

from typing import Any

import pytest

from commands import events as e
from commands import inputs as i
from tests.support.play import play
from tests.support.world import START_AT, World


def running(world: World, *tasks: str, robot: str = "r1", **fields: Any) -> Any:
    """A robot that runs these tasks."""
    made = world.robot(robot, slots=max(1, len(tasks)))
    for task in tasks:
        world.submit(task, **fields)
        made.accept(task)
    return made


def second(event: e.Event) -> float:
    """When it occurred, in seconds of the world."""
    return (event.occurred_at - START_AT) / 1000


def test_total_silence_ends_a_lease() -> None:
    """F17: one lease, no further input on any topic: windows close by time alone."""
    world = World()
    running(world, "t1")
    world.wait(30)
    assert [(second(event), event.start, event.attempts[0].missed) for event in world.named("WindowMissed")] == [
        (10, START_AT + 5_000, 1),
        (15, START_AT + 10_000, 2),
        (20, START_AT + 15_000, 3),
    ]
    [expired] = world.named("LeaseExpired")
    assert second(expired) == 20
    assert (expired.first_window, expired.last_window) == (START_AT + 5_000, START_AT + 15_000)
    world.verify()


@pytest.mark.parametrize("others", [False, True])
def test_a_lease_ends_at_the_same_time_whoever_else_beats(others: bool) -> None:
    """F20: heartbeats of other robots change nothing."""
    world = World()
    running(world, "t1")
    world.keep(*[world.robot(f"other{k}") for k in range(3 if others else 0)])
    world.wait(30)
    assert [second(event) for event in world.named("LeaseExpired")] == [20]


@pytest.mark.parametrize(("lease_ms", "windows"), [(15_000, 3), (15_001, 4), (20_000, 4), (60_000, 12)])
def test_a_lease_is_n_whole_windows(lease_ms: int, windows: int) -> None:
    """Rounded up; it ends n windows after the last one that counted, and at latest one window more."""
    world = World()
    running(world, "t1", lease_ms=lease_ms)
    assert world.named("TaskSubmitted")[0].windows == windows
    world.wait(200)
    assert [second(event) for event in world.named("LeaseExpired")] == [5 + 5 * windows]


def test_a_message_counts_in_every_window_from_the_oldest_open_one() -> None:
    """Heard at 12.4 s while the windows from 5 s on are still open (input before them was not known to be applied)."""
    world = World(settled_lag_ms=9_000)
    robot = running(world, "t1")
    world.wait(12.4)
    robot.beat()
    world.wait(50)
    assert [event.start - START_AT for event in world.named("WindowMissed")][:1] == [15_000]
    assert [second(event) for event in world.named("LeaseExpired")] == [39]
    world.verify()


@pytest.mark.parametrize("message", ["beat", "checkpoint", "accept", "refused", "repeat"])
def test_every_message_that_names_the_attempt_counts(message: str) -> None:
    """Whatever its number and its answer."""
    world = World()
    robot = running(world, "t1")
    for round_ in range(1, 20):
        world.wait(4)
        match message:
            case "beat":
                robot.beat()
            case "checkpoint":
                robot.checkpoint("t1", round_)
            case "accept":
                robot.accept("t1")
            case "refused":
                assert robot.reject("t1")["type"] == "refused"
            case _:
                robot.seq -= 1
                robot.accept("t1")
    assert world.named("LeaseExpired") == []
    assert world.named("WindowMissed") == []
    world.verify()


def test_other_messages_are_a_sign_of_life_of_the_robot_alone() -> None:
    """ready is heard, but names nothing: the robot stays IDLE or BUSY, its lease ends."""
    world = World()
    robot = running(world, "t1")
    for _ in range(8):
        world.wait(4)
        robot.ready(0)
    assert all(event.robots == [] for event in world.named("WindowMissed"))
    assert len(world.named("LeaseExpired")) == 1
    world.verify()


def test_a_heartbeat_that_does_not_name_an_attempt_lets_it_end() -> None:
    """The robot lives, the attempt does not: it is lost after its windows, and the robot gets a stop."""
    world = World()
    robot = running(world, "t1", "t2")
    world.submit("t3")
    for _ in range(12):
        world.wait(2.5)
        robot.beat(("t1", 1))
    assert [event.task for event in world.named("LeaseExpired")] == ["t2"]
    assert [message["task"] for message in robot.news("stop")] == ["t2"]
    world.verify()


def test_jitter_of_beats_never_ends_a_lease() -> None:
    """F09: beats that come 0 to 3 intervals late: no expiry before three windows in a row are missed."""
    import random

    dice = random.Random(9)
    for _ in range(50):
        world = World()
        robot = running(world, "t1")
        for _ in range(20):
            world.wait(2.5 + dice.uniform(0, 3) * 2.5)
            robot.beat()
        assert world.named("LeaseExpired") == []


def test_a_count_is_of_windows_in_a_row() -> None:
    """Two missed, one heard, two missed: nobody is lost."""
    world = World()
    robot = running(world, "t1")
    for _ in range(10):
        world.wait(14)
        robot.beat()
        world.wait(1)
    assert world.named("LeaseExpired") == []
    assert {row.missed for event in world.named("WindowMissed") for row in event.attempts} == {1, 2}
    world.verify()


def test_a_robot_that_falls_silent_and_returns() -> None:
    """One window missed: nothing new, until a window in which it was heard is closed. Three: OFFLINE."""
    world = World()
    robot = world.robot("r1")
    world.wait(10)
    [missed] = world.named("WindowMissed")
    assert [(row.robot, row.missed) for row in missed.robots] == [("r1", 1)]
    assert robot.state == "IDLE"
    world.submit("t1")
    assert world.at("t1") == "WAITING"
    world.wait(1)
    robot.beat()
    assert world.at("t1") == "WAITING"
    world.wait(4)
    assert world.named("WindowMissed")[-1].returned == ["r1"]
    assert world.at("t1") == "ASSIGNED"
    robot.accept("t1")
    robot.complete("t1")
    world.wait(19)
    assert robot.state == "IDLE"
    world.wait(1)
    assert robot.state == "OFFLINE"
    assert world.named("WindowMissed")[-1].robots[0].missed == 3
    world.wait(20)
    assert world.named("WindowMissed")[-1].robots[0].missed == 3
    robot.beat()
    world.wait(5)
    assert robot.state == "IDLE"
    world.verify()


def test_offline_ends_no_lease() -> None:
    """A lease ends by its own time only."""
    world = World()
    robot = running(world, "t1", lease_ms=60_000)
    world.wait(25)
    assert robot.state == "OFFLINE"
    assert world.at("t1") == "RUNNING"
    robot.beat()
    world.wait(5)
    assert robot.state == "BUSY"
    world.verify()


def test_ownership_taken_gives_a_grace() -> None:
    """All counts are 0 again and count from the first window that begins after it."""
    world = World()
    running(world, "t1")
    world.wait(17)
    world.take_over(gap_s=3)
    world.wait(19)
    assert world.named("LeaseExpired") == []
    world.wait(1)
    assert [second(event) for event in world.named("LeaseExpired")] == [40]
    world.verify()


def test_an_outage_of_the_owner_resets_counts_too() -> None:
    """The same owner goes on; what it heard in the open window is not lost."""
    world = World()
    robot = running(world, "t1")
    world.wait(16)
    robot.beat()
    world.note(e.OwnershipTaken(reason="outage", owner="test", partition=0, software="1", gap_ms=6_000))
    world.wait(60)
    assert [second(event) for event in world.named("LeaseExpired")] == [35]
    world.verify()


def test_windows_are_closed_in_order_when_time_was_held_up() -> None:
    """Six windows at once: each is written with its own counts, and the lease ends once."""
    world = World()
    running(world, "t1")
    world.wait_without_owner(42)
    world.tick()
    rows = [(event.start - START_AT, [r.missed for r in event.attempts]) for event in world.named("WindowMissed")]
    assert rows == [(5_000, [1]), (10_000, [2]), (15_000, [3])]
    assert [second(event) for event in world.named("LeaseExpired")] == [42]
    world.verify()


@pytest.mark.parametrize(("before_ms", "after_ms"), [(5_000, 10_000), (10_000, 5_000), (5_000, 60_000), (60_000, 500)])
def test_a_new_window_length_holds_from_the_next_minute(before_ms: int, after_ms: int) -> None:
    """Until then windows close at the old length; from then counts begin at 0 and n is recomputed."""
    lease_ms = 3 * max(before_ms, after_ms)
    world = World(settings={"window_ms": before_ms, "lease_ms": lease_ms})
    robot = running(world, "t1")
    world.keep(robot)
    world.wait(61)
    world.do(i.ConfigurePool, i.SettingsBody(settings={"window_ms": after_ms}))
    [configured] = world.named("PoolConfigured")
    assert second(configured) == 61
    assert configured.effective_at == START_AT + 120_000
    shorter = min(before_ms, after_ms)
    assert robot.news("session_note")[-1] == {
        "type": "session_note",
        "window_ms": shorter,
        "heartbeat_every_ms": shorter // 2,
    }
    world.wait(58)
    robot.beat()
    robot.alive = False
    world.wait(400)
    windows = world.named("WindowMissed")
    assert all(event.length_ms == (before_ms if event.start < START_AT + 120_000 else after_ms) for event in windows)
    first = next(event for event in windows if event.attempts and event.start >= START_AT + 120_000)
    assert first.attempts[0].missed == 1
    n = max(3, -(-lease_ms // after_ms))
    assert [second(event) for event in world.named("LeaseExpired")] == [120 + n * after_ms / 1000]
    world.verify()


def test_windows_go_on_while_a_change_is_on_its_way() -> None:
    """A robot that falls silent in the last minute of the old length is lost at its old time."""
    world = World()
    running(world, "t1")
    world.do(i.ConfigurePool, i.SettingsBody(settings={"window_ms": 10_000, "lease_ms": 30_000}))
    world.wait(30)
    assert [second(event) for event in world.named("LeaseExpired")] == [20]
    world.verify()


def test_a_window_missed_just_before_the_change_does_not_count_after_it() -> None:
    """Missed from 50 to 55, heard from 55 to 60: the first window of 10 s is the first that is missed."""
    world = World()
    robot = running(world, "t1")
    world.keep(robot)
    world.wait(31)
    world.do(i.ConfigurePool, i.SettingsBody(settings={"window_ms": 10_000, "lease_ms": 30_000}))
    world.wait(18.5)
    robot.alive = False
    world.wait(7)
    robot.beat()
    world.wait(60)
    counts = [
        (event.start - START_AT, event.attempts[0].missed) for event in world.named("WindowMissed") if event.attempts
    ]
    assert counts == [(50_000, 1), (60_000, 1), (70_000, 2), (80_000, 3)]
    world.verify()


def mass(world: World, robots: int, beside: int = 0) -> list[Any]:
    """Robots that run one task each and fall silent together, beside some that do not."""
    silent = [running(world, f"t{k}", robot=f"r{k}") for k in range(robots)]
    for k in range(beside):
        world.keep(running(world, f"b{k}", robot=f"b{k}"))
    return silent


def test_a_mass_expiry_is_held_once_for_one_window() -> None:
    """At least 20 leases and more than half of the pool's: the fault is probably ours. Then they end, all of them."""
    world = World()
    mass(world, 25, beside=20)
    world.wait(20)
    [held] = world.named("ExpiryHeld")
    assert (held.leases, held.robots, held.window - START_AT, held.until - START_AT) == (25, 25, 15_000, 25_000)
    assert world.named("LeaseExpired") == []
    world.wait(5)
    assert [second(event) for event in world.named("LeaseExpired")] == [25.0] * 25
    world.wait(60)
    assert len(world.named("ExpiryHeld")) == 1
    world.verify()


@pytest.mark.parametrize(("robots", "beside"), [(19, 0), (20, 20), (25, 25)])
def test_fewer_or_less_than_half_are_not_held(robots: int, beside: int) -> None:
    """19 alone, or half of the pool's."""
    world = World()
    mass(world, robots, beside)
    world.wait(20)
    assert world.named("ExpiryHeld") == []
    assert len(world.named("LeaseExpired")) == robots


def test_holding_can_be_switched_off() -> None:
    """expiry_held_min = 0."""
    world = World(settings={"expiry_held_min": 0})
    mass(world, 30)
    world.wait(20)
    assert len(world.named("LeaseExpired")) == 30


def test_whoever_is_heard_while_expiry_is_held_goes_on() -> None:
    """That is what the held window is for."""
    world = World()
    robots = mass(world, 30)
    world.wait(21)
    for robot in robots[:28]:
        robot.beat()
    world.wait(4)
    assert sorted(event.task for event in world.named("LeaseExpired")) == ["t28", "t29"]
    world.verify()


def test_the_next_episode_is_held_again() -> None:
    """An episode ends with the first closing at which no lease is due."""
    world = World()
    robots = mass(world, 30)
    world.wait(21)
    for robot in robots:
        robot.beat()
    world.wait(5)
    assert world.named("LeaseExpired") == []
    world.wait(20)
    assert len(world.named("ExpiryHeld")) == 2
    world.wait(5)
    assert len(world.named("LeaseExpired")) == 30
    world.verify()


def test_one_closing_writes_its_list_in_parts() -> None:
    """Lists that would be too long are split; each part is applied by itself."""
    from commands.heartbeats import ITEMS_PER_EVENT

    world = World(settings={"expiry_held_min": 0})
    many = ITEMS_PER_EVENT + 10
    for first in range(0, many, 1000):
        robot = world.robot(f"r{first}", slots=1000)
        for k in range(first, min(many, first + 1000)):
            world.submit(f"t{k}")
            robot.accept(f"t{k}")
    world.wait(20)
    parts = world.named("WindowMissed")
    assert [(len(event.attempts), event.part, event.parts) for event in parts] == [
        (ITEMS_PER_EVENT, 1, 2),
        (10, 2, 2),
    ] * 3
    assert len(world.named("LeaseExpired")) == many
    world.verify()


def test_a_quiet_pool_writes_nothing() -> None:
    """No running attempt and nobody online: windows pass without a trace."""
    world = World()
    robot = world.robot("r1")
    from commands import messages as m

    robot.send(m.Bye)
    events = len(world.events)
    world.wait(86_400)
    assert len(world.events) == events
    assert world.pool.next_at() is None
    play("t+86500 robot r1 -> RobotSessionStarted r1", world)
