"""Robot protocol `fleetlog.robot.v1`: every message, both ways, as dataclasses with their limits.

The gateway, the SDK and `decide` share these shapes, so they need nothing but pydantic. `_ms` are milliseconds.
Readers ignore fields that they do not know.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from commands.codecs import WHEN_NEEDED
from commands.vocabulary import INTEGER_MAX

PROTOCOL: Final = "fleetlog.robot.v1"
PROTOCOL_NUMBER: Final = 1
ROBOT_FRAME_BYTES_MAX: Final = 512 * 1024
GATEWAY_FRAME_BYTES_MAX: Final = 1024 * 1024
BODY_BYTES_MAX: Final = 256 * 1024

Name = Annotated[str, Field(min_length=1, max_length=128)]
MessageId = Annotated[str, Field(min_length=1, max_length=64)]
Number = Annotated[int, Field(ge=1, le=INTEGER_MAX)]
AttemptNumber = Number
Slots = Annotated[int, Field(ge=1, le=1024)]
Capability = Annotated[str, Field(min_length=1, max_length=128)]
CAPABILITIES_MAX: Final = 64
Capabilities = Annotated[list[Capability], Field(max_length=CAPABILITIES_MAX)]
Percent = Annotated[int, Field(ge=0, le=100)]
Note = Annotated[str, Field(max_length=200)]


@dataclass(slots=True, kw_only=True)
class FromRobot:
    """What every robot message carries: an `id` unique for ever, its `epoch` (not in hello) and `seq` within it."""

    type: str = ""
    id: MessageId
    epoch: Annotated[int, Field(le=INTEGER_MAX)] | None = None
    seq: Number | None = None


@dataclass(slots=True, kw_only=True)
class HeldAttempt:
    """An attempt that the robot still holds at hello, and whether it had started it."""

    task: Name
    attempt: AttemptNumber
    started: bool


@dataclass(slots=True, kw_only=True)
class FaultText:
    """A fault in words, with a code of the robot's own."""

    text: Annotated[str, Field(max_length=1000)]
    code: Annotated[str, Field(max_length=64)] | None = None


@dataclass(slots=True, kw_only=True)
class Hello(FromRobot):
    """The first message of a session."""

    type: Literal["hello"] = "hello"
    slots: Slots
    capabilities: Capabilities
    holding: Annotated[list[HeldAttempt], Field(max_length=4096)]
    fault: FaultText | None = None
    agent: Annotated[str, Field(max_length=128)] | None = None
    inline_max_bytes: Annotated[int, Field(ge=1024, le=INTEGER_MAX)] | None = None


@dataclass(slots=True, kw_only=True)
class Ready(FromRobot):
    """At most `n` of my slots may be in use (absolute)."""

    type: Literal["ready"] = "ready"
    n: Annotated[int, Field(ge=0, le=1024)]


@dataclass(slots=True, kw_only=True)
class Update(FromRobot):
    """Slots or capabilities have changed; at least one is given."""

    type: Literal["update"] = "update"
    slots: Slots | None = None
    capabilities: Capabilities | None = None


@dataclass(slots=True, kw_only=True)
class Accept(FromRobot):
    """The robot takes the assignment; it starts only after the ack."""

    type: Literal["accept"] = "accept"
    task: Name
    attempt: AttemptNumber


@dataclass(slots=True, kw_only=True)
class Reject(FromRobot):
    """The robot does not take the assignment."""

    type: Literal["reject"] = "reject"
    task: Name
    attempt: AttemptNumber
    reason: Literal["busy", "cannot", "unsafe", "too_large", "other"]
    text: Annotated[str, Field(max_length=200)] | None = None


@dataclass(slots=True, kw_only=True)
class HeldProgress:
    """An attempt that the robot works on, with its progress (whole per cent) and a note."""

    task: Name
    attempt: AttemptNumber
    progress: Percent | None = None
    note: Note | None = None


