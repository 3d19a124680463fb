"""What the tables know: one card per task, robot, target, kind, pool, schedule, limit. What does not apply is absent.

Cards are JSON objects. Instants end in `_at`, `_until` or `_by` (ms since 1970 UTC), durations in `_ms`. Bodies
(payload, result, checkpoint, note, texts) stand as the event has them: `{"json": any}` or sealed.
"""

from typing import Any, Final, TypedDict

Stored = dict[str, Any]
"""An event as it stands in the log: the JSON object of its value."""

CHECKPOINTS_KEPT: Final = 10
"""How many of a task's newest checkpoints stay readable in the tables; the log keeps all."""


class TaskCard(TypedDict, total=False):
    """A task as it stands. What does not apply is absent.

    `sequence` is that of its TaskSubmitted, `at_sequence` that of the last event that changed the card, `since_at` the
    instant at which it came into its state. `robot` holds the task, or was the last to hold it when it ended;
    `last_robot` is whom it left. `assigned_at`, `started_at` belong to the last attempt. `missed` is [windows missed
    in a row, start of the last of them]. `payload_bytes`, `result_bytes`, `error_detail`, `checkpoints` say which rows
    of `bodies` exist.
    """

    id: str
    pool: str
    kind: str
    state: str
    sequence: int
    at_sequence: int
    since_at: int
    actor: str
    caused_by: str
    priority: int
    requirement: list[str]
    prefer: list[str]
    slot_cost: int
    target: str
    labels: dict[str, str]
    limit_key: str
    schedule: dict[str, Any]
    parent: dict[str, Any]
    not_before: int
    deadlines: dict[str, Any]
    deadlines_passed: dict[str, str]
    lease_ms: int
    accept_ms: int
    retry: dict[str, Any]
    lost_max: int
    on_lost: dict[str, Any]
    passing: str
    late_policy: str
    submitted_at: int
    base_at: int
    eligible_at: int
    attempt: int
    failures: int
    lost: int
    redrives: int
    robot: str
    last_robot: str
    epoch: int
    assigned_at: int
    accept_by: int
    started_at: int
    ended_at: int
    stop_after_ms: int
    counts_from: int
    missed: list[int]
    wait_until: int
    not_again_before: int
    waited_ms: int
    ran_ms: int
    because: dict[str, Any]
    excluded: dict[str, int]
    rejected: dict[str, Any]
    progress: int
    note: dict[str, Any]
    checkpoint_number: int
    checkpoints: list[list[int]]
    payload_bytes: int
    result_bytes: int
    error: dict[str, Any]
    error_detail: bool
    dead_reason: str
    reason: str
    completed_by: str
    late: bool
    cancel_requested: dict[str, Any]
    done_twice: bool
    late_reports: int
    late_report: dict[str, Any]
    holds: list[dict[str, Any]]
    exclusion_not_guaranteed: bool
    paused: dict[str, Any]


class RobotCard(TypedDict, total=False):
    """A registered robot. `state` is derived: OFFLINE before ERROR before BUSY before IDLE.

    `attempts` are [attempt, slot cost] by task for what it holds in ASSIGNED, RUNNING or LOST; `holds` are slot costs
    by `<task>/<attempt>` of leases that are over. `online`: it is in any state but OFFLINE. `missed` is [windows missed
    in a row, start of the last of them], `silent` from a missed window until it returned. `since_at`, `cause`: when
    and by which event it came into its state. `counts` are ends of its attempts since it was registered, by word.
    """

    id: str
    pool: str
    state: str
    since_at: int
    cause: str
    at_sequence: int
    registered_at: int
    online: bool
    silent: bool
    missed: list[int]
    epoch: int
    session_at: int
    session_ended: dict[str, Any]
    gateway: str
    slots: int
    ready: int
    capabilities: list[str]
    agent: str
    protocol: int
    inline_max_bytes: int
    fault: dict[str, Any]
    draining: dict[str, Any]
    attempts: dict[str, list[int]]
    holds: dict[str, int]
    used: int
    assigned_at: int
    counts: dict[str, int]


class TargetCard(TypedDict, total=False):
    """A target that has open tasks, is held or paused. `open` counts its tasks that are not in a terminal state."""

    name: str
    pool: str
    open: int
    waiting: int
    holder: dict[str, Any]
    last_served_at: int
    paused: dict[str, Any]


class KindCard(TypedDict, total=False):
    """Queue figures of one kind in one pool: how many tasks of the tables are in which state."""

    pool: str
    kind: str
    counts: dict[str, int]
    paused: dict[str, Any]


class PoolCard(TypedDict, total=False):
    """A pool: its log, format, settings, and what is said about it as a whole."""

    pool: str
    log_id: str
    format: int
    created_at: int
    settings: dict[str, Any]
    configured: dict[str, Any]
    paused: dict[str, Any]
    frozen: dict[str, Any]
    owner: dict[str, Any]
    clock_accepted: dict[str, Any]
    expiry_held: dict[str, Any]
    expiry_held_count: int
    window_missed: dict[str, Any]
    quarantined: int
    quarantined_last: dict[str, Any]


class ScheduleCard(TypedDict, total=False):
    """A schedule, as it was set, and what its firings came to. `sequence` is that of its ScheduleSet."""

    pool: str
    schedule: str
    sequence: int
    set_at: int
    actor: str
    every_ms: int
    cron: str
    zone: str
    overlap: str
    catch_up: int
    jitter_ms: int
    task: dict[str, Any]
    paused: dict[str, Any]
    fired: int
    last_fired: dict[str, Any]
    skipped: int
    last_skipped: dict[str, Any]


class LimitCard(TypedDict, total=False):
    """A limit of a kind or key."""

    pool: str
    scope: str
    name: str
    running: int
    rate_per_s: float
    burst: int
    set_at: int
    actor: str


class RequirementCard(TypedDict, total=False):
    """A requirement that no registered robot can meet, as the event said it."""

    pool: str
    requirement: list[str]
    slot_cost: int
    waiting: int
    first_task: str
    missing: list[str]
    since_at: int


class Progress(TypedDict):
    """How far a pool is folded: partition, last sequence and instant, how many robots are in which state, and what was
    counted since its beginning (`projections/totals.py`)."""

    pool: str
    partition: int
    sequence: int
    last_at: int
    robots: dict[str, int]
    totals: dict[str, int]


def pause_of(event: Stored) -> dict[str, Any]:
    """What a pause says: `at`, `actor`, and `until`, `reason` where given."""
    said = {"at": event["occurred_at"], "actor": event["actor"]}
    return said | {name: event[name] for name in ("until", "reason") if name in event}
