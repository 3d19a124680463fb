"""Asking as a submitter or operator does: the same command again until there is an answer that stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from commands.inputs import CommandBase, Submission, decode_command
from commands.reasons import Refusal
from fleetlog.sim.submitters import Client
from robot_gateway.models import TaskIn, model_of, submission_of
from robot_gateway.pending import Answer
from robot_gateway.sdk.errors import FleetlogError, error_of
from robot_gateway.sdk.resources import task_body
from robot_gateway.sdk.wire import encode_json
from robot_gateway.settings import GatewaySettings

_NOBODY_THERE: Final = frozenset({"no_answer", "not_ready", "log_unavailable", "gateway_busy"})
ACTOR: Final = "local"


@dataclass(eq=False)
class Asker(Client):
    """A client that takes a refusal for an answer, unless nobody was there to decide."""

    def stands(self, answer: Answer) -> bool:
        """As in `Client`."""
        return answer.refusal is None or answer.refusal.reason not in _NOBODY_THERE


def error_from(refusal: Refusal) -> FleetlogError:
    """The error that the SDK's client raises for a refusal."""
    after_s = None if refusal.retry_after_ms is None else refusal.retry_after_ms / 1_000
    return error_of(refusal.reason, refusal.text, retry_after_s=after_s, field=refusal.field, extra=refusal.extra)


def submission(task: str, options: Mapping[str, Any]) -> Submission:
    """A submission as HTTP takes it, in the log's units; raises the error of the refusal."""
    read = model_of(TaskIn, from_json(encode_json(task_body(options))))
    found = read if isinstance(read, Refusal) else submission_of(read, task, GatewaySettings().payload_max_bytes)
    if isinstance(found, Refusal):
        raise error_from(found)
    return found


def command_of(kind: str, command_id: str, pool: str, reply_to: str, body: Mapping[str, Any]) -> CommandBase:
    """The command `kind` of the log's format; raises ValueError where it does not have that shape."""
    head = {"type": kind, "id": command_id, "pool": pool, "actor": ACTOR, "reply_to": reply_to, "create": True}
    try:
        command: Any = decode_command(encode_json(head | {"body": body}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:] if part != "body")
        raise ValueError(f"command {kind}: {place + ': ' if place else ''}{first['msg']}") from None
    known = {"pass" if name == "passing" else name for name in command.body.__dataclass_fields__}
    unknown = sorted(set(body) - known)
    if unknown:
        raise ValueError(f"command {kind} has no field {unknown[0]}: it has {', '.join(sorted(known))}")
    return command  # type: ignore[no-any-return]
