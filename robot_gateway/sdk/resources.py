"""What Fleetlog tells submitters: tasks and events as small typed objects around the JSON that came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from commands.vocabulary import ENDED_STATES


class SubmitOptions(TypedDict, total=False):
    """What a submission may say beside kind and payload; what is left out is the pool's default.

    `id` of the task (made from the command id if absent), `requirement` and `prefer` (names, name=value,
    comparisons), `slot_cost`, `target`, `priority` (0 to 9), `not_before`, `deadlines` ({start: {at, then}, run:
    {s, then}, end: {at, then}}), `lease_s`, `accept_s`, `retry` ({failures_max, first_s, factor, max_s}), `lost_max`,
    `on_lost` (requeue, wait, ask, never) with `wait_s`, `passing` (higher, all), `late` (accept, record),
    `limit_key`, `labels`.
    """

    id: str
    requirement: Sequence[str]
    prefer: Sequence[str]
    slot_cost: int
    target: str
    priority: int
    not_before: datetime | str
    deadlines: Mapping[str, Mapping[str, Any]]
    lease_s: float
    accept_s: float
    retry: Mapping[str, float]
    lost_max: int
    on_lost: Literal["requeue", "wait", "ask", "never"]
    wait_s: float
    passing: Literal["higher", "all"]
    late: Literal["accept", "record"]
    limit_key: str
    labels: Mapping[str, str]


class Submission(SubmitOptions, total=False):
    """One task for `submit_many`: `kind`, `payload`, and the options."""

    kind: str
    payload: Any


def task_body(submission: Mapping[str, Any]) -> dict[str, Any]:
    """A submission in the shape of HTTP."""
    body: dict[str, Any] = {}
    for name, value in submission.items():
        if value is None or name == "wait_s":
            continue
        if name == "on_lost":
            wait = submission.get("wait_s")
            body[name] = {"policy": value} | ({} if wait is None else {"wait_s": wait})
        elif name == "deadlines":
            body[name] = {which: _with_instants(deadline) for which, deadline in value.items()}
        else:
            body["pass" if name == "passing" else name] = _instant(value)
    return body


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stood at `position`. `raw`: everything that Fleetlog told, durations in seconds."""

    id: str
    pool: str
    state: str
    raw: Mapping[str, Any]
    position: str | None = None

    @classmethod
    def read(cls, raw: Mapping[str, Any], position: str | None = None) -> Task:
        """The task in an answer."""
        return cls(str(raw["id"]), str(raw["pool"]), str(raw.get("state", "WAITING")), raw, position)

    @property
    def ended(self) -> bool:
        """Whether it is COMPLETED, CANCELLED, DEAD or DISCARDED."""
        return self.state in ENDED_STATES

    @property
    def kind(self) -> str:
        """What is to be done."""
        return str(self.raw.get("kind", ""))

    @property
    def attempt(self) -> int:
        """The number of the latest attempt; 0 before the first."""
        return int(self.raw.get("attempt", 0))

    @property
    def robot(self) -> str | None:
        """Who has it, or had it at its end."""
        return self.raw.get("robot")

    @property
    def dead_reason(self) -> str | None:
        """For a DEAD task: failed, fatal, poison or deadline."""
        return self.raw.get("dead_reason")

    @property
    def error(self) -> Mapping[str, Any] | None:
        """What the last failure said."""
        return self.raw.get("error")

    @property
    def changed(self) -> bool:
        """Whether the command that answered with this task changed it."""
        return self.raw.get("changed") is not False


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream. `position`: where to go on after it (`stream(after=...)`)."""

    type: str
    data: Mapping[str, Any]
    position: str


def _with_instants(deadline: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _instant(value) for name, value in deadline.items()}


def _instant(value: Any) -> Any:
    """Instants as RFC 3339; a datetime without a zone is meant in the zone of this machine."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
