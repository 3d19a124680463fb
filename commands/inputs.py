"""What the owner of a partition reads: commands, reports and heartbeats, version 1, and their codecs.

`commands` records hold one Command each, `reports` records one Report or one Heartbeats each (field `what`).
Durations are milliseconds, instants milliseconds since 1970 UTC.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from commands.codecs import WHEN_NEEDED, Encoders
from commands.events import Deadlines, TaskChanges
from commands.messages import RobotMessage
from commands.vocabulary import LimitScope, LostPolicy, Overlap, PauseScope

Version = Literal[1]


# ---- bodies of commands ----


@dataclass(slots=True, kw_only=True)
class RetryAsked:
    """A submission's own retry policy; None is the pool's."""

    failures_max: Annotated[int, Field(ge=1, le=100)] | None = None
    first_ms: Annotated[int, Field(ge=0, le=86_400_000)] | None = None
    factor: Annotated[float, Field(ge=1, le=100)] | None = None
    max_ms: Annotated[int, Field(ge=0, le=86_400_000)] | None = None


@dataclass(slots=True, kw_only=True)
class OnLostAsked:
    """A submission's own lost-robot policy."""

    policy: LostPolicy
    wait_ms: Annotated[int, Field(ge=0, le=86_400_000)] | None = None


@dataclass(slots=True, kw_only=True)
class Submission:
    """One task as asked for; None means the default of the pool. `payload` is `{"json": any}`."""

    task: str
    kind: str
    payload: dict[str, Any] | None = None
    requirement: list[str] = field(default_factory=list)
    prefer: list[str] = field(default_factory=list)
    slot_cost: int = 1
    target: str | None = None
    priority: int = 0
    not_before: int | None = None
    deadlines: Deadlines | None = None
    lease_ms: int | None = None
    accept_ms: int | None = None
    retry: RetryAsked | None = None
    lost_max: int | None = None
    on_lost: OnLostAsked | None = None
    passing: Annotated[Literal["higher", "all"] | None, Field(alias="pass")] = None
    late: Literal["accept", "record"] | None = None
    limit_key: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Submissions:
    """Several tasks: all or none."""

    tasks: list[Submission]


@dataclass(slots=True, kw_only=True)
class TaskVerb:
    """A task, and why (required for discard, resolve and release)."""

    task: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class ChangeBody(TaskVerb):
    """A change of a waiting task, or with a redrive."""

    changed: TaskChanges


@dataclass(slots=True, kw_only=True)
class RedriveBody(TaskVerb):
    """Put a dead letter back, changed if asked."""

    changed: TaskChanges | None = None


@dataclass(slots=True, kw_only=True)
class ReleaseBody(TaskVerb):
    """End a lease; `force` frees slot and target at once."""

    force: bool = False


