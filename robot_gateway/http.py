"""What all HTTP routes share: reading requests strictly, writing answers, command ids, and how both are documented."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Path, Request
from pydantic_core import to_json
from starlette.responses import Response

from commands.reasons import Refusal
from commands.schedules import SCHEDULE_CHARS_MAX
from commands.vocabulary import KIND_CHARS_MAX, NAME_CHARS_MAX
from robot_gateway.gateway import Gateway
from robot_gateway.models import Strict, read_model
from robot_gateway.pending import Answer
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.settings import ENVELOPE_BYTES
from robot_gateway.submissions import command_id_problem
from robot_gateway.tokens import Principal, Right

POSITION_HEADER: Final = "Fleetlog-Position"
COMMAND_HEADER: Final = "Idempotency-Key"
WAIT_S_MAX: Final = 300.0
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
TASK_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*(@[0-9TZ]+)?$"
"""An id of a task: one that was given, or that of a schedule's firing."""
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")

PathName = Annotated[str, Path(pattern=_NAME, max_length=NAME_CHARS_MAX)]
PathTask = Annotated[str, Path(pattern=TASK_NAME, max_length=NAME_CHARS_MAX)]
PathSchedule = Annotated[str, Path(pattern=_NAME, max_length=SCHEDULE_CHARS_MAX)]
PathKind = Annotated[str, Path(pattern=_NAME, max_length=KIND_CHARS_MAX)]


@dataclass(slots=True, frozen=True)
class Caller:
    """Who sent a request to which gateway, and under which ids."""

    gateway: Gateway
    principal: Principal
    request: Request
    request_id: str

    def need(self, right: Right, pool: str | None = None) -> None:
        """Raises RefusedRequest unless the caller may."""
        if not self.principal.may(right, pool):
            where = f" in pool {pool}" if pool else ""
            raise refuse("forbidden", f"{self.principal.name} ({self.principal.role}) may not do this{where}")

    def command_id(self) -> str:
        """The command id that was sent, or a new one. Raises RefusedRequest where it is no UUID."""
        sent = self.request.headers.get(COMMAND_HEADER)
        if sent is None:
            return str(uuid.uuid4())
        problem = command_id_problem(sent)
        if problem is not None:
            raise refuse(problem.reason, problem.text, f"/{COMMAND_HEADER}")
        return sent

    def envelope(self, pool: str) -> dict[str, Any]:
        """The fields that all commands of this request share, with a command id."""
        traceparent = self.request.headers.get("traceparent")
        return {
            "id": self.command_id(),
            "pool": pool,
            "actor": self.principal.name,
            "reply_to": self.gateway.name,
            "traceparent": traceparent if traceparent and _TRACEPARENT.match(traceparent) else None,
        }


def _caller(request: Request) -> Caller:
    state = request.scope["state"]
    return Caller(state["gateway"], state["principal"], request, state["request_id"])


Calling = Annotated[Caller, Depends(_caller)]


# ---- reading ----

M = TypeVar("M", bound=Strict)


async def body_of(request: Request, bytes_max: int) -> bytes:
    """The body, which must be JSON by its media type. Raises RefusedRequest: too_large, unsupported_media_type."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > bytes_max:
            # Not read to the end: the connection cannot be used again.
            text = f"the body has more than {bytes_max} bytes"
            raise RefusedRequest(Refusal("too_large", text), headers={"Connection": "close"})
        pieces.append(piece)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        raise refuse("unsupported_media_type", f"the body is {kind or 'of no stated type'}, not application/json")
    return b"".join(pieces)


async def asked(caller: Caller, model: type[M], bytes_max: int | None = None) -> M:
    """The request's body as `model`; no body at all is an empty object. Raises RefusedRequest."""
    most = bytes_max or caller.gateway.settings.payload_max_bytes + ENVELOPE_BYTES
    found = read_model(model, await body_of(caller.request, most) or b"{}")
    if isinstance(found, Refusal):
        raise RefusedRequest(found)
    return found


# ---- answering ----


def json_response(
    value: Any,
    status: int = 200,
    *,
    position: str | None = None,
    command_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """JSON; `position` and `command_id` go into their headers."""
    told = dict(headers or {})
    if position is not None:
        told[POSITION_HEADER] = position
    if command_id is not None:
        told[COMMAND_HEADER] = command_id
    return Response(to_json(value), status, told, "application/json")


def stored_events(items: list[bytes], following: str | None, position: str) -> Response:
    """A page of events, each as it is stored, byte for byte."""
    tail = to_json({"next": following, "position": position})[1:]
    return Response(
        b'{"items":[%b],%b' % (b",".join(items), tail), 200, {POSITION_HEADER: position}, "application/json"
    )


def accepted(answer: Answer, command_id: str) -> dict[str, Any]:
    """What the owner accepted. Raises RefusedRequest with what it refused."""
    if answer.refusal is not None:
        raise RefusedRequest(answer.refusal, command_id)
    return answer.accepted or {}


# ---- documentation ----

BODY_MODELS: Final[list[type[Strict]]] = []


def takes(*models: type[Strict]) -> dict[str, Any]:
    """The documentation of a request body that is one of `models`; they become components of the OpenAPI page."""
    for model in models:
        if model not in BODY_MODELS:
            BODY_MODELS.append(model)
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    schema = references[0] if len(references) == 1 else {"oneOf": references}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}
