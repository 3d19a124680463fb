"""What has happened: every event type of the log, version 1, and its codec.

An event is a flat dataclass: envelope fields first, then its own. `decide` fills the own fields, `record` the
envelope. Integers are milliseconds where the name ends in `_ms`, milliseconds since 1970 UTC where it ends in `_at`,
`_until` or `_by`. Fields that are None are left out of the stored JSON. The type tag is the storage name.
"""

from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter

from commands.codecs import WHEN_NEEDED, Encoders
from commands.vocabulary import DeadlineThen, DeadReason, LostPolicy, Overlap, PauseScope, SkipReason

Body = dict[str, Any]
"""`{"json": any}`; `{"sealed": base64, "key": id}` is reserved for encryption and erasure."""
From = Annotated[str | None, Field(alias="from")]
Pass = Annotated[Literal["higher", "all"], Field(alias="pass")]


@dataclass(slots=True, kw_only=True)
class Event:
    """The envelope that every event carries. `sequence` is 1, 2, 3 ... per pool without a gap."""

    id: str = ""
    type: str = ""
    pool: str = ""
    sequence: int = 0
    occurred_at: int = 0
    caused_by: str = ""
    actor: str = ""
    traceparent: str | None = None
    command_digest: str | None = None

    transition: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The type without its version."""
        return self.type.partition(".")[0]


@dataclass(slots=True, kw_only=True)
class TaskTransition(Event):
    """An event that moves `task` from state `origin` (stored as `from`) to `to`."""

    task: str
    origin: From = None
    to: str
    dead_reason: DeadReason | None = None
    wait_until: int | None = None

    transition: ClassVar[bool] = True


@dataclass(slots=True, kw_only=True)
class InstantDeadline:
    """A deadline at an instant and what happens when it passes."""

    at: int
    then: DeadlineThen = "alarm"


@dataclass(slots=True, kw_only=True)
class RunDeadline:
    """A limit on the run time of one attempt and what happens when it passes."""

    ms: int
    then: DeadlineThen = "alarm"


@dataclass(slots=True, kw_only=True)
class Deadlines:
    """Schedule-to-start, start-to-finish, and overall."""

    start: InstantDeadline | None = None
    run: RunDeadline | None = None
    end: InstantDeadline | None = None


@dataclass(slots=True, kw_only=True)
class Retry:
    """How often a task may fail, and the back-off between: first, times factor, at most max."""

    failures_max: int
    first_ms: int
    factor: float
    max_ms: int


@dataclass(slots=True, kw_only=True)
class OnLost:
    """What follows when a lease ends because its robot fell silent."""

    policy: LostPolicy
    wait_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Firing:
    """The schedule and instant that a task comes from."""

    id: str
    instant: int


@dataclass(slots=True, kw_only=True)
class Parent:
    """The task (by id and sequence of its submission) that a child task belongs to."""

    task: str
    sequence: int


@dataclass(slots=True, kw_only=True)
class TaskSubmitted(TaskTransition):
    """A submission was accepted; all values are effective ones."""

    type: Literal["TaskSubmitted.v1"] = "TaskSubmitted.v1"
    to: str = "WAITING"
    kind: str
    payload: Body | None = None
    requirement: list[str] = field(default_factory=list)
    prefer: list[str] = field(default_factory=list)
    slot_cost: int = 1
    target: str | None = None
    priority: int = 0
    not_before: int | None = None
    deadlines: Deadlines | None = None
    lease_ms: int
    windows: int
    accept_ms: int
    retry: Retry
    lost_max: int
    on_lost: OnLost
    passing: Pass = "higher"
    late: Literal["accept", "record"] = "accept"
    limit_key: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    digest: str
    schedule: Firing | None = None
    parent: Parent | None = None


@dataclass(slots=True, kw_only=True)
class TaskChanges:
    """The fields of a waiting task that a `change` or `redrive` may set; None is "as before"."""

    priority: int | None = None
    requirement: list[str] | None = None
    prefer: list[str] | None = None
    slot_cost: int | None = None
    not_before: int | None = None
    deadlines: Deadlines | None = None
    labels: dict[str, str] | None = None


@dataclass(slots=True, kw_only=True)
class TaskChanged(TaskTransition):
    """A waiting task was changed by command."""

    type: Literal["TaskChanged.v1"] = "TaskChanged.v1"
    changed: TaskChanges
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class PassedOver:
    """A robot that could have been chosen and why it was not."""

    robot: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Because:
    """Why the dispatcher chose this robot: the rule that decided and at most three that were passed over."""

    rule: str
    passed_over: list[PassedOver] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TaskAssigned(TaskTransition):
    """The dispatcher gave the task to a robot, which has until `accept_by` to accept."""

    type: Literal["TaskAssigned.v1"] = "TaskAssigned.v1"
    to: str = "ASSIGNED"
    attempt: int
    robot: str
    epoch: int
    accept_by: int
    lease_ms: int
    windows: int
    stop_after_ms: int | None = None
    slot_cost: int
    checkpoint_number: int | None = None
    level: int
    waited_ms: int
    because: Because


@dataclass(slots=True, kw_only=True)
class AssignmentWithdrawn(TaskTransition):
    """The robot did not accept in time, or has gone."""

    type: Literal["AssignmentWithdrawn.v1"] = "AssignmentWithdrawn.v1"
    to: str = "WAITING"
    attempt: int
    robot: str
    reason: Literal["accept_timeout", "bye", "retired"]


@dataclass(slots=True, kw_only=True)
class AssignmentRejected(TaskTransition):
    """The robot said no; the pair is excluded until its next hello or `excluded_until`."""

    type: Literal["AssignmentRejected.v1"] = "AssignmentRejected.v1"
    to: str = "WAITING"
    attempt: int
    robot: str
    reason: str
    text: Body | None = None
    excluded_until: int
    clears_exclusions: bool = False
    not_again_before: int | None = None


@dataclass(slots=True, kw_only=True)
class LeaseStarted(TaskTransition):
    """The robot accepted; windows count from `counts_from`."""

    type: Literal["LeaseStarted.v1"] = "LeaseStarted.v1"
    to: str = "RUNNING"
    attempt: int
    robot: str
    epoch: int
    counts_from: int


@dataclass(slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A durable value of a running attempt, given to the next one."""

    type: Literal["CheckpointSaved.v1"] = "CheckpointSaved.v1"
    task: str
    attempt: int
    robot: str
    number: int
    checkpoint: Body


