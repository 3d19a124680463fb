"""Pool state as rows of JSON: what a snapshot holds, and the canonical form by which two states are compared.

A snapshot line is `[kind, ...]`; the first line of a pool is its header, the rows after it belong to it. Derived
things (queue, timers, used slots, generations) are left out and rebuilt by `restore`. The canonical form leaves out
log offsets as well and is sorted, so equal states have equal bytes.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import fields
from sys import intern
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from commands.events import Deadlines
from commands.evolve import new_pool
from commands.evolve.tasks import ask_for_deadlines
from commands.limits import Limit
from commands.remembered import Remembered
from commands.requirements import abilities_of
from commands.schedules import FIRING_MARK, Schedule
from commands.settings import PoolSettings
from commands.state import (
    Attempt,
    Ended,
    Held,
    Hold,
    Paused,
    PoolState,
    Reported,
    Robot,
    Saved,
    Story,
    Target,
    Task,
    Terms,
)

ROWS_FORMAT: Final = 1
_DEADLINES: Final[TypeAdapter[Deadlines]] = TypeAdapter(Deadlines)
_POOL_FIELDS: Final = (
    "log_id",
    "format",
    "window_before_ms",
    "window_from",
    "sequence",
    "last_at",
    "counting_from",
    "due_window",
    "held_window",
    "frozen",
)
_ROBOT_DERIVED: Final = frozenset({"abilities", "used", "tasks", "excluding"})
_ROBOT_FIELDS: Final = tuple(f.name for f in fields(Robot) if f.name not in _ROBOT_DERIVED)
_ATTEMPT_FIELDS: Final = tuple(f.name for f in fields(Attempt))
_NO_COUNTS: Final = [0, 0, 0]
_TERMS_FIELDS: Final = tuple(f.name for f in fields(Terms))


def header_line(state: PoolState) -> bytes:
    """The first line of a pool."""
    return to_json(["pool", ROWS_FORMAT, state.pool, _header(state) | _told(state)])


def robot_row(robot: Robot) -> dict[str, Any]:
    """Name -> value of what is not derived."""
    return {name: getattr(robot, name) for name in _ROBOT_FIELDS}


def canonical(state: PoolState) -> bytes:
    """The same bytes for the same state, whatever led to it."""
    rows = [
        ["pool", _header(state)],
        *(["robot", robot_row(r)] for _, r in sorted(state.robots.items())),
        *(["target", *target_row(t)] for _, t in sorted(state.targets.items())),
        *(["task", terms_row(t.terms), *task_row(t, None)] for _, t in sorted(state.tasks.items())),
        *(["hold", *hold_row(h)] for _, h in sorted(state.holds.items())),
        *(["schedule", *schedule.as_row()] for _, schedule in sorted(state.schedules.rows.items())),
        *(["ended", *ended_row(name, row)] for name, row in state.ended.items()),
        *(["command", *memory_row(key, row)] for key, row in state.commands.items()),
    ]
    return b"\n".join(to_json(row) for row in rows)


def restore(chunks: Iterable[bytes], now: int) -> list[PoolState]:
    """The pools that the lines of a snapshot hold, one or more of them a chunk; queue and timers are rebuilt as of
    `now`.

    Raises ValueError where a line is not of this format.
    """
    pools: list[PoolState] = []
    terms: dict[int, Terms] = {}
    for row in (row for chunk in chunks for row in from_json(b"[%b]" % chunk.replace(b"\n", b","))):
        kind = row[0]
        if kind == "task":
            _put_task(pools[-1], terms[row[1]], row)
        elif kind == "command":
            _, key, digest, sequence, at, state_then, attempt, *flags = row
            memory = Remembered(bytes.fromhex(digest), sequence, at, state_then, attempt, *flags)
            pools[-1].commands.add(bytes.fromhex(key), memory)
        elif kind == "pool":
            if row[1] != ROWS_FORMAT:
                raise ValueError(f"snapshot rows have format {row[1]}, this software reads {ROWS_FORMAT}")
            pools.append(_pool_from(row[2], row[3]))
            terms = {}
        else:
            _put(pools[-1], terms, kind, row[1:])
    for state in pools:
        _derive(state, now)
    return pools


def _header(state: PoolState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in _POOL_FIELDS} | {
        "settings": state.settings.as_json(),
        "retired": list(state.retired.items()),
        "idle_targets": list(state.idle_targets),
        "paused": [[*key, paused.until] for key, paused in sorted(state.paused.items())],
        "unsatisfiable": sorted([list(requirement), cost] for requirement, cost in state.unsatisfiable),
        "limits": [[*limited, limit.as_row()] for limited, limit in sorted(state.limits.rows.items())],
    }


def _told(state: PoolState) -> dict[str, Any]:
    """What belongs to a snapshot's header beside what is compared: the chain, and who paused what."""
    pauses = [list(paused[1:]) for _, paused in sorted(state.paused.items())]
    return {"chain": state.chain.hex(), "pauses": pauses}