@dataclass(slots=True, kw_only=True)
class Heartbeat(FromRobot):
    """A sign of life that names every attempt held."""

    type: Literal["heartbeat"] = "heartbeat"
    holding: Annotated[list[HeldProgress], Field(max_length=4096)]


@dataclass(slots=True, kw_only=True)
class Checkpoint(FromRobot):
    """A durable value, numbered 1, 2, 3 ... within the task; without a value it is null."""

    type: Literal["checkpoint"] = "checkpoint"
    task: Name
    attempt: AttemptNumber
    number: Number
    value: Any = None


@dataclass(slots=True, kw_only=True)
class Complete(FromRobot):
    """The attempt is done."""

    type: Literal["complete"] = "complete"
    task: Name
    attempt: AttemptNumber
    result: Any = None


@dataclass(slots=True, kw_only=True)
class ErrorReport:
    """What went wrong."""

    type: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=1000)]
    detail: Any = None


@dataclass(slots=True, kw_only=True)
class Fail(FromRobot):
    """The attempt failed."""

    type: Literal["fail"] = "fail"
    task: Name
    attempt: AttemptNumber
    failure_class: Annotated[Literal["retryable", "fatal"], Field(alias="class")]
    error: ErrorReport
    retry_after_ms: Annotated[int, Field(ge=0, le=INTEGER_MAX)] | None = None


@dataclass(slots=True, kw_only=True)
class CheckpointValue:
    """A checkpoint inside another message."""

    number: Number
    value: Any = None


@dataclass(slots=True, kw_only=True)
class Stopped(FromRobot):
    """The attempt was stopped without an end of its own."""

    type: Literal["stopped"] = "stopped"
    task: Name
    attempt: AttemptNumber
    why: Literal["cancel", "stop", "own_deadline", "shutdown"]
    checkpoint: CheckpointValue | None = None


@dataclass(slots=True, kw_only=True)
class Fault(FromRobot):
    """The robot cannot work; it keeps what it holds."""

    type: Literal["fault"] = "fault"
    text: Annotated[str, Field(max_length=1000)]
    code: Annotated[str, Field(max_length=64)] | None = None


@dataclass(slots=True, kw_only=True)
class Recovered(FromRobot):
    """The fault is gone."""

    type: Literal["recovered"] = "recovered"


@dataclass(slots=True, kw_only=True)
class Bye(FromRobot):
    """I work on nothing."""

    type: Literal["bye"] = "bye"


RobotMessage = Annotated[
    Hello
    | Ready
    | Update
    | Accept
    | Reject
    | Heartbeat
    | Checkpoint
    | Complete
    | Fail
    | Stopped
    | Fault
    | Recovered
    | Bye,
    Field(discriminator="type"),
]
_FROM_ROBOT: Final[TypeAdapter[Any]] = TypeAdapter(RobotMessage, config=WHEN_NEEDED)


def decode_robot_message(value: bytes | str) -> Any:
    """One robot message, strictly typed; raises pydantic.ValidationError."""
    return _FROM_ROBOT.validate_json(value, strict=True)


def encode_robot_message(message: FromRobot) -> bytes:
    """The message as sent, without None fields."""
    return _FROM_ROBOT.dump_json(message, exclude_none=True, by_alias=True)


# ---- gateway to robot ----


@dataclass(slots=True, kw_only=True)
class WelcomeHeld:
    """The verdict on one attempt named in hello."""

    task: str
    attempt: int
    verdict: Literal["run", "accept", "stop"]
    reason: str | None = None
    lease_ms: int | None = None
    stop_after_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Welcome:
    """The answer to hello."""

    type: Literal["welcome"] = "welcome"
    of: str
    epoch: int
    protocol: int = PROTOCOL_NUMBER
    window_ms: int
    heartbeat_every_ms: int
    draining: bool
    held: list[WelcomeHeld] = field(default_factory=list)
    payload_max_bytes: int = BODY_BYTES_MAX
    now_at: int | None = None
    position: str = ""


@dataclass(slots=True, kw_only=True)
class AssignCheckpoint:
    """The last checkpoint of the task: its number, and the value or where to get it."""

    number: int
    value: Any = None
    url: str | None = None


