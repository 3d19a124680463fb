"""The clock that the log goes by: an operator accepts a step of the wall clock that is not followed by itself."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from commands import inputs as i
from commands.reasons import Refusal
from robot_gateway.http import Calling, asked, json_response, takes
from robot_gateway.models import ReasonIn
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import ask_partitions, need_everywhere
from robot_gateway.submissions import resource_of

router = APIRouter(prefix="/v1/clock", tags=["system"])


@router.post("/accept", openapi_extra=takes(ReasonIn), summary="Follow a step of the wall clock")
async def accept(caller: Calling) -> Response:
    """In every partition whose owner distrusts the clock; a reason is required. Refused where all of them trust it.

    Needs a token for all pools: one partition holds many.
    """
    need_everywhere(caller)
    body = await asked(caller, ReasonIn)
    if body.reason is None:
        raise refuse("reason_required", "say why; it is recorded", "/reason")
    command_id, answers = await ask_partitions(caller, i.AcceptClock, i.ReasonBody(reason=body.reason))
    refused = [answer.refusal for answer in answers if answer.refusal is not None]
    other = next((refusal for refusal in refused if refusal.reason != "clock_trusted"), None)
    if other is not None or len(refused) == len(answers):
        raise RefusedRequest(other or _trusted(refused), command_id)
    said: list[dict[str, Any]] = [
        {"partition": p, **resource_of(answer.pool, answer.accepted or {})}
        for p, answer in enumerate(answers)
        if answer.refusal is None
    ]
    return json_response({"partitions": said}, command_id=command_id)


def _trusted(refused: list[Refusal]) -> Refusal:
    return refused[0] if refused else Refusal("clock_trusted", "there is no clock to accept")
