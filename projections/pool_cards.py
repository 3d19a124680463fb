"""The pure rules by which events change what is known of a pool as a whole: settings, pauses, schedules, limits."""

from collections.abc import Callable
from typing import Final

from projections.cards import (
    KindCard,
    LimitCard,
    PoolCard,
    RequirementCard,
    ScheduleCard,
    Stored,
    TaskCard,
    pause_of,
)

PoolRule = Callable[[PoolCard, Stored], PoolCard]
ScheduleRule = Callable[[ScheduleCard | None, Stored], ScheduleCard | None]

_KEPT: Final = ("paused", "fired", "last_fired", "skipped", "last_skipped")
_SCHEDULE_FIELDS: Final = ("schedule", "every_ms", "cron", "zone", "overlap", "catch_up", "jitter_ms", "task")


def _said(event: Stored, *names: str) -> Stored:
    """These fields of the event where it has them, and when it was."""
    return {"at": event["occurred_at"]} | {name: event[name] for name in names if name in event}


def _created(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["log_id"], new["format"], new["settings"] = event["log_id"], event["format"], event["settings"]
    new["created_at"] = event["occurred_at"]
    return new


def _configured(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["settings"] = {**card.get("settings", {}), **event["changed"]}
    new["configured"] = _said(event, "changed", "effective_at", "reason", "actor")
    return new


def _format_raised(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["format"] = event["to_format"]
    return new


def _frozen(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["frozen"] = _said(event, "where", "error", "digest")
    return new


def _unfrozen(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new.pop("frozen", None)
    return new


def _owned(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["owner"] = _said(event, "owner", "partition", "software", "reason", "gap_ms")
    return new


def _clock_accepted(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["clock_accepted"] = _said(event, "from_at", "to_at", "reason", "actor")
    return new


def _expiry_held(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["expiry_held"] = _said(event, "window", "leases", "robots", "until")
    new["expiry_held_count"] = card.get("expiry_held_count", 0) + 1
    return new


def _window_missed(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["window_missed"] = _said(event, "start", "length_ms")
    return new


def _quarantined(card: PoolCard, event: Stored) -> PoolCard:
    new = card.copy()
    new["quarantined"] = card.get("quarantined", 0) + 1
    new["quarantined_last"] = _said(event, "topic", "partition", "offset", "digest", "error", "input_id")
    return new


POOL_RULES: Final[dict[str, PoolRule]] = {
    "PoolCreated.v1": _created,
    "PoolConfigured.v1": _configured,
    "FormatRaised.v1": _format_raised,
    "PoolFrozen.v1": _frozen,
    "PoolUnfrozen.v1": _unfrozen,
    "OwnershipTaken.v1": _owned,
    "ClockAccepted.v1": _clock_accepted,
    "ExpiryHeld.v1": _expiry_held,
    "WindowMissed.v1": _window_missed,
    "RecordQuarantined.v1": _quarantined,
}
"""Events about a pool as a whole."""


def pool_paused(card: PoolCard, event: Stored) -> PoolCard:
    """DispatchPaused or DispatchResumed of the whole pool."""
    new = card.copy()
    if event["type"] == "DispatchPaused.v1":
        new["paused"] = pause_of(event)
    else:
        new.pop("paused", None)
    return new


def kind_paused(card: KindCard, event: Stored) -> KindCard:
    """DispatchPaused or DispatchResumed of one kind."""
    new = card.copy()
    if event["type"] == "DispatchPaused.v1":
        new["paused"] = pause_of(event)
    else:
        new.pop("paused", None)
    return new


def kind_counted(card: KindCard, state: str, change: int) -> KindCard:
    """The figures with `change` more tasks in `state`; states without tasks are left out, the rest sorted."""
    counts = {**card["counts"], state: card["counts"].get(state, 0) + change}
    new = card.copy()
    new["counts"] = {name: count for name, count in sorted(counts.items()) if count}
    return new


# ---- schedules, limits, requirements ----


def _schedule_set(card: ScheduleCard | None, event: Stored) -> ScheduleCard:
    new: Stored = {name: event[name] for name in _SCHEDULE_FIELDS if name in event}
    new |= {"pool": event["pool"], "sequence": event["sequence"], "set_at": event["occurred_at"]}
    new |= {"actor": event["actor"], "fired": 0, "skipped": 0}
    if card is not None:
        # A replacement goes on with what its schedule came to, and with its pause.
        new |= {name: card[name] for name in _KEPT if name in card}
    return new  # type: ignore[return-value]


def _schedule_paused(card: ScheduleCard | None, event: Stored) -> ScheduleCard | None:
    return None if card is None else {**card, "paused": pause_of(event)}


def _schedule_resumed(card: ScheduleCard | None, event: Stored) -> ScheduleCard | None:
    if card is None:
        return None
    new = card.copy()
    new.pop("paused", None)
    return new


def _schedule_deleted(card: ScheduleCard | None, event: Stored) -> None:
    """The schedule is gone; its events stay in the log."""


def _skipped(card: ScheduleCard | None, event: Stored) -> ScheduleCard | None:
    if card is None:
        return None
    last = _said(event, "first", "last", "count", "reason")
    return {**card, "skipped": card["skipped"] + event["count"], "last_skipped": last}


SCHEDULE_RULES: Final[dict[str, ScheduleRule]] = {
    "ScheduleSet.v1": _schedule_set,
    "SchedulePaused.v1": _schedule_paused,
    "ScheduleResumed.v1": _schedule_resumed,
    "ScheduleDeleted.v1": _schedule_deleted,
    "FiringsSkipped.v1": _skipped,
}
"""Events about one schedule."""


def schedule_fired(card: ScheduleCard, task: TaskCard) -> ScheduleCard:
    """TaskSubmitted that comes from this schedule."""
    last = {"task": task["id"], "instant": task["schedule"]["instant"], "at": task["submitted_at"]}
    return {**card, "fired": card["fired"] + 1, "last_fired": last}


def limit_set(event: Stored) -> LimitCard:
    """LimitSet."""
    new = {name: event[name] for name in ("pool", "scope", "name", "running", "rate_per_s", "burst") if name in event}
    return {**new, "set_at": event["occurred_at"], "actor": event["actor"]}  # type: ignore[typeddict-item]


def requirement_unmet(event: Stored) -> RequirementCard:
    """RequirementUnsatisfiable."""
    names = ("pool", "requirement", "slot_cost", "waiting", "first_task", "missing")
    return {**{name: event[name] for name in names}, "since_at": event["occurred_at"]}  # type: ignore[typeddict-item]


def requirement_name(event: Stored) -> str:
    """Under which name a requirement lies in the tables."""
    return f"{event['slot_cost']}/{' '.join(event['requirement'])}"