@dataclass(slots=True, kw_only=True)
class ProgressItem:
    """The newest progress (per cent) and note of one attempt."""

    task: str
    attempt: int
    progress: int | None = None
    note: Body | None = None


@dataclass(slots=True, kw_only=True)
class ProgressNoted(Event):
    """What changed in progress within a second of the pool."""

    type: Literal["ProgressNoted.v1"] = "ProgressNoted.v1"
    items: list[ProgressItem]
    part: int = 1
    parts: int = 1


@dataclass(slots=True, kw_only=True)
class TaskCompleted(TaskTransition):
    """The first report of completion that counts, or an operator's `resolve`."""

    type: Literal["TaskCompleted.v1"] = "TaskCompleted.v1"
    to: str = "COMPLETED"
    attempt: int | None = None
    robot: str | None = None
    by: Literal["robot", "operator"]
    result: Body | None = None
    late: bool = False
    cancel_requested: bool = False
    ran_ms: int | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class Failure:
    """What went wrong, as the robot says it."""

    type: str
    message: Body
    detail: Body | None = None


@dataclass(slots=True, kw_only=True)
class AttemptFailed(TaskTransition):
    """The current attempt failed."""

    type: Literal["AttemptFailed.v1"] = "AttemptFailed.v1"
    attempt: int
    robot: str
    failure_class: Annotated[Literal["retryable", "fatal"], Field(alias="class")]
    error: Failure
    failures: int
    not_again_before: int | None = None


@dataclass(slots=True, kw_only=True)
class AttemptStopped(TaskTransition):
    """The robot stopped the current attempt without an end of its own."""

    type: Literal["AttemptStopped.v1"] = "AttemptStopped.v1"
    attempt: int
    robot: str
    why: Literal["cancel", "stop", "own_deadline", "shutdown", "bye"]
    lost: int


@dataclass(slots=True, kw_only=True)
class LeaseExpired(TaskTransition):
    """`windows` windows in a row were missed, or the robot's hello did not name the attempt."""

    type: Literal["LeaseExpired.v1"] = "LeaseExpired.v1"
    attempt: int
    robot: str
    epoch: int
    reason: Literal["missed_windows", "not_held"]
    first_window: int | None = None
    last_window: int | None = None
    held: bool = False
    held_until: int | None = None
    lost: int
    policy: LostPolicy


