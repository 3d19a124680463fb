"""Limits of a pool: how many of a kind or limit key run at once, how many begin in a time."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands import inputs as i
from commands.vocabulary import LimitScope
from robot_gateway.http import Calling, PathName, asked, json_response, takes
from robot_gateway.models import LimitIn
from robot_gateway.routes.asking import perform

router = APIRouter(prefix="/v1/pools/{pool}/limits", tags=["pools"])

After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]


@router.get("", summary="Limits of a pool")
async def limits(caller: Calling, pool: PathName, after: After = None) -> Response:
    """All of them (at most 1,000), each with `held`: how many of its tasks are ASSIGNED, RUNNING or LOST."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.limits(pool)
    return json_response(page, position=page["position"])


@router.put("/{scope}/{name}", openapi_extra=takes(LimitIn), summary="Limit a kind or limit key")
async def set_limit(caller: Calling, pool: PathName, scope: LimitScope, name: PathName) -> Response:
    """Sets the limit or replaces it; what runs goes on. A rate that is set begins with its whole burst."""
    caller.need("verb", pool)
    body = await asked(caller, LimitIn)
    return await perform(caller, pool, i.SetLimit, i.LimitBody(scope=scope, name=name, **body.model_dump()))


@router.delete("/{scope}/{name}", summary="Remove a limit")
async def remove(caller: Calling, pool: PathName, scope: LimitScope, name: PathName) -> Response:
    """What waited for it goes on at once."""
    caller.need("verb", pool)
    return await perform(caller, pool, i.RemoveLimit, i.LimitVerb(scope=scope, name=name))
