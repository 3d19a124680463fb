"""Deciding is total: whatever well-formed input comes in whatever state, there is an answer and no fault."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import decide
from commands.rows import canonical
from tests.support.play import play
from tests.support.world import World

EXAMPLES = 2 * int(os.environ.get("FLEETLOG_SEEDS", "16"))

TASKS = st.sampled_from(["waiting", "assigned", "running", "lost", "dead", "done", "cancelled", "held", "ghost", ""])
ROBOTS = st.sampled_from(["r1", "r2", "gone", "ghost", ""])
NUMBERS = st.one_of(st.integers(-2, 3), st.sampled_from([0, 2**53, -(2**53), 1_790_000_000_000]))
TEXT = st.one_of(st.none(), st.text(max_size=8))
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4), st.lists, max_leaves=4)
CONDITIONS = st.lists(st.sampled_from(["gpu", "mem>=4", "mem>=x", "zone=1", "a b", ""]), max_size=3)
THEN = st.sampled_from(["alarm", "dead", "cancel"])
DEADLINES = st.builds(
    e.Deadlines,
    start=st.none() | st.builds(e.InstantDeadline, at=NUMBERS, then=THEN),
    run=st.none() | st.builds(e.RunDeadline, ms=NUMBERS, then=THEN),
    end=st.none() | st.builds(e.InstantDeadline, at=NUMBERS, then=THEN),
)
CHANGES = st.builds(
    e.TaskChanges,
    priority=st.none() | NUMBERS,
    requirement=st.none() | CONDITIONS,
    prefer=st.none() | CONDITIONS,
    slot_cost=st.none() | NUMBERS,
    not_before=st.none() | NUMBERS,
    deadlines=st.none() | DEADLINES,
)
SUBMISSIONS = st.builds(
    i.Submission,
    task=TASKS,
    kind=st.sampled_from(["weld", "", "k" * 65]),
    payload=st.none() | st.fixed_dictionaries({"json": JSON}),
    requirement=CONDITIONS,
    prefer=CONDITIONS,
    slot_cost=NUMBERS,
    target=st.none() | st.sampled_from(["dock", "a b"]),
    priority=NUMBERS,
    not_before=st.none() | NUMBERS,
    deadlines=st.none() | DEADLINES,
    lease_ms=st.none() | NUMBERS,
    accept_ms=st.none() | NUMBERS,
    lost_max=st.none() | NUMBERS,
    limit_key=st.none() | st.sampled_from(["k1", "a b"]),
)
SETTINGS = st.dictionaries(
    st.sampled_from(["window_ms", "lease_ms", "ageing_ms", "late", "on_lost", "backoff_factor", "nonsense"]),
    st.one_of(NUMBERS, TEXT, JSON, st.floats(allow_nan=True)),
    max_size=3,
)
SCOPES = st.builds(
    i.ScopeBody,
    scope=st.sampled_from(["pool", "target", "kind", "task"]),
    name=st.none() | TASKS,
    until=st.none() | NUMBERS,
    reason=TEXT,
)
SCHEDULES = st.sampled_from(["ping", "nightly", "ghost", "", "a b"])
SCHEDULE_VERBS = st.builds(i.ScheduleVerb, schedule=SCHEDULES, reason=TEXT)
BODIES: dict[Any, Any] = {
    i.Submit: SUBMISSIONS,
    i.SubmitAll: st.builds(i.Submissions, tasks=st.lists(SUBMISSIONS, max_size=3)),
    i.ChangeTask: st.builds(i.ChangeBody, task=TASKS, reason=TEXT, changed=CHANGES),
    i.CancelTask: st.builds(i.TaskVerb, task=TASKS, reason=TEXT),
    i.RedriveTask: st.builds(i.RedriveBody, task=TASKS, reason=TEXT, changed=st.none() | CHANGES),
    i.DiscardTask: st.builds(i.TaskVerb, task=TASKS, reason=TEXT),
    i.ResolveTask: st.builds(i.ResolveBody, task=TASKS, reason=TEXT),
    i.ReleaseTask: st.builds(i.ReleaseBody, task=TASKS, reason=TEXT, force=st.booleans()),
    i.Pause: SCOPES,
    i.Resume: SCOPES,
    i.SetLimit: st.builds(
        i.LimitBody,
        scope=st.sampled_from(["kind", "key"]),
        name=st.sampled_from(["weld", "cut", "k1", "", "x y"]),
        running=st.none() | NUMBERS,
        rate_per_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        burst=st.none() | NUMBERS,
    ),
    i.RemoveLimit: st.builds(
        i.LimitVerb, scope=st.sampled_from(["kind", "key"]), name=st.sampled_from(["weld", "cut", "k1"])
    ),
    i.SetSchedule: st.builds(
        i.ScheduleBody,
        schedule=SCHEDULES,
        every_ms=st.none() | NUMBERS | st.sampled_from([1_000, 60_000]),
        cron=st.none() | st.sampled_from(["* * * * *", "0 0 30 2 *", "", "x"]),
        zone=st.none() | st.sampled_from(["UTC", "Europe/Berlin", "x", ""]),
        overlap=st.sampled_from(["skip", "queue_one", "allow"]),
        catch_up=NUMBERS,
        jitter_ms=NUMBERS,
        task=SUBMISSIONS,
    ),
    i.PauseSchedule: SCHEDULE_VERBS,
    i.ResumeSchedule: SCHEDULE_VERBS,
    i.DeleteSchedule: SCHEDULE_VERBS,
    i.FireSchedule: SCHEDULE_VERBS,
    i.DrainRobot: st.builds(i.RobotVerb, robot=ROBOTS, reason=TEXT),
    i.UndrainRobot: st.builds(i.RobotVerb, robot=ROBOTS, reason=TEXT),
    i.ClearRobot: st.builds(i.RobotVerb, robot=ROBOTS, reason=TEXT),
    i.RetireRobot: st.builds(i.RobotVerb, robot=ROBOTS, reason=TEXT),
    i.CreatePool: st.builds(i.SettingsBody, settings=SETTINGS, reason=TEXT),
    i.ConfigurePool: st.builds(i.SettingsBody, settings=SETTINGS, reason=TEXT),
    i.UnfreezePool: st.builds(i.ReasonBody, reason=st.text(max_size=3)),
    i.AcceptClock: st.builds(i.ReasonBody, reason=st.text(max_size=3)),
    i.RaiseFormat: st.builds(i.FormatBody, to_format=NUMBERS),
    i.Explain: st.builds(i.TaskVerb, task=TASKS, reason=TEXT),
}
COMMANDS = st.one_of(
    *(
        st.builds(
            shape,
            id=st.sampled_from(["x1", "x2", "x3"]),
            pool=st.just("hall"),
            actor=st.sampled_from(["local", "other"]),
            reply_to=st.just("g1"),
            body=body,
        )
        for shape, body in BODIES.items()
    )
)
ATTEMPTS = st.integers(1, 3)
SHARED: dict[str, Any] = {"id": st.sampled_from(["b.1", "b.2", "odd"]), "seq": st.integers(50, 99)}
ERROR = st.builds(m.ErrorReport, type=st.just("Broken"), message=st.text(max_size=4), detail=JSON)
MESSAGES = st.one_of(
    st.builds(
        m.Hello,
        id=st.sampled_from(["b.1", "b.2", "r1-boot1.1", "odd", "r2-boot1.99", "."]),
        slots=st.integers(1, 3),
        capabilities=st.lists(st.sampled_from(["gpu", "mem=4", "mem", "zone=1"]), max_size=3),
        holding=st.lists(st.builds(m.HeldAttempt, task=TASKS, attempt=ATTEMPTS, started=st.booleans()), max_size=4),
        fault=st.none() | st.builds(m.FaultText, text=st.text(max_size=4)),
    ),
    st.builds(m.Ready, n=st.integers(0, 4), **SHARED),
    st.builds(
        m.Update,
        slots=st.none() | st.integers(1, 4),
        capabilities=st.none() | st.lists(st.just("gpu"), max_size=2),
        **SHARED,
    ),
    st.builds(m.Accept, task=TASKS, attempt=ATTEMPTS, **SHARED),
    st.builds(m.Reject, task=TASKS, attempt=ATTEMPTS, reason=st.just("busy"), text=TEXT, **SHARED),
    st.builds(m.Checkpoint, task=TASKS, attempt=ATTEMPTS, number=st.integers(1, 3), value=JSON, **SHARED),
    st.builds(m.Complete, task=TASKS, attempt=ATTEMPTS, result=JSON, **SHARED),
    st.builds(
        m.Fail,
        task=TASKS,
        attempt=ATTEMPTS,
        failure_class=st.sampled_from(["retryable", "fatal"]),
        error=ERROR,
        retry_after_ms=st.none() | st.integers(0, 2**53),
        **SHARED,
    ),
    st.builds(
        m.Stopped,
        task=TASKS,
        attempt=ATTEMPTS,
        why=st.sampled_from(["cancel", "stop", "own_deadline", "shutdown"]),
        checkpoint=st.none() | st.builds(m.CheckpointValue, number=st.integers(1, 3), value=JSON),
        **SHARED,
    ),
    st.builds(m.Heartbeat, holding=st.just([]), **SHARED),
    st.builds(m.Fault, text=st.text(max_size=4), **SHARED),
    st.builds(m.Recovered, **SHARED),
    st.builds(m.Bye, **SHARED),
)
BEATS = st.builds(
    i.Heartbeats,
    pool=st.just("hall"),
    gateway=st.just("g1"),
    beats=st.lists(
        st.builds(
            i.Beat,
            robot=ROBOTS,
            epoch=st.just(0),
            seq=st.integers(0, 99),
            holding=st.lists(st.builds(i.HeldByRobot, task=TASKS, attempt=ATTEMPTS, note=TEXT), max_size=4),
        ),
        max_size=2,
    ),
)
SAYINGS = st.tuples(ROBOTS, MESSAGES)


def crowded(policy: str) -> World:
    """A pool in which every state of a task occurs."""
    return play(f"""
        t+0   robot    gone
        t+0   retire   gone
        t+0   robot    r1 slots=9 caps=gpu
        t+0   submit   lost policy={policy} wait=600 target=dock
        t+0   submit   running lease=600
        t+0   submit   dead
        t+0   submit   done
        t+0   submit   held policy={policy} wait=600 lease=600
        t+0   accept   r1 lost
        t+0   accept   r1 running
        t+0   accept   r1 dead
        t+0   accept   r1 done
        t+0   accept   r1 held
        t+0   fail     r1 dead fatal
        t+0   complete r1 done
        t+0   submit   cancelled not_before=9
        t+0   cancel   cancelled
        t+0   release  held
        t+0   drain    r1
        t+25  submit   waiting requirement=none
        t+25  robot    r2
        t+25  submit   assigned
        t+25  schedule ping every=60 requirement=none
        t+25  fire     ping
        t+25  schedule nightly cron=30_2_*_*_* zone=Europe/Berlin
        t+25  pause_schedule nightly
    """)


def spoken(world: World, robot: str, message: Any) -> i.Report:
    """The message in the robot's current session."""
    known = world.state.robots.get(robot)
    if not isinstance(message, m.Hello):
        message.epoch = 0 if known is None else known.epoch
    return i.Report(pool="hall", robot=robot, gateway="g1", actor="local", message=message)


@pytest.mark.parametrize("policy", ["requeue", "wait", "ask"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_every_input_is_answered_in_every_state(policy: str, data: st.DataObject) -> None:
    """Commands, reports and heartbeats, one after the other: an answer each, no fault, and deciding changes nothing."""
    world = crowded(policy)
    for _ in range(12):
        asked: Any = data.draw(st.one_of(COMMANDS, SAYINGS, BEATS))
        if isinstance(asked, tuple):
            asked = spoken(world, *asked)
        if isinstance(asked, i.Heartbeats):
            for beat in asked.beats:
                known = world.state.robots.get(beat.robot)
                beat.epoch = 0 if known is None else known.epoch
        else:
            before = canonical(world.state)
            decision = decide(world.state, asked, world.context())
            assert canonical(world.state) == before
            assert decision.drafts
        world.take(asked)
        world.wait(data.draw(st.sampled_from([0, 1, 30])))
    assert [finding for finding in world.findings if finding.rule != "id twice"] == []
    assert canonical(world.folded()) == canonical(world.state)
    assert canonical(world.restored()) == canonical(world.state)
