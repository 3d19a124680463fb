"""Every event type changes the tables in the way that is written here, or leaves them, on purpose."""

from pathlib import Path

import pytest

from commands import events as e
from commands.events import EVENT_TYPES
from projections.fold import EVENT_RULES
from projections.rows import FIRST_KEY, Entity, Table
from projections.store import Folder, open_reader
from projections.task_cards import TASK_RULES
from tests.projections.world import POOL, World
from tests.support.stored_events import (
    START_AT,
    assigned,
    completed,
    expired,
    failed,
    hello,
    leased,
    pool_created,
    registered,
    submitted,
)


def before() -> list[e.Event]:
    """Something of everything: tasks in most states, a held slot, a schedule, a limit, pauses, robots in trouble."""
    tasks: list[e.Event] = [submitted(f"{state}1", target=f"dock-{state}") for state in "warldch"]
    tasks += [assigned(f"{state}1") for state in "arldch"]
    tasks += [leased(f"{state}1") for state in "rldch"]
    return [
        pool_created(format=0),
        *tasks,
        expired("l1", "LOST", wait_until=START_AT + 60_000),
        failed("d1", to="DEAD", dead_reason="failed"),
        completed("c1"),
        expired("h1", "CANCELLED", held=True, held_until=START_AT + 60_000),
        registered("r2"),
        hello("r2", epoch=99),
        e.RobotFaulted(robot="r2", epoch=99, reason="reported"),
        e.RobotDrained(robot="r2"),
        e.ScheduleSet(schedule="nightly", every_ms=60_000, task={"kind": "weld"}),
        e.ScheduleSet(schedule="paused", every_ms=60_000, task={"kind": "weld"}),
        e.SchedulePaused(schedule="paused"),
        e.LimitSet(scope="kind", name_="weld", running=3),
        e.RequirementUnsatisfiable(requirement=["tpu"], slot_cost=1, waiting=1, first_task="w1", missing=["tpu"]),
        e.DispatchPaused(scope="kind", name_="paint"),
        e.PoolFrozen(where="tick", error="KeyError", digest="ab"),
    ]


TASK, INDEX, KIND = "tasks", "index", Entity.KIND.value
ROBOT, TARGET, BODY, SCHEDULE = Entity.ROBOT.value, Entity.TARGET.value, "bodies", Entity.SCHEDULE.value
THE_POOL, LIMIT, REQUIREMENT = Entity.POOL.value, Entity.LIMIT.value, Entity.REQUIREMENT.value
MINUTE, STEP = Entity.KIND_MINUTE.value, Entity.ROBOT_STEP.value
MOVED = {TASK, INDEX, KIND}
COUNTED = MOVED | {MINUTE}

