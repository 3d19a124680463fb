"""Verbs on schedules, and the task of one firing. When a schedule fires is decided in `commands/firing.py`."""

from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any, Final

from pydantic_core import to_json

from commands import events as e
from commands import inputs as i
from commands.decide.answers import Context, Decision, accepted, refused, task_answer
from commands.decide.submit import (
    SUBMISSION,
    deadlines_problem,
    lease_problem,
    placed,
    submission_digest,
    submission_problem,
)
from commands.instants import cron_problem, every_problem, instants_after
from commands.reasons import Refusal
from commands.schedules import SCHEDULE_CHARS_MAX, SCHEDULES_MAX, Schedule, firing_id
from commands.state import PoolState
from commands.vocabulary import is_name

CATCH_UP_MAX: Final = 100
JITTER_MAX_MS: Final = 86_400_000
PAYLOAD_BYTES_MAX: Final = 16_384
"""The owner keeps the payloads of all schedules in memory."""
_GAPS_LOOKED_AT: Final = 50
_SPEC: Final = ("every_ms", "cron", "zone", "overlap", "catch_up", "jitter_ms", "task")


def set_schedule(state: PoolState, command: i.SetSchedule, context: Context) -> Decision:
    """Create a schedule, or replace it. What of the one before is due and not handled is the new one's business."""
    body = command.body
    problem = schedule_problem(body) or _task_problem(state, body, context.now) or _too_many(state, body)
    if problem is not None:
        return refused(command, problem)
    before = state.schedules.rows.get(body.schedule)
    event = e.ScheduleSet(
        schedule=body.schedule,
        every_ms=body.every_ms,
        cron=None if body.cron is None else " ".join(body.cron.split()),
        zone=None if body.cron is None else body.zone or "UTC",
        overlap=body.overlap,
        catch_up=body.catch_up,
        jitter_ms=body.jitter_ms,
        task=template_of(body.task),
        since_at=None if before is None else _unhandled_since(before, context.now),
    )
    if before is not None and all(getattr(before, name) == getattr(event, name) for name in _SPEC):
        return _noted(state, command, context)
    return accepted(command, schedule_answer(body.schedule, True, state.sequence + 1, context.now), event)


def pause(state: PoolState, command: i.PauseSchedule, context: Context) -> Decision:
    """Fire nothing until resumed; the instants that pass are counted as skipped."""
    body = command.body
    return _change(state, command, context, True, e.SchedulePaused(schedule=body.schedule, reason=body.reason))


def resume(state: PoolState, command: i.ResumeSchedule, context: Context) -> Decision:
    """Fire again, from the next instant on."""
    body = command.body
    return _change(state, command, context, False, e.ScheduleResumed(schedule=body.schedule, reason=body.reason))


def delete(state: PoolState, command: i.DeleteSchedule, context: Context) -> Decision:
    """Remove a schedule; the tasks that it submitted go on."""
    body = command.body
    event = e.ScheduleDeleted(schedule=body.schedule, reason=body.reason)
    return _change(state, command, context, None, event)


def fire(state: PoolState, command: i.FireSchedule, context: Context) -> Decision:
    """Submit the task now, for the second that has begun; its instants stay as they are. Overlap holds here, too."""
    name = command.body.schedule
    row = state.schedules.rows.get(name)
    if row is None:
        return refused(command, _unknown(name))
    instant = context.now - context.now % 1_000
    task_id = firing_id(name, instant)
    task, open_firings = state.tasks.get(task_id), state.schedules.open.get(name)
    if task is not None or task_id in state.ended:
        return refused(command, Refusal("id_conflict", f"{task_id} was fired already; ask again in a second"))
    if open_firings and row.overlap != "allow":
        text = f"{next(iter(open_firings))} is still open and the schedule's overlap is {row.overlap}"
        return refused(command, Refusal("wrong_state", text))
    event = firing(state, row, instant, context.now)
    if isinstance(event, Refusal):
        return refused(command, event)
    return accepted(command, task_answer(task_id, "WAITING", 0, state.sequence + 1, context.now), event)


def firing(state: PoolState, row: Schedule, instant: int, now: int) -> e.TaskSubmitted | Refusal:
    """The task of one firing, or why the queue has no place for it."""
    body = SUBMISSION.validate_python(row.task | {"task": firing_id(row.name, instant)})
    event = placed(state, body, submission_digest(body), now, 0, {})
    if isinstance(event, e.TaskSubmitted):
        event.schedule = e.Firing(id=row.name, instant=instant)
    return event


def template_of(task: i.Submission) -> dict[str, Any]:
    """A schedule's submission as its event keeps it: what was said, without the id."""
    said: dict[str, Any] = SUBMISSION.dump_python(task, exclude_none=True, exclude_defaults=True, by_alias=True)
    return {name: value for name, value in said.items() if name != "task"}


# ---- what may be asked for ----