@dataclass(slots=True, kw_only=True)
class LeaseResumed(TaskTransition):
    """The robot named a LOST attempt again in its current epoch."""

    type: Literal["LeaseResumed.v1"] = "LeaseResumed.v1"
    to: str = "RUNNING"
    attempt: int
    robot: str
    epoch: int
    counts_from: int


@dataclass(slots=True, kw_only=True)
class LostWaitEnded(TaskTransition):
    """The time to wait for the same robot is over."""

    type: Literal["LostWaitEnded.v1"] = "LostWaitEnded.v1"
    attempt: int
    robot: str
    lost: int


@dataclass(slots=True, kw_only=True)
class TaskReleased(TaskTransition):
    """An operator ended the lease."""

    type: Literal["TaskReleased.v1"] = "TaskReleased.v1"
    attempt: int
    robot: str
    reason: str
    held: bool = False
    held_until: int | None = None
    force: bool = False


@dataclass(slots=True, kw_only=True)
class HoldEnded(Event):
    """Slot and target that stayed held after the attempt's lease are free."""

    type: Literal["HoldEnded.v1"] = "HoldEnded.v1"
    task: str
    attempt: int
    robot: str
    target: str | None = None
    why: Literal["stopped", "time", "force"]
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class CancelRequested(Event):
    """Somebody no longer wants a running task; its robot is told."""

    type: Literal["CancelRequested.v1"] = "CancelRequested.v1"
    task: str
    attempt: int
    robot: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class TaskCancelled(TaskTransition):
    """Cancelled before it ran, or while LOST."""

    type: Literal["TaskCancelled.v1"] = "TaskCancelled.v1"
    to: str = "CANCELLED"
    attempt: int | None = None
    robot: str | None = None
    held: bool = False
    held_until: int | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class DeadlinePassed(TaskTransition):
    """One of the task's deadlines passed."""

    type: Literal["DeadlinePassed.v1"] = "DeadlinePassed.v1"
    which: Literal["start", "run", "end"]
    deadline: int
    then: DeadlineThen
    attempt: int | None = None


@dataclass(slots=True, kw_only=True)
class TaskRedriven(TaskTransition):
    """An operator put a dead letter back; its counters are 0 again."""

    type: Literal["TaskRedriven.v1"] = "TaskRedriven.v1"
    to: str = "WAITING"
    reason: str
    changed: TaskChanges | None = None


@dataclass(slots=True, kw_only=True)
class TaskDiscarded(TaskTransition):
    """An operator gave a dead letter up."""

    type: Literal["TaskDiscarded.v1"] = "TaskDiscarded.v1"
    to: str = "DISCARDED"
    reason: str


@dataclass(slots=True, kw_only=True)
class ReportedLate(Event):
    """A report about an attempt that was no longer current; the task's state did not change."""

    type: Literal["ReportedLate.v1"] = "ReportedLate.v1"
    task: str
    attempt: int
    robot: str
    kind: Literal["complete", "fail", "stopped"]
    state: str
    newer_attempt: int | None = None
    done_twice: bool = False
    result: Body | None = None
    error: Failure | None = None


@dataclass(slots=True, kw_only=True)
class RobotRegistered(Event):
    """The first hello of a robot ever, or after its retirement."""

    type: Literal["RobotRegistered.v1"] = "RobotRegistered.v1"
    robot: str


@dataclass(slots=True, kw_only=True)
class HeldVerdict:
    """What is said about one attempt that a hello names."""

    task: str
    attempt: int
    verdict: Literal["run", "accept", "stop"]
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class RobotSessionStarted(Event):
    """A hello was accepted; `epoch` is this event's sequence. `hello` is the id of its message."""

    type: Literal["RobotSessionStarted.v1"] = "RobotSessionStarted.v1"
    robot: str
    epoch: int
    gateway: str
    slots: int
    capabilities: list[str]
    agent: str | None = None
    protocol: int = 1
    superseded_epoch: int | None = None
    held: list[HeldVerdict] = field(default_factory=list)
    hello: str
    inline_max_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class RobotSessionEnded(Event):
    """The robot said bye or was retired."""

    type: Literal["RobotSessionEnded.v1"] = "RobotSessionEnded.v1"
    robot: str
    epoch: int
    reason: Literal["bye", "retired"]


@dataclass(slots=True, kw_only=True)
class RobotReadyChanged(Event):
    """The robot takes at most `n` slots' worth of work."""

    type: Literal["RobotReadyChanged.v1"] = "RobotReadyChanged.v1"
    robot: str
    epoch: int
    n: int


