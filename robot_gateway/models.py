"""What may be sent over HTTP and `/v1/submit`: strict models in HTTP units, and their way to the log's units.

Unknown fields are refused with the nearest known name. `_s` are seconds, instants RFC 3339 with a zone.
"""

from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema
from pydantic_core import to_json

from commands import inputs as i
from commands.decide.schedules import CATCH_UP_MAX, schedule_problem, task_problem
from commands.decide.submit import submission_problem
from commands.events import Deadlines, InstantDeadline, RunDeadline, TaskChanges
from commands.instants import CRON_CHARS_MAX, EVERY_MAX_MS
from commands.json_limits import parse_json
from commands.limits import BURST_MAX, RATE_MAX, RATE_MIN, RUNNING_MAX
from commands.reasons import Refusal
from commands.vocabulary import KIND_CHARS_MAX, NAME_CHARS_MAX, PRIORITY_MAX, Overlap
from robot_gateway.reading import pointer
from robot_gateway.wire import instant_ms, instant_text, to_ms
from robot_gateway.wording import plain

DAY_S: Final = 86_400
TASKS_MAX: Final = 1000
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"


def _read_instant(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("an instant is a string like 2026-11-30T09:15:00Z")
    return instant_ms(value)


Name = Annotated[str, Field(pattern=_NAME, max_length=NAME_CHARS_MAX)]
Kind = Annotated[str, Field(pattern=_NAME, max_length=KIND_CHARS_MAX)]
Reason = Annotated[str, Field(min_length=1, max_length=1000)]
Seconds = Annotated[float, Field(ge=0, le=DAY_S, allow_inf_nan=False)]
Then = Literal["alarm", "dead", "cancel"]
Instant = Annotated[
    int,
    BeforeValidator(_read_instant),
    PlainSerializer(instant_text),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-30T09:15:00Z"]}),
]
"""An instant: RFC 3339 outside, milliseconds since 1970 inside."""


class Strict(BaseModel):
    """Refuses unknown fields and converts nothing silently."""

    model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=True)


class DeadlineAt(Strict):
    """A deadline at an instant, and what happens when it passes."""

    at: Instant
    then: Then = "alarm"


class DeadlineRun(Strict):
    """A limit of `s` seconds on the run time of one attempt."""

    s: Annotated[float, Field(gt=0, le=30 * DAY_S, allow_inf_nan=False)]
    then: Then = "alarm"


class DeadlinesIn(Strict):
    """Until when a task starts, how long it runs, and until when it ends."""

    start: DeadlineAt | None = None
    run: DeadlineRun | None = None
    end: DeadlineAt | None = None

    def in_log(self) -> Deadlines:
        """The same in log units."""
        return Deadlines(
            start=InstantDeadline(at=self.start.at, then=self.start.then) if self.start else None,
            run=RunDeadline(ms=to_ms(self.run.s), then=self.run.then) if self.run else None,
            end=InstantDeadline(at=self.end.at, then=self.end.then) if self.end else None,
        )


class RetryIn(Strict):
    """How often the task may fail, and the back-off between: `first_s`, times `factor`, at most `max_s`."""

    failures_max: Annotated[int, Field(ge=1, le=100)] | None = None
    first_s: Seconds | None = None
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None
    max_s: Seconds | None = None


class OnLostIn(Strict):
    """What follows when the task's robot falls silent; `wait_s` belongs to `wait`."""

    policy: Literal["requeue", "wait", "ask", "never"]
    wait_s: Seconds | None = None


Requirement = Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(max_length=64)]
Labels = Annotated[dict[Name, Annotated[str, Field(max_length=256)]], Field(max_length=64)]
SlotCost = Annotated[int, Field(ge=1, le=1024)]
Priority = Annotated[int, Field(ge=0, le=PRIORITY_MAX)]


