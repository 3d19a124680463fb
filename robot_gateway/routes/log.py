"""The log as a whole: its format is raised when every process is new enough."""

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from commands import inputs as i
from robot_gateway.http import Calling, asked, json_response, takes
from robot_gateway.models import RaiseFormatIn
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import ask_partitions, need_everywhere
from streams import log_format
from streams.port import LogMisconfigured

router = APIRouter(prefix="/v1/log", tags=["system"])


@router.post("/raise-format", openapi_extra=takes(RaiseFormatIn), summary="Raise the log's format")
async def raise_format(caller: Calling) -> Response:
    """The log first, then each pool; never lowered, and older software stops at it: upgrade every process before.

    Asked again, it raises pools that were left behind. `dry_run` says what would be done. Needs a token for all pools.
    """
    need_everywhere(caller)
    body = await asked(caller, RaiseFormatIn)
    log = caller.gateway.log
    before, to = log.format, body.to_format or log_format.newest()
    try:
        log_format.check_raise(before, to)
        if not body.dry_run:
            await asyncio.to_thread(log.raise_format, to)
    except LogMisconfigured as fault:
        raise refuse("invalid_field", str(fault), "/to_format") from None
    said = {"log_id": log.log_id, "from_format": before, "to_format": to}
    if body.dry_run:
        return json_response(said | {"changed": False})
    command_id, answers = await ask_partitions(caller, i.RaiseFormat, i.FormatBody(to_format=to))
    refusal = next((answer.refusal for answer in answers if answer.refusal is not None), None)
    if refusal is not None:
        raise RefusedRequest(refusal, command_id)
    return json_response(said | {"changed": to > before}, command_id=command_id)
