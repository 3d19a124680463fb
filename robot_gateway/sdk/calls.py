"""What Client and AsyncClient ask: each request as a value, with how to read its answer. No input or output here."""

from __future__ import annotations

import random
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import httpx

from robot_gateway.sdk.errors import (
    BY_REASON,
    FleetlogError,
    TaskCancelled,
    TaskDead,
    TaskDiscarded,
    TaskEnded,
    WaitTimeout,
    error_of,
)
from robot_gateway.sdk.resources import Task, task_body
from robot_gateway.sdk.wire import encode_json

POSITION_HEADER: Final = "Fleetlog-Position"
TASKS_PER_REQUEST: Final = 1000
WAIT_S_MAX: Final = 30
BACKOFF_FIRST_S: Final = 0.25
BACKOFF_MAX_S: Final = 5.0

Answer = TypeVar("Answer")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request. Its command id stays the same however often it is sent.

    `pool`: what it is about; a read then includes what this client did there before.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], Answer]
    params: Mapping[str, str | int | float] = field(default_factory=dict)
    body: bytes | None = None
    command_id: str | None = None
    pool: str | None = None

    def query(self, seen: str | None) -> dict[str, str | int | float]:
        """The parameters; a read asks to include the position `seen`."""
        params = dict(self.params)
        if seen is not None and self.method == "GET":
            params.setdefault("after", seen)
        return params

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it."""
        headers = {} if self.body is None else {"Content-Type": "application/json"}
        return headers if self.command_id is None else headers | {"Idempotency-Key": self.command_id}


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A part of a list: its items, and where the next part begins."""

    items: list[Item]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one of many submissions."""

    task: Task | None
    error: FleetlogError | None


class Retries:
    """How long to wait before a request is sent again; None when it is not to be.

    `ends`: when the caller waits no longer, by `time.monotonic`.
    """

    def __init__(self, for_s: float, ends: float | None = None) -> None:
        self._left_s = for_s
        self._ends = ends
        self._tries = 0

    def pause(self, error: FleetlogError) -> float | None:
        """Seconds to wait after `error`: what was asked for, or a random back-off. Raises WaitTimeout at `ends`."""
        if not error.retryable:
            return None
        limit = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self._tries, 10))
        self._tries += 1
        pause = random.uniform(0, limit) if error.retry_after_s is None else error.retry_after_s  # noqa: S311
        if self._ends is not None and time.monotonic() + pause > self._ends:
            raise WaitTimeout(f"the time is over, and so far: {error}") from error
        if pause > self._left_s:
            return None
        # Even an answer that comes at once costs something, so that the tries end.
        self._left_s -= max(pause, 0.05)
        return pause


def error_from(response: httpx.Response) -> FleetlogError:
    """The problem in an answer; something that is not Fleetlog's becomes `internal` or `no_such_route`."""
    try:
        told: dict[str, Any] = response.json()
        reason = str(told["reason"])
    except (ValueError, KeyError, TypeError):
        reason = "no_such_route" if response.status_code < 500 else "internal"
        text = f"{response.request.url} answered HTTP {response.status_code}, which is not an answer of Fleetlog"
        return error_of(reason, text)
    return _problem_error(told)


def no_answer(problem: Exception, base_url: str) -> FleetlogError:
    """The error for a gateway that did not answer; asking again with the same command id is safe."""
    return BY_REASON["no_answer"](f"no answer from {base_url}: {str(problem) or type(problem).__name__}")


def _problem_error(told: Mapping[str, Any]) -> FleetlogError:
    known = {"type", "title", "status", "detail", "reason", "field", "retryable", "retry_after_s"}
    return error_of(
        str(told["reason"]),
        str(told.get("detail", "")),
        retry_after_s=told.get("retry_after_s"),
        field=told.get("field"),
        extra={name: value for name, value in told.items() if name not in known},
    )


# ---- reading answers ----


def _json(response: httpx.Response) -> Any:
    return response.json()


def _task(response: httpx.Response) -> Task:
    return Task.read(response.json(), response.headers.get(POSITION_HEADER))


def _tasks(response: httpx.Response) -> Page[Task]:
    told = response.json()
    return Page([Task.read(raw, told.get("position")) for raw in told["items"]], told.get("next"))


def _submitted(response: httpx.Response) -> list[Submitted]:
    told = response.json()
    return [entry_of(entry, told.get("position")) for entry in told["tasks"]]


def entry_of(entry: Mapping[str, Any], position: str | None) -> Submitted:
    """One entry of an answer to many submissions: a task, or a problem."""
    problem = entry.get("problem")
    if problem is not None:
        return Submitted(None, _problem_error(problem))
    return Submitted(Task.read(entry["task"], position), None)


# ---- requests ----