class TaskIn(Strict):
    """One task to submit. What is left out is the pool's default; an absent `id` is made from the command's."""

    id: Name | None = None
    kind: Kind
    payload: Any = None
    requirement: Requirement = []
    prefer: Requirement = []
    slot_cost: SlotCost = 1
    target: Name | None = None
    priority: Priority = 0
    not_before: Instant | None = None
    deadlines: DeadlinesIn | None = None
    lease_s: Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)] | None = None
    accept_s: Annotated[float, Field(ge=0.5, le=600, allow_inf_nan=False)] | None = None
    retry: RetryIn | None = None
    lost_max: Annotated[int, Field(ge=1, le=100)] | None = None
    on_lost: OnLostIn | None = None
    passing: Annotated[Literal["higher", "all"] | None, Field(alias="pass")] = None
    late: Literal["accept", "record"] | None = None
    limit_key: Name | None = None
    labels: Labels = {}

    def in_log(self, task: str) -> i.Submission:
        """The submission of this task under the id `task`, in log units."""
        retry, on_lost = self.retry, self.on_lost
        return i.Submission(
            task=task,
            kind=self.kind,
            payload=None if self.payload is None else {"json": self.payload},
            requirement=self.requirement,
            prefer=self.prefer,
            slot_cost=self.slot_cost,
            target=self.target,
            priority=self.priority,
            not_before=self.not_before,
            deadlines=self.deadlines.in_log() if self.deadlines else None,
            lease_ms=_ms(self.lease_s),
            accept_ms=_ms(self.accept_s),
            retry=i.RetryAsked(
                failures_max=retry.failures_max,
                first_ms=_ms(retry.first_s),
                factor=retry.factor,
                max_ms=_ms(retry.max_s),
            )
            if retry
            else None,
            lost_max=self.lost_max,
            on_lost=i.OnLostAsked(policy=on_lost.policy, wait_ms=_ms(on_lost.wait_s)) if on_lost else None,
            passing=self.passing,
            late=self.late,
            limit_key=self.limit_key,
            labels=self.labels,
        )


class TasksIn(Strict):
    """Many tasks at once."""

    tasks: Annotated[list[TaskIn], Field(min_length=1, max_length=TASKS_MAX)]


class SubmitIn(TasksIn):
    """A message of `/v1/submit`. `id` is the command id; with `all_or_none` the tasks are one command."""

    type: Literal["submit"]
    id: str
    pool: Name
    all_or_none: bool = False


class ChangesIn(Strict):
    """The fields of a waiting task that may change; what is left out stays."""

    priority: Priority | None = None
    requirement: Requirement | None = None
    prefer: Requirement | None = None
    slot_cost: SlotCost | None = None
    not_before: Instant | None = None
    deadlines: DeadlinesIn | None = None
    labels: Labels | None = None

    def in_log(self) -> TaskChanges:
        """The same in log units."""
        return TaskChanges(
            priority=self.priority,
            requirement=self.requirement,
            prefer=self.prefer,
            slot_cost=self.slot_cost,
            not_before=self.not_before,
            deadlines=self.deadlines.in_log() if self.deadlines else None,
            labels=self.labels,
        )


class PatchIn(ChangesIn):
    """A change of a waiting task, and why."""

    reason: Reason | None = None


class ReasonIn(Strict):
    """Why; it is recorded."""

    reason: Reason | None = None


class RaiseFormatIn(Strict):
    """To which format (absent: the newest that this gateway knows), or only what that would do."""

    to_format: Annotated[int, Field(ge=1)] | None = None
    dry_run: bool = False


class RedriveIn(ReasonIn):
    """Put a dead letter back, changed if asked."""

    changed: ChangesIn | None = None


class ReleaseIn(ReasonIn):
    """End a lease; `force` frees slot and target at once."""

    force: bool = False


class ResolveIn(ReasonIn):
    """Say that a LOST or DEAD task is done, with its result."""

    result: Any = None


class PauseIn(ReasonIn):
    """Assign nothing, until an instant if one is given."""

    until: Instant | None = None


class BulkIn(ReasonIn):
    """A verb on all tasks that a filter finds: a dry run first, then the same with the token that it gave.

    `pool` left out: all pools of the asker. `changed` belongs to change and redrive, `force` to release, `until` to
    pause, `result` to resolve. With a token, pool and filter may be left out; where they are given they must be those
    of the dry run.
    """

    verb: Literal["cancel", "change", "redrive", "discard", "resolve", "release", "pause", "resume"]
    pool: Name | None = None
    filter: Annotated[str, Field(max_length=2000)] | None = None
    dry_run: bool = False
    token: Annotated[str, Field(max_length=64)] | None = None
    changed: ChangesIn | None = None
    force: bool = False
    until: Instant | None = None
    result: Any = None


class ScheduleIn(Strict):
    """When a task is submitted again and again: `every_s`, or a `cron` pattern in a time `zone` (UTC).

    `overlap`: what an instant does while a firing is open. `catch_up`: how many missed instants become tasks later.
    `jitter_s`: each firing is late by up to that, always by the same. The id of `task` is made; leave it out.
    """

    every_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    cron: Annotated[str, Field(max_length=CRON_CHARS_MAX)] | None = None
    zone: Annotated[str, Field(max_length=100)] | None = None
    overlap: Overlap = "skip"
    catch_up: Annotated[int, Field(ge=0, le=CATCH_UP_MAX)] = 1
    jitter_s: Seconds = 0
    task: TaskIn

    def in_log(self, schedule: str) -> i.ScheduleBody:
        """The same in log units."""
        return i.ScheduleBody(
            schedule=schedule,
            every_ms=_ms(self.every_s),
            cron=self.cron,
            zone=self.zone,
            overlap=self.overlap,
            catch_up=self.catch_up,
            jitter_ms=to_ms(self.jitter_s),
            task=self.task.in_log(schedule),
        )