CASES: list[tuple[e.Event, set[str]]] = [
    (submitted("new", schedule=e.Firing(id="nightly", instant=START_AT)), COUNTED | {BODY, SCHEDULE}),
    (e.TaskChanged(task="w1", origin="WAITING", to="WAITING", changed=e.TaskChanges(priority=3)), {TASK}),
    (assigned("w1"), COUNTED | {ROBOT, TARGET}),
    (
        e.AssignmentWithdrawn(task="a1", origin="ASSIGNED", attempt=1, robot="r1", reason="accept_timeout"),
        COUNTED | {STEP, ROBOT, TARGET},
    ),
    (
        e.AssignmentRejected(
            task="a1", origin="ASSIGNED", attempt=1, robot="r1", reason="busy", excluded_until=START_AT + 600_000
        ),
        COUNTED | {STEP, ROBOT, TARGET},
    ),
    (leased("a1"), MOVED),
    (e.CheckpointSaved(task="r1", attempt=1, robot="r1", number=1, checkpoint={"json": 1}), {TASK, BODY}),
    (e.ProgressNoted(items=[e.ProgressItem(task="r1", attempt=1, progress=5)]), {TASK}),
    (completed("r1"), COUNTED | {STEP, ROBOT, TARGET, BODY}),
    (failed("r1"), COUNTED | {STEP, ROBOT, TARGET, BODY}),
    (
        e.AttemptStopped(task="r1", origin="RUNNING", to="WAITING", attempt=1, robot="r1", why="shutdown", lost=0),
        COUNTED | {STEP, ROBOT, TARGET},
    ),
    (expired("r1", "LOST"), COUNTED | {STEP, ROBOT}),
    (e.LeaseResumed(task="l1", origin="LOST", attempt=1, robot="r1", epoch=3, counts_from=START_AT), MOVED),
    (
        e.LostWaitEnded(task="l1", origin="LOST", to="WAITING", attempt=1, robot="r1", lost=1),
        COUNTED | {STEP, ROBOT, TARGET},
    ),
    (
        e.TaskReleased(task="r1", origin="RUNNING", to="WAITING", attempt=1, robot="r1", reason="stuck"),
        COUNTED | {STEP, ROBOT, TARGET},
    ),
    (e.HoldEnded(task="h1", attempt=1, robot="r1", target="dock-h", why="time"), {TASK, INDEX, ROBOT, TARGET}),
    (e.CancelRequested(task="r1", attempt=1, robot="r1"), {TASK}),
    (e.TaskCancelled(task="w1", origin="WAITING"), COUNTED | {TARGET}),
    (
        e.DeadlinePassed(task="w1", origin="WAITING", to="WAITING", which="end", deadline=START_AT, then="alarm"),
        {TASK},
    ),
    (e.TaskRedriven(task="d1", origin="DEAD", reason="mended"), COUNTED | {TARGET}),
    (e.TaskDiscarded(task="d1", origin="DEAD", reason="hopeless"), COUNTED | {TARGET}),
    (e.ReportedLate(task="c1", attempt=1, robot="r1", kind="complete", state="COMPLETED"), {TASK, MINUTE}),
    (registered("r9"), {ROBOT}),
    (
        hello(epoch=50, held=[e.HeldVerdict(task="r1", attempt=1, verdict="run")], superseded_epoch=3),
        {ROBOT, TASK},
    ),
    (e.RobotSessionEnded(robot="r1", epoch=3, reason="bye"), {ROBOT}),
    (e.RobotReadyChanged(robot="r1", epoch=3, n=2), {ROBOT}),
    (e.RobotChanged(robot="r1", epoch=3, slots=4, capabilities=[]), {ROBOT}),
    (e.RobotFaulted(robot="r1", epoch=3, reason="reported"), {ROBOT}),
    (e.RobotRecovered(robot="r2", reason="cleared"), {ROBOT}),
    (e.RobotDrained(robot="r1"), {ROBOT}),
    (e.RobotUndrained(robot="r2"), {ROBOT}),
    (e.RobotRetired(robot="r2", reason="sold"), {ROBOT}),
    (
        e.WindowMissed(
            start=START_AT,
            length_ms=5_000,
            attempts=[e.MissedAttempt(task="r1", attempt=1, missed=1)],
            robots=[e.MissedRobot(robot="r1", missed=1)],
        ),
        {THE_POOL, TASK, ROBOT},
    ),
    (e.ExpiryHeld(window=START_AT, leases=20, robots=3, until=START_AT + 5_000), {THE_POOL}),
    (
        e.OwnershipTaken(reason="hand_over", owner="p2", partition=1, software="0.1.0", gap_ms=900),
        {THE_POOL, TASK},
    ),
    (e.ClockAccepted(from_at=START_AT, to_at=START_AT + 9_000, reason="ntp"), {THE_POOL, TASK}),
    (pool_created(), {THE_POOL}),
    (e.PoolConfigured(changed={"queue_max": 5}, effective_at=START_AT), {THE_POOL}),
    (e.FormatRaised(from_format=0, to_format=1), {THE_POOL}),
    (e.DispatchPaused(scope="pool", reason="lunch"), {THE_POOL}),
    (e.DispatchPaused(scope="kind", name_="weld"), {KIND}),
    (e.DispatchPaused(scope="target", name_="dock-w"), {TARGET}),
    (e.DispatchPaused(scope="task", name_="w1"), {TASK}),
    (e.DispatchResumed(scope="kind", name_="paint"), {KIND}),
    (e.LimitSet(scope="key", name_="plc", rate_per_s=2.5), {LIMIT}),
    (e.LimitRemoved(scope="kind", name_="weld"), {LIMIT}),
    (e.RequirementUnsatisfiable(requirement=["fpga"], slot_cost=1, waiting=1, first_task="w1"), {REQUIREMENT}),
    (e.RequirementSatisfiable(requirement=["tpu"], slot_cost=1, waiting=1, robot="r1"), {REQUIREMENT}),
    (e.ScheduleSet(schedule="hourly", cron="0 * * * *", task={"kind": "weld"}), {SCHEDULE}),
    (e.SchedulePaused(schedule="nightly"), {SCHEDULE}),
    (e.ScheduleResumed(schedule="paused"), {SCHEDULE}),
    (e.ScheduleDeleted(schedule="nightly"), {SCHEDULE}),
    (e.FiringsSkipped(schedule="nightly", first=1, last=2, count=2, reason="overlap"), {SCHEDULE}),
    (e.CommandNoted(command="c-1", answer={"changed": False}), set()),
    (e.PoolFrozen(where="dispatch", error="ValueError", digest="cd"), {THE_POOL}),
    (e.PoolUnfrozen(reason="mended"), {THE_POOL}),
    (e.RecordQuarantined(topic="reports", partition=1, offset=7, digest="ab", error="not JSON"), {THE_POOL}),
]
"""An event, and which rows differ after it (progress, history and positions always do)."""


def rows(folder: Path) -> dict[tuple[str, bytes], bytes]:
    """All rows but positions, histories and how far a pool is folded; entities by their own letter."""
    store = open_reader(Folder(folder))
    try:
        store.catch_up()
        found = {}
        for table in (Table.TASKS, Table.BODIES, Table.INDEX, Table.ENTITIES):
            for key, content in store.scan(table, FIRST_KEY, b"\xff" * 16):
                name = chr(key[0]) if table is Table.ENTITIES else table.value
                if name != Entity.PROGRESS.value:
                    found[name, key] = content
        return found
    finally:
        store.close()


@pytest.mark.parametrize(("event", "changed"), CASES, ids=[f"{i}-{event.name}" for i, (event, _) in enumerate(CASES)])
def test_what_an_event_changes(world: World, event: e.Event, changed: set[str]) -> None:
    """The rows that differ after one event are those that the table names, and its sequence is found."""
    world.write(*before())
    former = rows(world.folder)
    world.write(event)
    latter = rows(world.folder)
    differing = {key[0] for key in former.keys() | latter.keys() if former.get(key) != latter.get(key)}
    assert differing == changed
    stored = world.tables.event(POOL, event.sequence).value
    assert stored is not None
    assert stored.offset == world.log.rows[stored.partition][-1].offset


def test_every_type_has_a_rule_and_a_case() -> None:
    """A new event type fails here until its rule and its case are written."""
    assert set(TASK_RULES) | set(EVENT_RULES) == set(EVENT_TYPES)
    assert not set(TASK_RULES) & set(EVENT_RULES)
    assert {event.type for event, _ in CASES} == set(EVENT_TYPES)
