"""Schedules in the core: what fires, what is skipped and why, over pauses, outages, hand-overs and clock steps."""

import random
from typing import Any

import pytest

from commands import events as e
from commands import inputs as i
from commands.cut import snapshot_lines
from commands.decide.schedules import PAYLOAD_BYTES_MAX
from commands.evolve import evolve
from commands.firing import LOOKED_MAX, Plan, plan
from commands.pool import Pool
from commands.rows import restore
from commands.schedules import SCHEDULES_MAX, Schedule, firing_id, firing_of
from tests.support.ledger import check_firings
from tests.support.play import play
from tests.support.world import START_AT, World

MINUTE = 60_000
# The world begins at 2026-09-21T14:14:00Z.


def instants(world: World, schedule: str = "ping") -> list[float]:
    """Seconds after the start of the instants that became tasks, in order."""
    fired = [event.schedule for event in world.named("TaskSubmitted") if event.schedule is not None]
    return [(firing.instant - START_AT) / 1000 for firing in fired if firing.id == schedule]


def skipped(world: World, schedule: str = "ping") -> list[tuple[float, float, int, str]]:
    """(first, last, count, reason) of what was skipped, in seconds after the start."""
    return [
        ((event.first - START_AT) / 1000, (event.last - START_AT) / 1000, event.count, event.reason)
        for event in world.named("FiringsSkipped")
        if event.schedule == schedule
    ]


