"""From tasks as submitted to commands, and from the owners' answers to what the submitter sees."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from commands import inputs as i
from commands.ids import name_id
from commands.reasons import Refusal
from robot_gateway.models import TaskIn, submission_of
from robot_gateway.pending import Answer
from robot_gateway.problems import problem, status_of
from robot_gateway.tokens import Principal
from robot_gateway.wire import to_http

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway


_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-?)(?:[0-9A-Fa-f]{4}\1){3}[0-9A-Fa-f]{12}\Z")


@dataclass(slots=True, frozen=True)
class Plan:
    """How submissions become commands: `many` were sent as a list, `all_or_none` they are one command."""

    many: bool
    all_or_none: bool


def read_submissions(
    gateway: "Gateway", principal: Principal, pool: str, command_id: str, tasks: Sequence[TaskIn]
) -> list[i.Submission] | Refusal:
    """The submissions in log units, or why none of them is sent. An absent id follows from pool, actor and command."""
    refusal = _not_allowed(gateway, principal, pool) or command_id_problem(command_id)
    if refusal is not None:
        return refusal
    found = []
    for index, task in enumerate(tasks):
        task_id = task.id or name_id(pool, principal.name, command_id, index)
        submission = submission_of(task, task_id, gateway.settings.payload_max_bytes)
        if isinstance(submission, Refusal):
            if len(tasks) == 1:
                return submission
            return Refusal(submission.reason, submission.text, f"/tasks/{index}{submission.field or ''}")
        found.append(submission)
    return found


def _not_allowed(gateway: "Gateway", principal: Principal, pool: str) -> Refusal | None:
    if not principal.may("submit", pool):
        return Refusal("forbidden", f"this token may not submit to pool {pool}")
    stopped = gateway.submissions_stopped()
    if stopped is not None:
        return Refusal("not_ready", stopped, retry_after_ms=5_000)
    return gateway.load.no_new_work()


def command_id_problem(command_id: str) -> Refusal | None:
    """A command id is a UUID, so that nobody meets another's by chance, in one of its two usual spellings: it stands in
    every event that the command causes."""
    if _UUID.match(command_id):
        return None
    return Refusal("invalid_field", "a command id (Idempotency-Key) is a UUID: 32 hex digits, or 8-4-4-4-12", "/id")


def commands_of(
    gateway: "Gateway",
    principal: Principal,
    pool: str,
    command_id: str,
    submissions: list[i.Submission],
    plan: Plan,
    traceparent: str | None = None,
) -> list[i.CommandBase]:
    """One command for each submission (`<id>/<index>` where `plan` says many), or one for all or none of them."""
    common: dict[str, Any] = {
        "pool": pool,
        "actor": principal.name,
        "reply_to": gateway.name,
        "create": gateway.access.pools_are_made_on_first_use,
        "traceparent": traceparent,
    }
    if plan.all_or_none:
        return [i.SubmitAll(id=command_id, body=i.Submissions(tasks=submissions), **common)]
    if not plan.many:
        return [i.Submit(id=command_id, body=submissions[0], **common)]
    return [i.Submit(id=f"{command_id}/{n}", body=body, **common) for n, body in enumerate(submissions)]


def entry_of(answer: Answer) -> list[dict[str, Any]]:
    """What one answer says of its task, or of its tasks: `status` and `task`, or `status` and `problem`."""
    if answer.refusal is not None:
        return [{"status": status_of(answer.refusal), "problem": problem(answer.refusal, answer.command)}]
    accepted = answer.accepted or {}
    tasks = accepted.get("tasks")
    return [
        {"status": 200 if task.get("changed") is False else 201, "task": resource_of(answer.pool, task)}
        for task in ([accepted] if tasks is None else tasks)
    ]


def resource_of(pool: str, accepted: dict[str, Any]) -> dict[str, Any]:
    """What the owner said of a task, robot, schedule or pool, in HTTP units: `id`, `pool`, and how it stands."""
    shown = to_http(accepted)
    named = next((name for name in ("task", "robot", "schedule") if isinstance(shown.get(name), str)), None)
    if named is not None:
        return {"id": shown.pop(named), "pool": pool, **shown}
    return shown if "pool" in shown else {"pool": pool, **shown}