@dataclass(slots=True, kw_only=True)
class Assign:
    """A task for the robot. `payload` and `checkpoint.value` travel as they were stored."""

    type: Literal["assign"] = "assign"
    assignment_id: str
    task: str
    attempt: int
    kind: str
    payload: Any = None
    payload_url: str | None = None
    checkpoint: AssignCheckpoint | None = None
    idempotency_key: str
    target: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    slot_cost: int
    accept_within_ms: int
    lease_ms: int
    stop_after_ms: int | None = None
    run_within_ms: int | None = None
    failures: int
    lost: int
    traceparent: str | None = None


@dataclass(slots=True, kw_only=True)
class Ack:
    """The report is in the log."""

    type: Literal["ack"] = "ack"
    of: str
    position: str = ""
    late: bool | None = None
    lease_ms: int | None = None
    stop_after_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Refused:
    """A no, with a reason of the list; `retry`: send again after `retry_after_ms`."""

    type: Literal["refused"] = "refused"
    of: str | None
    reason: str
    text: str
    field: str | None = None
    retry: bool = False
    retry_after_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class AttemptNotice:
    """An attempt that the robot should stop, or whose cancellation was asked."""

    task: str
    attempt: int
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class HeartbeatAck:
    """The heartbeat `of` is in the log."""

    type: Literal["heartbeat_ack"] = "heartbeat_ack"
    of: str
    stop: list[AttemptNotice] = field(default_factory=list)
    cancel: list[AttemptNotice] = field(default_factory=list)
    draining: bool = False
    heartbeat_every_ms: int


@dataclass(slots=True, kw_only=True)
class Cancel:
    """Somebody no longer wants the task; complete, fail or stopped(cancel)."""

    type: Literal["cancel"] = "cancel"
    task: str
    attempt: int
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class Stop:
    """The lease is over: stop at once."""

    type: Literal["stop"] = "stop"
    task: str
    attempt: int
    reason: Literal["expired", "released", "newer_attempt", "ended", "retired", "unknown"]


@dataclass(slots=True, kw_only=True)
class Superseded:
    """A newer session of this robot took over; end, do not reconnect."""

    type: Literal["superseded"] = "superseded"
    reason: str


@dataclass(slots=True, kw_only=True)
class Moved:
    """Reconnect after `after_ms`; leases go on."""

    type: Literal["moved"] = "moved"
    after_ms: int


GatewayMessage = Annotated[
    Welcome | Assign | Ack | Refused | HeartbeatAck | Cancel | Stop | Superseded | Moved,
    Field(discriminator="type"),
]
_TO_ROBOT: Final[TypeAdapter[Any]] = TypeAdapter(GatewayMessage, config=WHEN_NEEDED)


def decode_gateway_message(value: bytes | str) -> Any:
    """One message of the gateway; raises pydantic.ValidationError."""
    return _TO_ROBOT.validate_json(value)


def encode_gateway_message(message: Any) -> bytes:
    """The message as sent, without None fields (a null payload is the absent payload)."""
    return _TO_ROBOT.dump_json(message, exclude_none=True, by_alias=True)


CLOSE_CODES: Final[dict[int, tuple[str, bool]]] = {
    1000: ("after bye", False),
    1001: ("the gateway stops", True),
    1002: ("bad frame", True),
    1003: ("binary frames are not spoken here", True),
    1007: ("not UTF-8", True),
    1009: ("the frame is too big", True),
    1011: ("a fault inside the gateway", True),
    1012: ("the gateway restarts", True),
    1013: ("overloaded, or the log is away", True),
    4000: ("no hello within 10 s", True),
    4001: ("a newer session took over", False),
    4002: ("two programs use this robot id", False),
    4003: ("the token was withdrawn or is not for this robot", False),
    4004: ("the robot was retired", False),
    4006: ("100 refused messages within a minute", True),
    4008: ("silent for 6 windows", True),
    4009: ("reads too slowly", True),
}
"""Close code -> meaning, and whether the robot should reconnect."""