@dataclass(slots=True, kw_only=True)
class RobotChanged(Event):
    """Slots or capabilities changed while the robot runs."""

    type: Literal["RobotChanged.v1"] = "RobotChanged.v1"
    robot: str
    epoch: int
    slots: int
    capabilities: list[str]


@dataclass(slots=True, kw_only=True)
class RobotFaulted(Event):
    """The robot is in ERROR: it keeps its leases and gets nothing new."""

    type: Literal["RobotFaulted.v1"] = "RobotFaulted.v1"
    robot: str
    epoch: int
    reason: Literal["reported", "does_not_accept", "two_programs"]
    code: str | None = None
    text: Body | None = None


@dataclass(slots=True, kw_only=True)
class RobotRecovered(Event):
    """The robot is out of ERROR."""

    type: Literal["RobotRecovered.v1"] = "RobotRecovered.v1"
    robot: str
    reason: Literal["reported", "cleared"]


@dataclass(slots=True, kw_only=True)
class RobotDrained(Event):
    """An operator wants the robot to get nothing new."""

    type: Literal["RobotDrained.v1"] = "RobotDrained.v1"
    robot: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class RobotUndrained(Event):
    """The robot may get work again."""

    type: Literal["RobotUndrained.v1"] = "RobotUndrained.v1"
    robot: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class RobotRetired(Event):
    """The robot is forgotten until it says hello again."""

    type: Literal["RobotRetired.v1"] = "RobotRetired.v1"
    robot: str
    reason: str


@dataclass(slots=True, kw_only=True)
class MissedAttempt:
    """A running attempt that no message named, and how many windows in a row."""

    task: str
    attempt: int
    missed: int


@dataclass(slots=True, kw_only=True)
class MissedRobot:
    """An online robot that sent nothing, and how many windows in a row."""

    robot: str
    missed: int


@dataclass(slots=True, kw_only=True)
class WindowMissed(Event):
    """A closed heartbeat window in which something was missed or returned."""

    type: Literal["WindowMissed.v1"] = "WindowMissed.v1"
    start: int
    length_ms: int
    attempts: list[MissedAttempt] = field(default_factory=list)
    robots: list[MissedRobot] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    part: int = 1
    parts: int = 1


@dataclass(slots=True, kw_only=True)
class ExpiryHeld(Event):
    """So many leases would end in one window that their end is held for one window."""

    type: Literal["ExpiryHeld.v1"] = "ExpiryHeld.v1"
    window: int
    leases: int
    robots: int
    until: int


@dataclass(slots=True, kw_only=True)
class OwnershipTaken(Event):
    """Another process decides now, or the owner could not commit for a window: all counts are 0 again, and open
    wait_until and held_until end later by gap_ms (the time since the pool's last event)."""

    type: Literal["OwnershipTaken.v1"] = "OwnershipTaken.v1"
    reason: Literal["hand_over", "outage"]
    owner: str
    partition: int
    software: str
    gap_ms: int


@dataclass(slots=True, kw_only=True)
class ClockAccepted(Event):
    """An operator accepted a step of the wall clock."""

    type: Literal["ClockAccepted.v1"] = "ClockAccepted.v1"
    from_at: int
    to_at: int
    reason: str


@dataclass(slots=True, kw_only=True)
class PoolCreated(Event):
    """Sequence 1 of every pool: its log, format and settings."""

    type: Literal["PoolCreated.v1"] = "PoolCreated.v1"
    log_id: str
    format: int
    settings: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class PoolConfigured(Event):
    """Settings of the pool changed; a new window length holds from `effective_at`."""

    type: Literal["PoolConfigured.v1"] = "PoolConfigured.v1"
    changed: dict[str, Any]
    effective_at: int
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class FormatRaised(Event):
    """The pool is written in a newer format from here on."""

    type: Literal["FormatRaised.v1"] = "FormatRaised.v1"
    from_format: int
    to_format: int


@dataclass(slots=True, kw_only=True)
class DispatchPaused(Event):
    """Nothing of this scope is assigned."""

    type: Literal["DispatchPaused.v1"] = "DispatchPaused.v1"
    scope: PauseScope
    name_: Annotated[str | None, Field(alias="name")] = None
    until: int | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class DispatchResumed(Event):
    """The scope is assigned again."""

    type: Literal["DispatchResumed.v1"] = "DispatchResumed.v1"
    scope: PauseScope
    name_: Annotated[str | None, Field(alias="name")] = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class LimitSet(Event):
    """A limit on running tasks or on the rate of a kind or key."""

    type: Literal["LimitSet.v1"] = "LimitSet.v1"
    scope: Literal["kind", "key"]
    name_: Annotated[str, Field(alias="name")]
    running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None