def target_row(target: Target) -> list[Any]:
    """Name, last service, level, holder."""
    return [target.name, target.last_served, target.level, None if target.holder is None else list(target.holder)]


def terms_row(terms: Terms) -> list[Any]:
    """The values in order."""
    return [getattr(terms, name) for name in _TERMS_FIELDS]


def task_row(task: Task, offset: int | None) -> list[Any]:
    """What is not derived; the canonical form has no offset."""
    return [
        task.id,
        task.sequence,
        offset,
        task.digest.hex(),
        task.base_at,
        task.eligible_at,
        None if task.target is None else task.target.name,
        task.state,
        task.attempt,
        task.failures,
        task.lost,
        task.again_at,
        None if task.current is None else [getattr(task.current, name) for name in _ATTEMPT_FIELDS],
        _story_row(task, offset is not None),
    ]


def _story_row(task: Task, with_offset: bool) -> dict[str, Any] | None:
    deadlines = task.deadlines
    if task.story is None and deadlines is None:
        return None
    story = task.story or Story()
    saved = story.checkpoint
    return {
        "last_robot": story.last_robot,
        "last_end": story.last_end,
        "excluded": story.excluded,
        "clearings": story.clearings,
        "reported": _reported_row(story.reported),
        "checkpoint": None
        if saved is None
        else [saved.number, saved.sequence, saved.offset if with_offset else None, saved.saved_at],
        "dead_reason": story.dead_reason,
        "done_twice": story.done_twice,
        "redrives": story.redrives,
        "deadlines": None if deadlines is None else _DEADLINES.dump_python(deadlines),
        "passed": story.passed,
    }


def hold_row(hold: Hold) -> list[Any]:
    """The values in order."""
    target = None if hold.target is None else hold.target.name
    return [hold.task, hold.attempt, hold.sequence, hold.robot, hold.slot_cost, target, hold.until]


def _reported_row(reported: Reported) -> list[list[Any]]:
    return [[attempt, kind, late] for (attempt, kind), late in reported.items()]


def _reported_from(row: list[list[Any]]) -> Reported:
    return {(attempt, kind): late for attempt, kind, late in row}


def ended_row(task_id: str, ended: Ended) -> list[Any]:
    """The values in order."""
    reported = None if ended.reported is None else _reported_row(ended.reported)
    return [
        task_id,
        ended.state,
        ended.attempt,
        ended.sequence,
        ended.digest.hex(),
        ended.ended_at,
        ended.late,
        ended.robot,
        reported,
    ]


def memory_row(key: bytes, memory: Remembered) -> list[Any]:
    """The values in order."""
    return [
        key.hex(),
        memory.digest.hex(),
        memory.sequence,
        memory.at,
        memory.state,
        memory.attempt,
        memory.changed,
        memory.lacks,
    ]


# ---- back from rows ----


def _pool_from(pool: str, header: dict[str, Any]) -> PoolState:
    state = new_pool(pool)
    for name in _POOL_FIELDS:
        setattr(state, name, header[name])
    state.chain = bytes.fromhex(header["chain"])
    state.settings = PoolSettings(**header["settings"])
    state.retired = dict(header["retired"])
    state.idle_targets = OrderedDict.fromkeys(header["idle_targets"])
    told = header.get("pauses", [[]] * len(header["paused"]))
    pauses = zip(header["paused"], told, strict=True)
    state.paused = {(scope, name): Paused(until, *more) for (scope, name, until), more in pauses}
    state.unsatisfiable = {(tuple(requirement), cost) for requirement, cost in header["unsatisfiable"]}
    state.limits.rows = {(scope, name): Limit.from_row(row) for scope, name, row in header.get("limits", [])}
    return state