def _pool(pool: str, *parts: str) -> str:
    return "/".join(["/v1/pools", *(urllib.parse.quote(part, safe="") for part in (pool, *parts))])


def new_command_id() -> str:
    """A command id that nobody has used."""
    return str(uuid.uuid4())


def numbered(command_id: str | None, number: int) -> str | None:
    """The command id of one of many requests that belong together; None where no id was given."""
    return None if command_id is None else str(uuid.uuid5(uuid.UUID(command_id), str(number)))


def submit(pool: str, submission: Mapping[str, Any], command_id: str | None) -> Call[Task]:
    """Submit one task."""
    body = encode_json(task_body(submission))
    return Call("POST", _pool(pool, "tasks"), _task, body=body, command_id=command_id or new_command_id(), pool=pool)


def submit_many(
    pool: str, submissions: Sequence[Mapping[str, Any]], command_id: str | None, *, all_or_none: bool
) -> Call[list[Submitted]]:
    """Submit up to 1,000 tasks in one request."""
    return Call(
        "POST",
        _pool(pool, "tasks"),
        _submitted,
        params={"all_or_none": "true"} if all_or_none else {},
        body=encode_json({"tasks": [task_body(s) for s in submissions]}),
        command_id=command_id or new_command_id(),
        pool=pool,
    )


def task(pool: str, task_id: str, *, wait_s: float | None = None, after: str | None = None) -> Call[Task]:
    """A task as it stands, or as it stands when it has ended or `wait_s` (at most 30) is over."""
    params: dict[str, str | int | float] = {}
    if wait_s is not None:
        params["wait_s"] = round(max(0.0, min(wait_s, WAIT_S_MAX)), 3)
    if after is not None:
        params["after"] = after
    return Call("GET", _pool(pool, "tasks", task_id), _task, params=params, pool=pool)


def result(pool: str, task_id: str) -> Call[Any]:
    """The result of a completed task."""
    return Call("GET", _pool(pool, "tasks", task_id, "result"), _json, pool=pool)


def tasks(where: str | None, sort: str | None, limit: int, cursor: str | None) -> Call[Page[Task]]:
    """A part of a list of tasks."""
    given = {"where": where, "sort": sort, "limit": limit, "cursor": cursor}
    return Call("GET", "/v1/tasks", _tasks, params={n: v for n, v in given.items() if v is not None})


def verb(pool: str, task_id: str, name: str, body: Mapping[str, Any], command_id: str | None) -> Call[Task]:
    """cancel, redrive, discard, release, resolve."""
    encoded = encode_json({name: value for name, value in body.items() if value is not None})
    path = _pool(pool, "tasks", task_id, name)
    return Call("POST", path, _task, body=encoded, command_id=command_id or new_command_id(), pool=pool)


def why(pool: str, task_id: str) -> Call[dict[str, Any]]:
    """Why a task is where it is."""
    return Call("GET", _pool(pool, "tasks", task_id, "why"), _json)


def history(pool: str, task_id: str, cursor: str | None) -> Call[Page[dict[str, Any]]]:
    """A part of the events of a task."""
    params = {} if cursor is None else {"cursor": cursor}
    return Call("GET", _pool(pool, "tasks", task_id, "history"), _events, params=params, pool=pool)


def _events(response: httpx.Response) -> Page[dict[str, Any]]:
    told = response.json()
    return Page(told["items"], told.get("next"))


def stream_params(where: str | None, types: Iterable[str] | None) -> dict[str, str]:
    """The query of the event stream."""
    given = {"where": where, "types": None if types is None else ",".join(types)}
    return {name: value for name, value in given.items() if value is not None}


def in_requests(submissions: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    """Submissions in groups that one request may carry."""
    group: list[Mapping[str, Any]] = []
    for submission in submissions:
        group.append(submission)
        if len(group) == TASKS_PER_REQUEST:
            yield group
            group = []
    if group:
        yield group


def worst_retryable(answers: Iterable[Submitted]) -> FleetlogError | None:
    """Among many answers the error that may go away when the same request is sent again, the longest wait first."""
    errors = [a.error for a in answers if a.error is not None and a.error.retryable]
    return max(errors, key=lambda error: error.retry_after_s or 0.0, default=None)


def ended_otherwise(ended: Task) -> TaskEnded | None:
    """The error that stands for a task that ended without a result; None if it is completed."""
    if ended.state == "DEAD":
        error = ended.error or {}
        said = f": {error.get('type')}: {error.get('message')}" if error else ""
        return TaskDead(f"task {ended.id} is a dead letter ({ended.dead_reason}){said}", ended)
    if ended.state == "CANCELLED":
        return TaskCancelled(f"task {ended.id} was cancelled", ended)
    if ended.state == "DISCARDED":
        return TaskDiscarded(f"task {ended.id} was discarded: {ended.raw.get('reason', 'no reason given')}", ended)
    return None
