"""What follows when an attempt ends: the order of precedence, the lost-robot policies, and what stays held."""

from dataclasses import dataclass
from typing import Final

from commands.ids import jitter_share
from commands.state import Attempt, PoolState, Task
from commands.vocabulary import DeadReason

HOLD_WINDOWS: Final = 2
"""A gateway may answer the robot for one window after the commit of what ended its right, the commit may take one."""
JITTER_SHARE = 0.2
RETRY_AFTER_MAX_MS = 86_400_000


@dataclass(slots=True, frozen=True)
class End:
    """Where a task goes: its next state with the fields that belong to it, and what stays held until when."""

    to: str
    dead_reason: DeadReason | None = None
    wait_until: int | None = None
    held: bool = False
    held_until: int | None = None


def unwanted(task: Task, current: Attempt | None) -> End | None:
    """A requested cancel comes before a passed deadline, both before everything but completion."""
    if current is not None and current.cancel_requested:
        return End("CANCELLED")
    passed = () if task.story is None else tuple(task.story.passed.values())
    if "dead" in passed:
        return End("DEAD", "deadline")
    return End("CANCELLED") if "cancel" in passed else None


def stop_after_ms(policy: str, lease_ms: int, wait_ms: int) -> int | None:
    """How long a robot may work on without an answer: the lease, with the wait where there is one, else no limit."""
    return {"requeue": lease_ms, "wait": lease_ms + wait_ms}.get(policy)


def exclusion_ends_at(state: PoolState, current: Attempt, now: int) -> int | None:
    """When a robot that we cannot ask has surely stopped: its own deadline in whole windows, and two windows more."""
    if current.stop_after_ms is None:
        return None
    window_ms = state.window_ms_at(now)
    return now + (-(-current.stop_after_ms // window_ms) + HOLD_WINDOWS) * window_ms


def after_loss(state: PoolState, task: Task, current: Attempt, now: int, forgotten: bool) -> End:
    """The lease ended by silence, or because the robot's hello did not name the attempt (`forgotten`).

    What stays held until exclusion is sure: a forgotten attempt; under wait, ask and never also one whose task goes to
    CANCELLED or DEAD, because its robot may work on, and its last heartbeat may have been answered just now.
    """
    terms, window_ms = task.terms, state.window_ms_at(now)
    windows = state.windows_of(current.lease_ms, now)
    end = unwanted(task, current)
    if end is None and terms.policy == "requeue":
        end = End("DEAD", "poison") if task.lost + 1 >= terms.lost_max else End("WAITING")
    if end is None:
        silence_ms = (windows + HOLD_WINDOWS) * window_ms if forgotten else 0
        return End("LOST", wait_until=now + silence_ms + terms.wait_ms if terms.policy == "wait" else None)
    if terms.policy == "requeue" and not forgotten:
        return end
    return End(end.to, end.dead_reason, held=True, held_until=exclusion_ends_at(state, current, now))


def after_wait(task: Task) -> End:
    """The wait for the same robot is over."""
    return End("DEAD", "poison") if task.lost >= task.terms.lost_max else End("WAITING")


def after_own_deadline(task: Task, current: Attempt, now: int) -> End:
    """The robot stopped by its own deadline: counted and treated as lost, but it surely does not work."""
    terms = task.terms
    end = unwanted(task, current)
    if end is not None:
        return end
    if terms.policy == "requeue":
        return End("DEAD", "poison") if task.lost + 1 >= terms.lost_max else End("WAITING")
    return End("LOST", wait_until=now + terms.wait_ms if terms.policy == "wait" else None)


def after_stopped_lost(task: Task, current: Attempt, why: str) -> End:
    """A robot that was lost says that it stopped: the wait is over; ask and never go on only if it is surely idle."""
    if task.terms.policy in ("ask", "never"):
        return End("WAITING") if why in ("stop", "shutdown", "bye") else End("LOST", wait_until=current.wait_until)
    return after_wait(task)


def back_off_until(task: Task, failures: int, attempt: int, now: int, retry_after_ms: int | None) -> int:
    """The instant before which a failed task does not run again: exponential, with jitter from (task, attempt).

    A robot's own `retry_after_ms` is followed where it is longer, up to a day.
    """
    terms = task.terms
    wait = min(terms.max_ms, terms.first_ms * terms.factor ** min(failures - 1, 64))
    wait *= 1 - JITTER_SHARE / 2 + JITTER_SHARE * jitter_share(task.id, attempt)
    return now + max(int(wait), min(retry_after_ms or 0, RETRY_AFTER_MAX_MS))