class LimitIn(Strict):
    """At least one of `running` (tasks at once) and `rate_per_s` (begun a second, with up to `burst` together: 1)."""

    running: Annotated[int, Field(ge=1, le=RUNNING_MAX)] | None = None
    rate_per_s: Annotated[float, Field(ge=RATE_MIN, le=RATE_MAX)] | None = None
    burst: Annotated[int, Field(ge=1, le=BURST_MAX)] | None = None


class PoolIn(ReasonIn):
    """A pool to create; settings by their names outside (durations in seconds)."""

    pool: Name
    settings: dict[str, Any] = {}


class SettingsIn(ReasonIn):
    """Settings of a pool to change."""

    settings: Annotated[dict[str, Any], Field(min_length=1)]


class PollIn(Strict):
    """One poll of a robot: `messages` are robot messages, `seen` is the last cursor that was taken in."""

    session: Annotated[str, Field(min_length=1, max_length=64)]
    messages: Annotated[list[dict[str, Any]], Field(max_length=100)] = []
    seen: Annotated[int, Field(ge=0)] = 0
    wait_ms: Annotated[int, Field(ge=0, le=25_000)] = 0


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else to_ms(seconds)


# ---- reading ----

M = TypeVar("M", bound=Strict)


def read_model(model: type[M], raw: bytes) -> M | Refusal:
    """The request in `raw`, or why it is refused, with a JSON pointer to the place."""
    value, problem = parse_json(raw)
    return problem or model_of(model, value)


def model_of(model: type[M], value: Any) -> M | Refusal:
    """The request that the JSON `value` stands for, or why it is refused."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return _what_is_wrong(model, error)


def _what_is_wrong(model: type[Strict], error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False)[0]
    place, field = first["loc"], pointer(first["loc"]) or None
    if first["type"] == "extra_forbidden":
        name = str(place[-1])
        here = _model_at(model, place[:-1])
        near = _inside(here, name) or get_close_matches(name, _names(here), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return Refusal("unknown_field", f"there is no field {name[:100]!r} here{hint}", field)
    if first["type"] == "missing":
        return Refusal("invalid_field", f"{place[-1]} is needed", field)
    return Refusal("invalid_field", plain(first), field)


def _model_at(model: type[Strict], place: tuple[str | int, ...]) -> type[Strict] | None:
    """The model inside `model` at `place`."""
    found: type[Strict] | None = model
    for name in place:
        if found is None or isinstance(name, int):
            continue
        inner = next((f for key, f in found.model_fields.items() if name in (key, f.alias)), None)
        found = _model_in(inner.annotation) if inner else None
    return found


def _names(model: type[Strict] | None) -> list[str]:
    return [] if model is None else [f.alias or key for key, f in model.model_fields.items()]


def _inside(model: type[Strict] | None, name: str) -> list[str]:
    """Where `name` stands one level deeper, as in `retry.failures_max`."""
    outer = {} if model is None else model.model_fields
    return [f"{f.alias or key}.{name}" for key, f in outer.items() if name in _names(_model_in(f.annotation))]


def _model_in(annotation: Any) -> type[Strict] | None:
    """The model that an annotation such as `RetryIn | None` or `list[TaskIn]` speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    parts = (_model_in(part) for part in getattr(annotation, "__args__", ()))
    return next((part for part in parts if part is not None), None)


def schedule_of(body: ScheduleIn, schedule: str) -> i.ScheduleBody | Refusal:
    """The schedule in log units, or what is wrong with it whatever the pool."""
    if body.task.id is not None:
        return Refusal("invalid_field", "the id is made from schedule and instant", "/task/id")
    if body.every_s is not None and abs(body.every_s) > EVERY_MAX_MS:
        return Refusal("invalid_field", "an interval is at most 366 days", "/every")
    asked = body.in_log(schedule)
    problem = task_problem(asked.task)
    if problem is not None:
        return Refusal(problem.reason, problem.text, f"/task{problem.field or ''}")
    return schedule_problem(asked) or asked


def submission_of(task: TaskIn, task_id: str, payload_max: int) -> i.Submission | Refusal:
    """The submission in log units, or what is wrong with it whatever the pool."""
    if task.payload is not None and len(to_json(task.payload)) > payload_max:
        return Refusal("too_large", f"a payload has at most {payload_max} bytes", "/payload")
    if task.id is not None and task.id.startswith("_"):
        return Refusal("invalid_field", "a leading _ is reserved", "/id")
    submission = task.in_log(task_id)
    return submission_problem(submission) or submission