def set_schedule(world: World, name: str = "ping", task: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A schedule of tasks of kind `weld`."""
    body = i.ScheduleBody(schedule=name, task=i.Submission(task=name, **({"kind": "weld"} | (task or {}))), **fields)
    return world.do(i.SetSchedule, body)


def whole(world: World, schedule: str, every_s: float, first_s: float, last_s: float) -> None:
    """Every instant of an interval from first to last was fired or skipped, exactly once."""
    counted = [*instants(world, schedule)]
    for first, last, count, _ in skipped(world, schedule):
        counted += [first + k * every_s for k in range(count)]
        assert (last - first) / every_s + 1 == count
    assert sorted(counted) == [first_s + k * every_s for k in range(round((last_s - first_s) / every_s) + 1)]


# ---- overlap ----


def test_a_schedule_fires_at_its_instants() -> None:
    """Whole multiples of its interval, never at once; a task's id names schedule and instant."""
    play("""
        t+5   schedule ping every=20 kind=ping target=dock priority=3 -> ScheduleSet ping 20000
        t+19  wait                                                    -> nothing
        t+20  robot    r1 -> TaskSubmitted ping@20260921T141420Z ping dock 3, TaskAssigned ping@20260921T141420Z
        t+20  keep     r1
        t+21  accept   r1 ping@20260921T141420Z -> LeaseStarted
        t+22  complete r1 ping@20260921T141420Z -> TaskCompleted
        t+40  wait     -> TaskSubmitted ping@20260921T141440Z, TaskAssigned
    """)


def test_s6_a_slow_server_does_not_pile_up_pings() -> None:
    """S6: while a ping is open the next ones are skipped and counted, told once a minute and at its end."""
    world = play("""
        t+0   schedule ping every=10 target=server-1
        t+0   robot    r1
        t+0   keep     r1
        t+10  accept   r1 ping@20260921T141410Z -> TaskSubmitted, TaskAssigned, LeaseStarted
        t+20  wait     -> FiringsSkipped overlap 1
        t+79  wait     -> nothing
        t+80  wait     -> FiringsSkipped overlap 6
        t+95  complete r1 ping@20260921T141410Z -> TaskCompleted, FiringsSkipped overlap 1
        t+100 wait     -> TaskSubmitted ping@20260921T141540Z, TaskAssigned
    """)
    assert instants(world) == [10, 100]
    whole(world, "ping", 10, 10, 100)


def test_queue_one_keeps_the_newest_waiting() -> None:
    """At most one firing waits while one is open: the newest; it is submitted when the open one has ended."""
    world = play("""
        t+0   schedule ping every=60 overlap=queue_one
        t+0   robot    r1
        t+0   keep     r1
        t+60  accept   r1 ping@20260921T141500Z -> TaskSubmitted, TaskAssigned, LeaseStarted
        t+120 wait     -> nothing
        t+180 wait     -> FiringsSkipped overlap 1
        t+240 wait     -> FiringsSkipped overlap 1
        t+250 complete r1 ping@20260921T141500Z -> TaskCompleted, TaskSubmitted ping@20260921T141800Z, TaskAssigned
        t+251 accept   r1 ping@20260921T141800Z
        t+260 complete r1 ping@20260921T141800Z -> TaskCompleted
        t+300 wait     -> TaskSubmitted ping@20260921T141900Z, TaskAssigned
    """)
    assert instants(world) == [60, 240, 300]
    whole(world, "ping", 60, 60, 300)


def test_allow_lets_them_overlap() -> None:
    """Every instant becomes a task, whatever is open."""
    world = play("""
        t+0   schedule ping every=60 overlap=allow
        t+200 wait
    """)
    assert instants(world) == [60, 120, 180]
    assert skipped(world) == []


def test_what_is_lost_or_with_a_robot_is_open_what_is_dead_is_not() -> None:
    """A dead letter must not stop a schedule for ever; one that is redriven is open again."""
    world = play("""
        t+0   schedule ping every=60 policy=ask
        t+0   robot    r1
        t+0   keep     r1
        t+60  accept   r1 ping@20260921T141500Z -> TaskSubmitted, TaskAssigned, LeaseStarted
        t+61  fail     r1 ping@20260921T141500Z fatal -> AttemptFailed DEAD
        t+120 wait     -> TaskSubmitted ping@20260921T141600Z, TaskAssigned
        t+121 cancel   ping@20260921T141600Z
        t+122 pause    pool
        t+122 redrive  ping@20260921T141500Z
        t+180 wait     -> FiringsSkipped overlap
    """)
    assert instants(world) == [60, 120]


# ---- pause, replace, remove ----


def test_nothing_fires_while_paused_and_it_is_said() -> None:
    """What passes during a pause is counted when it ends; a repeat of pause or resume changes nothing."""
    world = play("""
        t+0   schedule ping every=60 overlap=allow catch_up=9
        t+61  pause_schedule  ping -> SchedulePaused ping because
        t+62  pause_schedule  ping -> unchanged
        t+200 take_over gap=30
        t+301 resume_schedule ping -> ScheduleResumed, FiringsSkipped 4 paused
        t+302 resume_schedule ping -> unchanged
        t+360 wait                 -> TaskSubmitted ping@20260921T142000Z
        t+361 pause_schedule  ghost -> refused no_such_schedule
        t+361 fire            ghost -> refused no_such_schedule
        t+361 unschedule      ghost -> refused no_such_schedule
    """)
    assert instants(world) == [60, 360]
    assert skipped(world) == [(120, 300, 4, "paused")]


def test_a_pause_outlives_a_replacement() -> None:
    """Whoever sets a paused schedule anew does not start it."""
    world = play("""
        t+0   schedule ping every=60
        t+1   pause_schedule  ping
        t+2   schedule ping every=30 -> ScheduleSet
        t+99  wait
        t+100 resume_schedule ping   -> ScheduleResumed, FiringsSkipped 3 paused
        t+120 wait                   -> TaskSubmitted
    """)
    assert instants(world) == [120]


def test_setting_the_same_again_changes_nothing() -> None:
    """So a deployment that sets its schedules every time delays none; another content replaces."""
    play("""
        t+0   schedule ping every=60 kind=ping priority=1
        t+40  schedule ping every=60 kind=ping -> ScheduleSet
        t+59  schedule ping every=60 kind=ping -> unchanged
        t+60  wait -> TaskSubmitted ping@20260921T141500Z ping
    """)


def test_a_replacement_loses_no_instant_that_waits_for_its_jitter() -> None:
    """An instant that has come and is not yet due goes over to the new schedule, and fires once, by its words."""
    world = World()
    world.submit("first")
    set_schedule(world, every_ms=600_000, jitter_ms=500_000)
    row = world.state.schedules.rows["ping"]
    instant = START_AT + 360_000
    late_s = (row.due_at(instant) - instant) / 1000
    assert late_s > 20
    world.wait(360 + late_s - 10)
    assert instants(world) == []
    set_schedule(world, every_ms=600_000, jitter_ms=500_000, task={"priority": 4})
    world.wait(20)
    assert instants(world) == [360]
    assert world.named("TaskSubmitted")[-1].priority == 4
    assert world.named("ScheduleSet")[-1].since_at == instant - 1
    world.verify()


def test_a_schedule_that_is_removed_fires_nothing_and_its_tasks_go_on() -> None:
    """The same name may be set anew; open tasks of its former life still count as open."""
    world = play("""
        t+0   schedule ping every=60
        t+61  unschedule ping      -> ScheduleDeleted
        t+121 wait                 -> nothing
        t+121 schedule ping every=60
        t+180 wait                 -> FiringsSkipped overlap
        t+181 cancel ping@20260921T141500Z
        t+240 wait                 -> TaskSubmitted
    """)
    assert instants(world) == [60, 240]


def test_a_firing_by_hand() -> None:
    """Beside the instants, at once; overlap holds; in the same second there is only one."""
    world = play("""
        t+0     schedule ping every=60
        t+1.2   fire     ping -> TaskSubmitted ping@20260921T141401Z WAITING
        t+1.2   again         -> same
        t+1.3   fire     ping -> refused id_conflict
        t+2.2   fire     ping -> refused wrong_state
        t+3     cancel   ping@20260921T141401Z
        t+60    fire     ping -> TaskSubmitted
    """)
    # The instant itself had come first: what was asked for in its second is a repeat of it.
    assert instants(world) == [1, 60]


def test_an_instant_in_whose_second_somebody_fired_is_not_fired_again() -> None:
    """The task is there already; the instant is counted as an overlap."""
    world = World()
    world.submit("first")
    set_schedule(world, every_ms=60_000, overlap="allow")
    world.settled_lag_ms = 500
    world.wait(60)
    assert world.do(i.FireSchedule, i.ScheduleVerb(schedule="ping"))["task"] == "ping@20260921T141500Z"
    world.wait(1)
    assert instants(world) == [60]
    assert skipped(world) == [(60, 60, 1, "overlap")]
    world.verify()


# ---- outages, hand-overs, steps of the clock ----


def test_after_an_outage_the_latest_fires_and_the_rest_is_one_event() -> None:
    """Catch-up 1: the latest only."""
    world = play("""
        t+0   schedule ping every=60
        t+70  take_over gap=1000 -> OwnershipTaken
        t+1071 wait -> FiringsSkipped 16 overlap
    """)
    assert instants(world) == [60]
    world = World()
    set_schedule(world, every_ms=MINUTE)
    world.take_over(gap_s=1000)
    world.wait(1)
    assert instants(world) == [960]
    assert skipped(world) == [(60, 900, 15, "catch_up")]
    world.verify()


@pytest.mark.parametrize(
    ("overlap", "catch_up", "fired"),
    [
        ("allow", 1, [960]),
        ("allow", 3, [840, 900, 960]),
        ("allow", 100, [60.0 * k for k in range(1, 17)]),
        ("skip", 3, [960]),
        ("queue_one", 3, [900]),
        ("allow", 0, [960]),
    ],
)
def test_catch_up(overlap: str, catch_up: int, fired: list[float]) -> None:
    """How many of the missed ones become tasks, as far as overlap lets them."""
    world = World()
    set_schedule(world, every_ms=MINUTE, overlap=overlap, catch_up=catch_up)
    world.take_over(gap_s=1000)
    world.wait(1)
    assert instants(world) == fired
    world.verify()


def test_catch_up_0_fires_nothing_late() -> None:
    """Whoever runs at two at night does not want to run at nine because the machine was down."""
    world = World()
    set_schedule(world, every_ms=10 * MINUTE, catch_up=0)
    world.take_over(gap_s=1100)
    world.wait(1)
    assert instants(world) == []
    assert skipped(world) == [(360, 960, 2, "catch_up")]
    world.wait(500)
    assert instants(world) == [1560]
    world.verify()


def test_a_long_outage_of_a_cron_pattern_is_counted_in_bounded_steps() -> None:
    """A tick goes through so many instants at most; the others are counted by the next ones, and all are counted."""
    world = World()
    set_schedule(world, cron="* * * * *", zone="Europe/Berlin")
    world.take_over(gap_s=25_000 * 60)
    world.wait(1)
    assert sum(count for _, _, count, _ in skipped(world)) == 24_999
    assert all(count <= LOOKED_MAX for _, _, count, _ in skipped(world))
    assert len(skipped(world)) == 3
    assert instants(world) == [1_500_000]
    world.verify()


def test_an_accepted_step_of_the_clock_skips_and_fires_once() -> None:
    """An hour forward by `clock accept`: the latest fires, the rest is counted; backwards nothing fires again."""
    world = play("""
        t+0   schedule ping every=60 overlap=allow
        t+61  wait
    """)
    world.wall_at = world.now + 3_600_000
    world.do(i.AcceptClock, i.ReasonBody(reason="battery"))
    world.now, world.wall_at = world.wall_at, None
    world.wait(1)
    assert instants(world) == [60, 3660]
    world.wall_at = world.now - 7_200_000
    world.do(i.AcceptClock, i.ReasonBody(reason="battery"))
    world.now, world.wall_at = world.wall_at, None
    world.wait(7_200)
    assert instants(world) == [60, 3660]
    world.wait(61)
    assert instants(world) == [60, 3660, 3720]
    world.verify()


def test_a_frozen_pool_fires_nothing_and_catches_up() -> None:
    """No timer acts while it is frozen; when it goes on, what was missed is fired or counted."""
    world = World()
    set_schedule(world, every_ms=MINUTE)
    world.note(e.PoolFrozen(where="tick", error="x", digest="x"))
    world.wait(200)
    assert instants(world) == []
    world.do(i.UnfreezePool, i.ReasonBody(reason="mended"))
    world.wait(1)
    assert instants(world) == [180]
    whole(world, "ping", 60, 60, 180)


@pytest.mark.parametrize("seed", range(40))
def test_no_instant_is_lost_or_fires_twice(seed: int) -> None:
    """Random schedules over pauses, replacements, outages, hand-overs, snapshots and accepted clock steps: the log
    alone tells of each instant once, and the live state is what it tells."""
    dice = random.Random(seed)
    world = World(settled_lag_ms=dice.choice([0, 0, 700]))
    robot = world.robot("r1", slots=3)
    for _ in range(60):
        name = dice.choice(["p", "q"])
        match dice.randint(0, 11):
            case 0 | 1:
                often: dict[str, Any] = {
                    "every_ms": dice.choice([1_000, 7_000, 45_000]),
                    "jitter_ms": dice.choice([0, 900]),
                }
                pattern = {"cron": dice.choice(["* * * * *", "*/3 * * * *"]), "zone": "Australia/Lord_Howe"}
                overlap = dice.choice(["skip", "queue_one", "allow"])
                set_schedule(world, name, overlap=overlap, catch_up=dice.randint(0, 3), **dice.choice([often, pattern]))
            case 2:
                world.do(dice.choice([i.PauseSchedule, i.FireSchedule]), i.ScheduleVerb(schedule=name))
            case 3 | 4:
                world.do(i.ResumeSchedule, i.ScheduleVerb(schedule=name))
            case 5:
                world.do(i.DeleteSchedule, i.ScheduleVerb(schedule=name))
            case 6:
                world.take_over(gap_s=dice.choice([0.5, 30, 4_000]))
            case 7:
                world.pool = Pool(world.restored(), world.written, world.now)
            case 8:
                world.wall_at = world.now + dice.choice([-600_000, 600_000])
                world.do(i.AcceptClock, i.ReasonBody(reason="x"))
                world.now, world.wall_at = world.wall_at, None
            case _:
                for task in dict.fromkeys(robot.assigned()):
                    if robot.accept(task).get("type") == "ack" and dice.random() < 0.7:
                        robot.complete(task)
                world.do(i.ClearRobot, i.RobotVerb(robot="r1"))
        world.wait(dice.choice([0, 3, 10, 100]))
        check_firings(world.events)
    world.verify()


def test_a_fault_in_the_middle_of_a_tick_loses_no_schedule() -> None:
    """The timers that a tick had taken out when it failed are asked for again by `unfreeze`."""
    world = World()
    set_schedule(world, "a", every_ms=MINUTE)
    set_schedule(world, "b", every_ms=MINUTE)
    world.state.schedules.rows["a"].task = {"kind": 5}
    world.wait(61)
    assert world.state.frozen
    world.state.schedules.rows["a"].task = {"kind": "weld"}
    world.do(i.UnfreezePool, i.ReasonBody(reason="mended"))
    world.wait(1)
    assert (instants(world, "a"), instants(world, "b")) == ([60], [60])


def test_at_most_so_many_firings_a_tick() -> None:
    """A hundred schedules at the same instant and more: all fire, a tick at a time, each once."""
    world = World({"firings_max": 7})
    world.submit("first")
    world.do(i.ConfigurePool, i.SettingsBody(settings={"firings_max": 7}))
    for k in range(20):
        set_schedule(world, f"s{k}", every_ms=MINUTE)
    world.now += MINUTE
    counts = []
    while len(world.named("TaskSubmitted")) < 21:
        before = len(world.named("TaskSubmitted"))
        world.tick()
        counts.append(len(world.named("TaskSubmitted")) - before)
    assert counts == [7, 7, 6]
    world.verify()


def test_one_schedule_alone_fires_no_more_in_a_tick() -> None:
    """Where many of its instants are due at once, those beyond the limit fire a tick later, none is lost."""
    world = World({"firings_max": 3})
    world.submit("first")
    world.do(i.ConfigurePool, i.SettingsBody(settings={"firings_max": 3}))
    set_schedule(world, every_ms=MINUTE, overlap="allow", catch_up=5)
    world.now += 5 * MINUTE
    counts = []
    for _ in range(3):
        before = len(world.named("TaskSubmitted"))
        world.tick()
        counts.append(len(world.named("TaskSubmitted")) - before)
    assert counts == [3, 2, 0]
    assert instants(world) == [60, 120, 180, 240, 300]
    world.verify()


def test_no_place_in_the_queue() -> None:
    """Counted with that reason, and the next instant is tried again."""
    world = play("""
        t+0   submit   t1
        t+0   set      queue_max=1
        t+0   schedule ping every=60
        t+60  wait   -> FiringsSkipped queue_full 1
        t+61  cancel t1
        t+120 wait   -> TaskSubmitted
    """)
    assert instants(world) == [120]


def test_one_timer_a_schedule() -> None:
    """Whatever happens to a schedule, its timers do not pile up."""
    world = World()
    robot = world.robot("r1")
    set_schedule(world, every_ms=MINUTE, jitter_ms=10_000)
    for _ in range(50):
        world.do(i.FireSchedule, i.ScheduleVerb(schedule="ping"))
        for task in dict.fromkeys(robot.assigned()):
            robot.accept(task)
            robot.complete(task)
        world.wait(7)
    assert len(world.state.schedules.rows["ping"].asked) <= 2
    folded = world.folded()
    assert len(folded.schedules.rows["ping"].asked) == 1


# ---- why ----


def why(world: World, instant_s: float, schedule: str = "ping") -> tuple[str, str]:
    """The reason and the sentence about a firing that is no task."""
    answer = world.verb(i.Explain, firing_id(schedule, START_AT + round(instant_s * 1000)))
    return answer["holds"][0]["reason"], answer["text"]


def test_why_a_firing_is_no_task() -> None:
    """Skipped and why, still to come, over; an instant that no schedule has is no task at all."""
    world = World()
    world.submit("first")
    set_schedule(world, every_ms=MINUTE)
    assert why(world, 60) == ("firing_to_come", "ping@20260921T141500Z is no task: it is due in 60 s.")
    world.wait(130)
    word, text = why(world, 120)
    assert word == "firing_skipped"
    assert text.endswith("it was skipped: an earlier firing was still open, and the schedule's overlap is skip.")
    assert why(world, 180)[0] == "firing_open"
    assert world.verb(i.Explain, "ping@20260921T141500Z")["state"] == "WAITING"
    world.do(i.PauseSchedule, i.ScheduleVerb(schedule="ping"))
    assert why(world, 240)[0] == "schedule_paused"
    world.wait(200)
    world.do(i.ResumeSchedule, i.ScheduleVerb(schedule="ping"))
    world.wait(1)
    assert why(world, 300) == (
        "firing_skipped", "ping@20260921T141900Z is no task: it was skipped: the schedule was paused."
    )  # fmt: skip
    assert why(world, -60)[0] == "firing_over"
    for name in ("ping@20260921T141530Z", "ghost@20260921T141500Z", "ping@x"):
        assert world.verb(i.Explain, name)["reason"] == "no_such_task"


# ---- replay ----


def test_a_replay_under_another_calendar_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding computes no instant: whatever the time zone database says now, events say what was decided."""
    world = World()
    set_schedule(world, cron="*/5 * * * *", zone="Europe/Berlin")
    world.take_over(gap_s=1000)
    world.wait(400)

    def gone(*_: Any) -> Any:
        raise AssertionError("a replay must not compute instants")

    monkeypatch.setattr("commands.instants._next", gone)
    world.verify()


def test_a_snapshot_holds_schedules_and_one_without_them_can_be_restored() -> None:
    """Older snapshots know no schedules; a restored pool goes on where the live one does."""
    world = World()
    set_schedule(world, every_ms=MINUTE, jitter_ms=1_000, overlap="queue_one")
    world.wait(150)
    lines = list(snapshot_lines(world.state))
    [state] = restore(lines, world.now)
    assert [one.as_row() for one in state.schedules.rows.values()] == [
        one.as_row() for one in world.state.schedules.rows.values()
    ]
    assert state.schedules.open == world.state.schedules.open != {}
    [older] = restore([line for line in lines if not line.startswith(b'["schedule"')], world.now)
    assert older.schedules.rows == {}


def test_a_deleted_schedule_takes_no_events() -> None:
    """`evolve` is total: an event of a schedule that is not there changes nothing."""
    world = World()
    world.submit("first")
    for event in (
        e.SchedulePaused(schedule="x"),
        e.ScheduleResumed(schedule="x"),
        e.ScheduleDeleted(schedule="x"),
        e.FiringsSkipped(schedule="x", first=1, last=1, count=1, reason="paused"),
    ):
        evolve(world.state, event)
    assert world.state.schedules.rows == {}


# ---- what may be set ----


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({}, "invalid_field", "/every"),
        ({"every_ms": 1_000, "cron": "* * * * *"}, "invalid_field", "/cron"),
        ({"every_ms": 500}, "invalid_field", "/every"),
        ({"every_ms": 1_000, "zone": "UTC"}, "invalid_field", "/zone"),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "invalid_field", "/zone"),
        ({"cron": "0 0 30 2 *"}, "never_fires", "/cron"),
        ({"every_ms": 60_000, "jitter_ms": 60_000}, "invalid_field", "/jitter"),
        ({"cron": "*/5 * * * *", "jitter_ms": 300_000}, "invalid_field", "/jitter"),
        ({"every_ms": 60_000, "jitter_ms": -1}, "invalid_field", "/jitter"),
        ({"every_ms": 60_000, "catch_up": 101}, "invalid_field", "/catch_up"),
        ({"every_ms": 60_000, "name": "a@b"}, "invalid_field", "/schedule"),
        ({"every_ms": 60_000, "name": "n" * 101}, "invalid_field", "/schedule"),
        ({"every_ms": 60_000, "task": {"kind": ""}}, "invalid_field", "/task/kind"),
        ({"every_ms": 60_000, "task": {"lease_ms": 1_000}}, "lease_too_short", "/task/lease"),
        ({"every_ms": 60_000, "task": {"not_before": START_AT + 10_000}}, "invalid_field", "/task/not_before"),
        (
            {"every_ms": 60_000, "task": {"deadlines": e.Deadlines(end=e.InstantDeadline(at=2**50))}},
            "invalid_field",
            "/task/deadlines",
        ),
        (
            {"every_ms": 60_000, "task": {"payload": {"json": "x" * PAYLOAD_BYTES_MAX}}},
            "too_large",
            "/task/payload",
        ),
    ],
)
def test_i1_what_is_refused(fields: dict[str, Any], reason: str, field: str) -> None:
    """I1: with the field and the reason; nothing is written."""
    world = World()
    world.submit("first")
    answer = set_schedule(world, **fields)
    assert (answer["reason"], answer["field"]) == (reason, field)
    assert world.named("ScheduleSet") == []


def test_everything_of_a_submission_reaches_its_firings() -> None:
    """Payload, deadlines, retry, labels; effective values are those of the pool at the instant."""
    world = World()
    said: dict[str, Any] = {
        "payload": {"json": {"host": "a"}},
        "requirement": ["gpu"],
        "labels": {"team": "red"},
        "retry": i.RetryAsked(failures_max=7),
        "on_lost": i.OnLostAsked(policy="ask"),
        "deadlines": e.Deadlines(run=e.RunDeadline(ms=5_000, then="cancel")),
        "passing": "all",
    }
    assert set_schedule(world, every_ms=MINUTE, task=said)["changed"] is True
    world.wait(60)
    [event] = world.named("TaskSubmitted")
    assert (event.payload, event.requirement, event.labels) == ({"json": {"host": "a"}}, ["gpu"], {"team": "red"})
    assert (event.retry.failures_max, event.on_lost.policy, event.deadlines.run.then) == (7, "ask", "cancel")
    assert (event.passing, event.lease_ms, event.caused_by, event.actor) == ("all", 15_000, "clock", "fleetlog")
    world.verify()


def test_so_many_schedules_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool has a bounded number; replacing one is always possible."""
    monkeypatch.setattr("commands.decide.schedules.SCHEDULES_MAX", 2)
    world = World()
    for name in ("a", "b"):
        set_schedule(world, name, every_ms=MINUTE)
    assert set_schedule(world, "c", every_ms=MINUTE)["reason"] == "invalid_field"
    assert set_schedule(world, "b", every_ms=2 * MINUTE)["changed"] is True
    assert SCHEDULES_MAX == 10_000


def test_a_repeated_command_gets_its_answer() -> None:
    """Also when the schedule has been removed since, and from a new owner."""
    world = World()
    world.submit("first")
    body = i.ScheduleBody(schedule="ping", every_ms=MINUTE, task=i.Submission(task="ping", kind="weld"))
    first = world.do(i.SetSchedule, body, "k1")
    world.do(i.DeleteSchedule, i.ScheduleVerb(schedule="ping"))
    world.take_over()
    assert world.do(i.SetSchedule, body, "k1") == first
    assert world.state.schedules.rows == {}


def test_ids_of_firings() -> None:
    """Both ways; only ids that are one are read as one."""
    assert firing_id("nightly", START_AT) == "nightly@20260921T141400Z"
    assert firing_of("nightly@20260921T141400Z") == ("nightly", START_AT)
    for text in ("nightly", "nightly@", "nightly@2026", "nightly@20261399T000000Z", "@x"):
        assert firing_of(text) is None


def test_jitter_is_always_the_same_and_within_bounds() -> None:
    """It follows from schedule and instant; different schedules are spread."""
    rows = [row(name=f"s{k}", jitter_ms=30_000) for k in range(200)]
    late = [one.due_at(START_AT) - START_AT for one in rows]
    assert late == [one.due_at(START_AT) - START_AT for one in rows]
    assert 0 <= min(late) < 3_000 < 27_000 < max(late) < 30_000


# ---- the plan of one look, against a walk through the instants one by one ----


def row(**fields: Any) -> Schedule:
    """A schedule as it stands."""
    given: dict[str, Any] = {
        "name": "s", "every_ms": 1_000, "cron": None, "zone": None, "overlap": "skip", "catch_up": 1, "jitter_ms": 0,
        "task": {"kind": "weld"}, "sequence": 1, "handled_at": 0,
    }  # fmt: skip
    return Schedule(**(given | fields))


@pytest.mark.parametrize("seed", range(300))
def test_a_plan_takes_every_instant_once_and_in_order(seed: int) -> None:
    """Whatever was paused, open, or late: nothing is left out, nothing comes twice, and what fires keeps the rules."""
    dice = random.Random(seed)
    due = [1_000 * k for k in sorted(dice.sample(range(1, 400), dice.randint(0, 30)))]
    one = row(
        overlap=dice.choice(["skip", "queue_one", "allow"]),
        catch_up=dice.choice([0, 1, 1, 2, 50]),
        resumed_at=dice.choice([0, dice.randint(0, 400_000)]),
        free_at=dice.choice([0, dice.randint(0, 400_000)]),
    )
    is_open, settled = dice.random() < 0.4, (due[-1] if due else 0) + dice.choice([0, 500, 90_000])
    found: Plan = plan(one, due, is_open, settled)
    taken = [instant for _, instants in found.skips for instant in instants]
    assert [*taken, *found.fires, *found.waits] == due
    kept = [*found.fires, *found.waits]
    assert len(kept) <= {"skip": 1, "queue_one": 2, "allow": 100}[one.overlap]
    assert len(kept) <= max(1, one.catch_up)
    assert all(instant > one.resumed_at for instant in kept)
    if one.overlap == "allow":
        assert not found.waits
    else:
        assert len(found.fires) <= (0 if is_open else 1)
        assert len(found.waits) <= (1 if one.overlap == "queue_one" else 0)
    if due and due[-1] > one.resumed_at and one.catch_up and (one.overlap != "skip" or not is_open):
        assert due[-1] in kept or (one.overlap == "skip" and due[-1] <= one.free_at)
