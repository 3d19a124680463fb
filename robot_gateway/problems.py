"""Every "no" over HTTP: a `Refusal` as problem details (RFC 9457), the only shape of errors that the gateway has."""

import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json
from starlette.responses import Response

from commands.reasons import REASONS, Refusal

MEDIA_TYPE: Final = "application/problem+json"


class RefusedRequest(Exception):
    """Ends the handling of one HTTP request with a refusal. Never leaves the HTTP layer."""

    def __init__(
        self, refusal: Refusal, command_id: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.command_id = command_id
        self.headers = headers


def refuse(reason: str, text: str, field: str | None = None) -> RefusedRequest:
    """The exception to raise for `reason`."""
    return RefusedRequest(Refusal(reason, text, field))


def problem(refusal: Refusal, command_id: str | None = None, request_id: str | None = None) -> dict[str, Any]:
    """The members of the problem: type, title, status, detail, reason, retryable, and what else is known."""
    status = status_of(refusal)
    members: dict[str, Any] = {
        "type": f"/v1/problems/{refusal.reason}",
        "title": refusal.reason.replace("_", " ").capitalize(),
        "status": status,
        "detail": refusal.text,
        "reason": refusal.reason,
        "retryable": refusal.retryable,
    }
    if refusal.field is not None:
        members["field"] = refusal.field
    if refusal.retry_after_ms is not None:
        members["retry_after_s"] = refusal.retry_after_ms / 1000
    if command_id is not None:
        members["command_id"] = command_id
    if request_id is not None:
        members["request_id"] = request_id
    for name, value in (refusal.extra or {}).items():
        members.setdefault(name, value)
    return members


def status_of(refusal: Refusal) -> int:
    """The HTTP status. Words of robot sessions have none of their own; over HTTP they are conflicts."""
    return REASONS[refusal.reason].status or 409


def problem_response(
    refusal: Refusal,
    *,
    command_id: str | None = None,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The whole answer, with `Retry-After` where a time to come back is known."""
    told = dict(headers or {})
    if refusal.retry_after_ms is not None:
        told["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_ms / 1000)))
    if refusal.reason == "unauthenticated":
        told["WWW-Authenticate"] = "Bearer"
    body = to_json(problem(refusal, command_id, request_id))
    return Response(body, status_of(refusal), told, MEDIA_TYPE)