def schedule_problem(body: i.ScheduleBody) -> Refusal | None:
    """What is wrong with a schedule whatever the pool, or None; the gateway asks before it sends."""
    text = f"a schedule is letters, digits and . _ : - (at most {SCHEDULE_CHARS_MAX}, the first a letter or digit)"
    checks: list[tuple[bool, str, str]] = [
        (is_name(body.schedule, SCHEDULE_CHARS_MAX), "/schedule", text),
        (body.every_ms is not None or body.cron is not None, "/every", "a schedule has an interval or a cron pattern"),
        (body.every_ms is None or body.cron is None, "/cron", "an interval or a cron pattern, not both"),
        (body.zone is None or body.cron is not None, "/zone", "a time zone belongs to a cron pattern"),
        (0 <= body.catch_up <= CATCH_UP_MAX, "/catch_up", f"a catch-up is 0 to {CATCH_UP_MAX}"),
        (0 <= body.jitter_ms <= JITTER_MAX_MS, "/jitter", "a jitter is at most 24 hours"),
    ]
    wrong = next((Refusal("invalid_field", text, field) for fine, field, text in checks if not fine), None)
    if wrong is not None:
        return wrong
    if body.every_ms is not None:
        return every_problem(body.every_ms) or _jitter_problem(body)
    return cron_problem(body.cron or "", body.zone) or _jitter_problem(body)


def _jitter_problem(body: i.ScheduleBody) -> Refusal | None:
    """A firing comes before the next one is due; of a cron pattern the next 50 instants are looked at."""
    if not body.jitter_ms:
        return None
    instants = islice(instants_after(body.every_ms, body.cron, body.zone, 0), _GAPS_LOOKED_AT)
    shortest = min((later - earlier for earlier, later in pairwise(instants)), default=JITTER_MAX_MS + 1)
    if body.jitter_ms < shortest:
        return None
    return Refusal(
        "invalid_field", f"the jitter must be shorter than {shortest // 1_000} s, the next firing", "/jitter"
    )


def _task_problem(state: PoolState, body: i.ScheduleBody, now: int) -> Refusal | None:
    task = body.task
    problem = task_problem(task) or deadlines_problem(task.deadlines, now) or lease_problem(state, task, now)
    return None if problem is None else Refusal(problem.reason, problem.text, f"/task{problem.field or ''}")


def task_problem(task: i.Submission) -> Refusal | None:
    """What is wrong with the submission of a schedule whatever the pool."""
    deadlines = task.deadlines
    if task.not_before is not None:
        return Refusal("invalid_field", "the schedule says when, so a not-before has no place here", "/not_before")
    if deadlines is not None and (deadlines.start is not None or deadlines.end is not None):
        text = "a deadline at an instant would pass for all firings but the first; run deadlines are possible"
        return Refusal("invalid_field", text, "/deadlines")
    if task.payload is not None and len(to_json(task.payload)) > PAYLOAD_BYTES_MAX:
        text = f"the payload of a schedule has at most {PAYLOAD_BYTES_MAX} bytes; send a reference to more"
        return Refusal("too_large", text, "/payload")
    return submission_problem(task)


def _too_many(state: PoolState, body: i.ScheduleBody) -> Refusal | None:
    if len(state.schedules.rows) < SCHEDULES_MAX or body.schedule in state.schedules.rows:
        return None
    return Refusal("invalid_field", f"a pool has at most {SCHEDULES_MAX:,} schedules; remove one first", "/schedule")


def _unhandled_since(row: Schedule, now: int) -> int | None:
    """Just before the first instant that is past and not handled (jitter, outage, an open firing), or None."""
    first = next(instants_after(row.every_ms, row.cron, row.zone, row.handled_at), None)
    return first - 1 if first is not None and first <= now else None


# ---- answers ----


def _change(state: PoolState, command: Any, context: Context, paused: bool | None, event: e.Event) -> Decision:
    row = state.schedules.rows.get(command.body.schedule)
    if row is None:
        return refused(command, _unknown(command.body.schedule))
    if row.paused is paused:
        return _noted(state, command, context)
    return accepted(command, schedule_answer(row.name, True, state.sequence + 1, context.now), event)


def _unknown(name: str) -> Refusal:
    return Refusal("no_such_schedule", f"there is no schedule {name} in this pool")


def _noted(state: PoolState, command: Any, context: Context) -> Decision:
    answer = schedule_answer(command.body.schedule, False, state.sequence + 1, context.now)
    return accepted(command, answer, e.CommandNoted(command=command.id, answer={"changed": False}))


def schedule_answer(schedule: str, changed: bool, sequence: int, at: int) -> dict[str, Any]:
    """What became of a verb on a schedule."""
    return {"schedule": schedule, "changed": changed, "sequence": sequence, "at": at}


VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "schedule_set": set_schedule,
    "schedule_pause": pause,
    "schedule_resume": resume,
    "schedule_rm": delete,
    "schedule_fire": fire,
}
