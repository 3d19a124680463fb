"""Bulk work: a verb on all tasks that a filter finds."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from robot_gateway.bulk_verbs import asked_problem
from robot_gateway.http import Caller, Calling, asked, json_response, takes
from robot_gateway.models import BulkIn
from robot_gateway.problems import RefusedRequest

router = APIRouter(prefix="/v1/bulk", tags=["bulk"])

After = Annotated[str | None, Query(max_length=512, description="a position that the dry run must include")]


def _may(caller: Caller, request: BulkIn) -> None:
    """Operators use every verb, submitters cancel what they submitted."""
    if request.verb != "cancel" or not caller.principal.may("submit", request.pool):
        caller.need("verb", request.pool)


@router.post("", openapi_extra=takes(BulkIn), summary="A verb on all tasks that a filter finds")
async def bulk(caller: Calling, after: After = None) -> Response:
    """With `dry_run` 200: count, ten examples and a token. With that token 202: the work, which goes on by itself."""
    request = await asked(caller, BulkIn)
    _may(caller, request)
    problem = asked_problem(request)
    if problem is not None:
        raise RefusedRequest(problem)
    if request.dry_run:
        await caller.gateway.reads.reach(after)
        found = await caller.gateway.bulk.select(request, caller.principal)
        return json_response(found, position=found["position"])
    work = await caller.gateway.bulk.act(request, caller.principal)
    return json_response(work, 202, position=work["position"], headers={"Location": f"/v1/bulk/{work['id']}"})


@router.get("/{token}", summary="How far bulk work is")
async def look(caller: Calling, token: str) -> Response:
    """Counts by what came of the tasks, and the first refusals."""
    work = await caller.gateway.bulk.look(token, caller.principal)
    return json_response(work, position=work["position"])


@router.post("/{token}/cancel", summary="Send no further batch")
async def cancel(caller: Calling, token: str) -> Response:
    """What was done stays done; what is on its way is decided."""
    work = await caller.gateway.bulk.end(token, caller.principal)
    return json_response(work, position=work["position"])