def _put(state: PoolState, terms: dict[int, Terms], kind: str, row: list[Any]) -> None:
    match kind:
        case "robot":
            values = row[0]
            values["capabilities"] = tuple(values["capabilities"])
            values["supersessions"] = tuple(values["supersessions"])
            values["former"] = tuple(values.get("former", ()))
            robot = Robot(**values, abilities=abilities_of(values["capabilities"]))
            state.robots[robot.id] = robot
        case "target":
            name, served, level, holder = row
            target = state.intern_target(name)
            target.last_served, target.level = served, level
            target.holder = None if holder is None else Held(*holder)
        case "terms":
            values = dict(zip(_TERMS_FIELDS, row[1], strict=True))
            for name in ("requirement", "prefer"):
                values[name] = tuple(values[name])
            terms[row[0]] = state.share(Terms(**values))
        case "hold":
            task_id, attempt, sequence, robot_id, cost, name, until = row
            where = None if name is None else state.intern_target(name)
            state.holds[Held(task_id, attempt)] = Hold(task_id, attempt, sequence, robot_id, cost, where, until)
        case "schedule":
            schedule = Schedule.from_row(row)
            state.schedules.rows[schedule.name] = schedule
        case "ended":
            task_id, at_end, attempt, sequence, digest, ended_at, late, robot_id, reported = row
            known = None if reported is None else _reported_from(reported)
            digest = bytes.fromhex(digest)
            state.ended_order.append(task_id)
            state.ended[task_id] = Ended(at_end, attempt, sequence, digest, ended_at, late, robot_id, known)
        case _:
            raise ValueError(f"a snapshot row of kind {kind!r} is not known")


def _put_task(state: PoolState, terms: Terms, row: list[Any]) -> None:
    _, _, task_id, sequence, offset, digest, base_at, eligible_at, name, at, attempt, *counts, current, story = row
    where = None if name is None else state.intern_target(name)
    task = Task(
        task_id, terms, sequence, offset, bytes.fromhex(digest), base_at, eligible_at, where, intern(at), attempt
    )
    if counts != _NO_COUNTS:
        task.failures, task.lost, task.again_at = counts
    if where is not None:
        where.tasks += 1
    if current is not None:
        task.current = Attempt(*current)
    if story is not None:
        story["reported"] = _reported_from(story["reported"])
        story["checkpoint"] = None if story["checkpoint"] is None else Saved(*story["checkpoint"])
        deadlines = story.pop("deadlines")
        task.deadlines = None if deadlines is None else _DEADLINES.validate_python(deadlines)
        told = Story(**story)
        task.story = None if deadlines is not None and told == Story() else told
    state.tasks[task_id] = task
    if task.state == "RUNNING":
        state.running[task_id] = task


def _derive(state: PoolState, now: int) -> None:
    """Slots in use, exclusions by robot, timers and the queue, from the rows."""
    for task in state.tasks.values():
        ask_for_deadlines(state, task)
        if not task.untouched:
            _derive_past(state, task)
        if FIRING_MARK in task.id and task.state != "DEAD":
            state.schedules.opened(task.id)
    for hold in state.holds.values():
        if hold.robot in state.robots:
            state.robots[hold.robot].used += hold.slot_cost
        if hold.until is not None:
            state.timers.push(hold.until, "hold", f"{hold.task}/{hold.attempt}")
    for (scope, name), paused in state.paused.items():
        if paused.until is not None:
            state.timers.push(paused.until, "pause", f"{scope}/{name}")
    for (limit_scope, name), limit in state.limits.rows.items():
        if limit.opens_at() > now:
            state.timers.push(limit.opens_at(), "limit", f"{limit_scope}/{name}")
    state.schedules.ask_all(state.last_at, state.timers)
    for robot in state.robots.values():
        state.queue.room_changed(robot)
    state.queue.rekey_all(now)


def _derive_past(state: PoolState, task: Task) -> None:
    current, story = task.current, task.story
    if current is not None:
        robot = state.robots[current.robot]
        robot.used += current.slot_cost
        robot.tasks[task.id] = None
        state.limits.hold(task.terms.kind, task.terms.limit_key)
        if task.state == "ASSIGNED":
            state.timers.push(current.accept_by, "accept", task.id)
        if current.wait_until is not None:
            state.timers.push(current.wait_until, "lost_wait", task.id)
    if story is not None:
        for name, until in story.excluded.items():
            state.robots[name].excluding.add(task.id)
            state.timers.push(until, "excluded", task.id)
