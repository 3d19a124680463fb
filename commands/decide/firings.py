"""Why there is no task of a firing: it is still to come, or it was skipped."""

from typing import Any, Final

from commands.decide.waiting import Reasons, reason, span
from commands.instants import instants_after
from commands.schedules import Schedule, firing_of
from commands.state import PoolState

_SKIPPED: Final = {
    "overlap": "an earlier firing was still open, and the schedule's overlap is {overlap}",
    "catch_up": "it was missed, and of those that were missed the latest {catch_up} are fired late",
    "paused": "the schedule was paused",
    "queue_full": "the queue had no place for it",
}


def why_no_task(state: PoolState, task_id: str, now: int) -> dict[str, Any] | None:
    """What `explain` says of a firing without a task; None where no schedule has such an instant."""
    schedule, instant = firing_of(task_id) or ("", 0)
    row = state.schedules.rows.get(schedule)
    if row is None or next(instants_after(row.every_ms, row.cron, row.zone, instant - 1), None) != instant:
        return None
    reasons = _handled(row, instant) if instant <= row.handled_at else _to_come(state, row, instant, now)
    text = f"{task_id} is no task: " + "; ".join(one["text"] for one in reasons) + "."
    return {"task": task_id, "schedule": row.name, "instant": instant, "holds": reasons, "text": text}


def _handled(row: Schedule, instant: int) -> Reasons:
    skipped = row.skipped
    if skipped is not None and skipped.first <= instant <= skipped.last:
        text = "it was skipped: " + _SKIPPED[skipped.reason].format(overlap=row.overlap, catch_up=row.catch_up)
        return [reason("firing_skipped", text, because=skipped.reason, at=skipped.at)]
    text = f"that instant is over; `fleetlog events --where schedule={row.name}` tells what became of it"
    return [reason("firing_over", text)]


def _to_come(state: PoolState, row: Schedule, instant: int, now: int) -> Reasons:
    due_at = row.due_at(instant)
    if row.paused:
        return [reason("schedule_paused", "the schedule is paused, and what passes until it is resumed is skipped")]
    open_task = next(iter(state.schedules.open.get(row.name, ())), None)
    if open_task is not None and row.overlap != "allow":
        follows = "skipped if that is still open then" if due_at > now or row.overlap == "skip" else "fired after it"
        text = f"{open_task} is still open and the schedule's overlap is {row.overlap}, so it is {follows}"
        return [reason("firing_open", text, task=open_task, due_at=due_at)]
    when = f"is due in {span(due_at - now)}" if due_at > now else "is about to be submitted"
    return [reason("firing_to_come", f"it {when}", due_at=due_at)]