@dataclass(slots=True, kw_only=True)
class ResolveBody(TaskVerb):
    """Say that a LOST or DEAD task is done, with its result `{"json": any}`."""

    result: dict[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class ScopeBody:
    """What to pause or resume: the pool, or a target, kind or task by name."""

    scope: PauseScope
    name: str | None = None
    until: int | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class LimitVerb:
    """A limit: that of a kind, or of the tasks with a limit key."""

    scope: LimitScope
    name: str


@dataclass(slots=True, kw_only=True)
class LimitBody(LimitVerb):
    """At most `running` tasks at once, `rate_per_s` assignments a second with up to `burst` together (1), or both."""

    running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None


@dataclass(slots=True, kw_only=True)
class RobotVerb:
    """A robot, and why (required for retire)."""

    robot: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class SettingsBody:
    """Pool settings by name, in log units."""

    settings: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class ReasonBody:
    """Nothing but a reason."""

    reason: str


@dataclass(slots=True, kw_only=True)
class ScheduleVerb:
    """A schedule, and why."""

    schedule: str
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class ScheduleBody:
    """When a task is to be submitted, again and again: every so often, or by a cron pattern in a time zone.

    `task` is the submission; its id is made from the schedule's and the instant, whatever it says.
    """

    schedule: str
    every_ms: int | None = None
    cron: str | None = None
    zone: str | None = None
    overlap: Overlap = "skip"
    catch_up: int = 1
    jitter_ms: int = 0
    task: Submission


@dataclass(slots=True, kw_only=True)
class FormatBody:
    """The format to raise the pool to."""

    to_format: int


# ---- commands ----


@dataclass(slots=True, kw_only=True)
class CommandBase:
    """Who asks (`actor`), where the answer goes (`reply_to`, a gateway instance), and the idempotency key `id`.

    `create`: the pool may be created by this command if it does not exist.
    """

    v: Version = 1
    type: str = ""
    id: str
    pool: str
    actor: str
    reply_to: str
    traceparent: str | None = None
    create: bool = False


@dataclass(slots=True, kw_only=True)
class Submit(CommandBase):
    """Submit one task."""

    type: Literal["submit"] = "submit"
    body: Submission


@dataclass(slots=True, kw_only=True)
class SubmitAll(CommandBase):
    """Submit several tasks, all or none."""

    type: Literal["submit_all"] = "submit_all"
    body: Submissions


@dataclass(slots=True, kw_only=True)
class ChangeTask(CommandBase):
    """Change a waiting task."""

    type: Literal["change"] = "change"
    body: ChangeBody


@dataclass(slots=True, kw_only=True)
class CancelTask(CommandBase):
    """Somebody no longer wants the task."""

    type: Literal["cancel"] = "cancel"
    body: TaskVerb


@dataclass(slots=True, kw_only=True)
class RedriveTask(CommandBase):
    """Put a dead letter back."""

    type: Literal["redrive"] = "redrive"
    body: RedriveBody


@dataclass(slots=True, kw_only=True)
class DiscardTask(CommandBase):
    """Give a dead letter up."""

    type: Literal["discard"] = "discard"
    body: TaskVerb


@dataclass(slots=True, kw_only=True)
class ResolveTask(CommandBase):
    """Say that a LOST or DEAD task is done."""

    type: Literal["resolve"] = "resolve"
    body: ResolveBody


@dataclass(slots=True, kw_only=True)
class ReleaseTask(CommandBase):
    """End the lease of a task."""

    type: Literal["release"] = "release"
    body: ReleaseBody


@dataclass(slots=True, kw_only=True)
class Pause(CommandBase):
    """Assign nothing of a scope."""

    type: Literal["pause"] = "pause"
    body: ScopeBody


@dataclass(slots=True, kw_only=True)
class Resume(CommandBase):
    """Assign a scope again."""

    type: Literal["resume"] = "resume"
    body: ScopeBody


@dataclass(slots=True, kw_only=True)
class SetLimit(CommandBase):
    """Limit a kind or limit key."""

    type: Literal["limit_set"] = "limit_set"
    body: LimitBody


@dataclass(slots=True, kw_only=True)
class RemoveLimit(CommandBase):
    """Remove a limit."""

    type: Literal["limit_rm"] = "limit_rm"
    body: LimitVerb


@dataclass(slots=True, kw_only=True)
class DrainRobot(CommandBase):
    """Give the robot nothing new."""

    type: Literal["drain"] = "drain"
    body: RobotVerb


@dataclass(slots=True, kw_only=True)
class UndrainRobot(CommandBase):
    """Give the robot work again."""

    type: Literal["undrain"] = "undrain"
    body: RobotVerb


@dataclass(slots=True, kw_only=True)
class ClearRobot(CommandBase):
    """Take the robot out of ERROR."""

    type: Literal["clear"] = "clear"
    body: RobotVerb


@dataclass(slots=True, kw_only=True)
class RetireRobot(CommandBase):
    """Forget the robot."""

    type: Literal["retire"] = "retire"
    body: RobotVerb


@dataclass(slots=True, kw_only=True)
class CreatePool(CommandBase):
    """Create the pool with settings."""

    type: Literal["pool_create"] = "pool_create"
    body: SettingsBody


@dataclass(slots=True, kw_only=True)
class ConfigurePool(CommandBase):
    """Change settings of the pool."""

    type: Literal["pool_set"] = "pool_set"
    body: SettingsBody


@dataclass(slots=True, kw_only=True)
class UnfreezePool(CommandBase):
    """Let a frozen pool go on."""

    type: Literal["unfreeze"] = "unfreeze"
    body: ReasonBody


@dataclass(slots=True, kw_only=True)
class SetSchedule(CommandBase):
    """Create a schedule, or replace it."""

    type: Literal["schedule_set"] = "schedule_set"
    body: ScheduleBody


@dataclass(slots=True, kw_only=True)
class PauseSchedule(CommandBase):
    """Let a schedule fire nothing."""

    type: Literal["schedule_pause"] = "schedule_pause"
    body: ScheduleVerb


@dataclass(slots=True, kw_only=True)
class ResumeSchedule(CommandBase):
    """Let a schedule fire again."""

    type: Literal["schedule_resume"] = "schedule_resume"
    body: ScheduleVerb


@dataclass(slots=True, kw_only=True)
class DeleteSchedule(CommandBase):
    """Remove a schedule; what it has submitted goes on."""

    type: Literal["schedule_rm"] = "schedule_rm"
    body: ScheduleVerb


@dataclass(slots=True, kw_only=True)
class FireSchedule(CommandBase):
    """Submit a schedule's task now, beside its instants."""

    type: Literal["schedule_fire"] = "schedule_fire"
    body: ScheduleVerb


@dataclass(slots=True, kw_only=True)
class AcceptClock(CommandBase):
    """Follow a step of the wall clock; `pool` is the reserved `_log-<partition>`."""

    type: Literal["clock_accept"] = "clock_accept"
    body: ReasonBody


@dataclass(slots=True, kw_only=True)
class RaiseFormat(CommandBase):
    """Write the pool in a newer format from here on."""

    type: Literal["raise_format"] = "raise_format"
    body: FormatBody


@dataclass(slots=True, kw_only=True)
class Explain(CommandBase):
    """Why is this task where it is? A read: no event."""

    type: Literal["explain"] = "explain"
    body: TaskVerb


Command = Annotated[
    Submit
    | SubmitAll
    | ChangeTask
    | CancelTask
    | RedriveTask
    | DiscardTask
    | ResolveTask
    | ReleaseTask
    | Pause
    | Resume
    | SetLimit
    | RemoveLimit
    | SetSchedule
    | PauseSchedule
    | ResumeSchedule
    | DeleteSchedule
    | FireSchedule
    | DrainRobot
    | UndrainRobot
    | ClearRobot
    | RetireRobot
    | CreatePool
    | ConfigurePool
    | UnfreezePool
    | AcceptClock
    | RaiseFormat
    | Explain,
    Field(discriminator="type"),
]


# ---- reports ----


@dataclass(slots=True, kw_only=True)
class Report:
    """A robot's message as sent, with the gateway that took it and the token's name."""

    v: Version = 1
    what: Literal["report"] = "report"
    pool: str
    robot: str
    gateway: str
    actor: str
    create: bool = False
    message: RobotMessage


@dataclass(slots=True, kw_only=True)
class HeldByRobot:
    """An attempt named by a heartbeat: [task, attempt, progress, note]."""

    task: str
    attempt: int
    progress: int | None = None
    note: str | None = None


@dataclass(slots=True, kw_only=True)
class Beat:
    """The newest heartbeat of one robot."""

    robot: str
    epoch: int
    seq: int
    holding: list[HeldByRobot]


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """The heartbeats of one gateway and pool within `heartbeat_gather_ms`."""

    v: Version = 1
    what: Literal["heartbeats"] = "heartbeats"
    pool: str
    gateway: str
    beats: list[Beat]


_COMMAND: Final[TypeAdapter[Any]] = TypeAdapter(Command, config=WHEN_NEEDED)
_REPORT: Final[TypeAdapter[Report | Heartbeats]] = TypeAdapter(
    Annotated[Report | Heartbeats, Field(discriminator="what")], config=WHEN_NEEDED
)
_ENCODERS: Final = Encoders()


def encode_command(command: Any) -> bytes:
    """The value of a record on `commands`."""
    return _ENCODERS[type(command)](command, exclude_none=True, by_alias=True)


def decode_command(value: bytes) -> Any:
    """The command in a record of `commands`; raises pydantic.ValidationError."""
    return _COMMAND.validate_json(value)


def encode_report(report: Report | Heartbeats) -> bytes:
    """The value of a record on `reports`."""
    return _REPORT.dump_json(report, exclude_none=True, by_alias=True)


def decode_report(value: bytes) -> Report | Heartbeats:
    """The report or heartbeats in a record of `reports`; raises pydantic.ValidationError."""
    return _REPORT.validate_json(value)


def body_as_json(command: Any) -> Any:
    """What a command asks, as JSON-like values without defaults left None."""
    return _COMMAND.dump_python(command, exclude_none=True, by_alias=True)["body"]