@dataclass(slots=True, kw_only=True)
class LimitRemoved(Event):
    """The limit is gone."""

    type: Literal["LimitRemoved.v1"] = "LimitRemoved.v1"
    scope: Literal["kind", "key"]
    name_: Annotated[str, Field(alias="name")]


@dataclass(slots=True, kw_only=True)
class RequirementUnsatisfiable(Event):
    """No registered robot can meet this requirement; its tasks wait."""

    type: Literal["RequirementUnsatisfiable.v1"] = "RequirementUnsatisfiable.v1"
    requirement: list[str]
    slot_cost: int
    waiting: int
    first_task: str
    missing: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RequirementSatisfiable(Event):
    """A registered robot can meet the requirement again."""

    type: Literal["RequirementSatisfiable.v1"] = "RequirementSatisfiable.v1"
    requirement: list[str]
    slot_cost: int
    waiting: int
    robot: str


@dataclass(slots=True, kw_only=True)
class ScheduleSet(Event):
    """A schedule was created or replaced. Instants later than `since_at` count; without it, those later than this."""

    type: Literal["ScheduleSet.v1"] = "ScheduleSet.v1"
    schedule: str
    every_ms: int | None = None
    cron: str | None = None
    zone: str | None = None
    overlap: Overlap = "skip"
    catch_up: int = 1
    jitter_ms: int = 0
    task: dict[str, Any]
    since_at: int | None = None


@dataclass(slots=True, kw_only=True)
class SchedulePaused(Event):
    """The schedule fires nothing."""

    type: Literal["SchedulePaused.v1"] = "SchedulePaused.v1"
    schedule: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class ScheduleResumed(Event):
    """The schedule fires again."""

    type: Literal["ScheduleResumed.v1"] = "ScheduleResumed.v1"
    schedule: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class ScheduleDeleted(Event):
    """The schedule is gone."""

    type: Literal["ScheduleDeleted.v1"] = "ScheduleDeleted.v1"
    schedule: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class FiringsSkipped(Event):
    """Firings that did not become tasks."""

    type: Literal["FiringsSkipped.v1"] = "FiringsSkipped.v1"
    schedule: str
    first: int
    last: int
    count: int
    reason: SkipReason


@dataclass(slots=True, kw_only=True)
class CommandNoted(Event):
    """An accepted command that changed nothing else, with the answer it was given."""

    type: Literal["CommandNoted.v1"] = "CommandNoted.v1"
    command: str
    answer: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class PoolFrozen(Event):
    """A fault of dispatch or of a tick: the pool takes input, but assigns nothing and no time acts."""

    type: Literal["PoolFrozen.v1"] = "PoolFrozen.v1"
    where: Literal["dispatch", "tick"]
    error: str
    digest: str


@dataclass(slots=True, kw_only=True)
class PoolUnfrozen(Event):
    """An operator let the pool go on; all counts are 0 again."""

    type: Literal["PoolUnfrozen.v1"] = "PoolUnfrozen.v1"
    reason: str


@dataclass(slots=True, kw_only=True)
class RecordQuarantined(Event):
    """An input that could not be decoded or decided was set aside."""

    type: Literal["RecordQuarantined.v1"] = "RecordQuarantined.v1"
    topic: str
    partition: int
    offset: int
    digest: str
    error: str
    input_id: str | None = None


def _tag(cls: type[Event]) -> str:
    default: str = cls.__dataclass_fields__["type"].default  # type: ignore[assignment]
    return default


EVENT_TYPES: Final[dict[str, type[Event]]] = {
    _tag(cls): cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, Event) and _tag(cls)
}
"""Storage name -> class, for every type of this version."""

_ENCODERS: Final = Encoders()
_UNION: Final[Any] = reduce(or_, EVENT_TYPES.values())
_CODEC: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[_UNION, Field(discriminator="type")], config=WHEN_NEEDED)


def encode_event(event: Event) -> bytes:
    """The bytes as stored: one JSON object in UTF-8 without None fields."""
    return _ENCODERS[type(event)](event, exclude_none=True, by_alias=True)


def decode_event(value: bytes) -> Event:
    """The event stored as `value`; raises pydantic.ValidationError (a ValueError) where it is not one."""
    return _CODEC.validate_json(value)


def event_schema() -> dict[str, Any]:
    """JSON Schema of every event type, for the reference."""
    return _CODEC.json_schema()
