"""Lists over all pools: tasks, robots, dead letters, and how many tasks there are."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from robot_gateway.http import Caller, Calling, json_response

router = APIRouter(prefix="/v1", tags=["lists"])

Where = Annotated[
    str,
    Query(
        max_length=2000,
        description="parts joined by and: state=DEAD kind=weld* label.line=3 target=dock-7 older=2h priority>=7",
    ),
]
Sort = Annotated[str | None, Query(max_length=100, description="a field, with a leading - for descending")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=2000, description="the `next` of the page before; holds for an hour")]
After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]


def _need_list(caller: Caller) -> None:
    """Readers see the tasks of their pools, submitters their own."""
    if not caller.principal.may("submit"):
        caller.need("read")


@router.get("/tasks", summary="Tasks")
async def tasks(
    caller: Calling, where: Where = "", sort: Sort = None, limit: Limit = 50, cursor: Cursor = None, after: After = None
) -> Response:
    """Those that match `where`, a page at a time."""
    _need_list(caller)
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.tasks(caller.principal, where, sort, limit, cursor)
    return json_response(page, position=page["position"])


@router.get("/tasks/count", summary="How many tasks")
async def count(caller: Calling, where: Where = "", after: After = None) -> Response:
    """How many tasks match `where`; `complete` is false where the counting ended early."""
    _need_list(caller)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.count(caller.principal, where)
    return json_response(found, position=found["position"])


@router.get("/dead-letters", summary="Tasks that wait for an operator's decision")
async def dead_letters(
    caller: Calling, where: Where = "", sort: Sort = None, limit: Limit = 50, cursor: Cursor = None, after: After = None
) -> Response:
    """Dead letters with the reason they are dead, a page at a time."""
    _need_list(caller)
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.tasks(caller.principal, where, sort, limit, cursor, dead=True)
    return json_response(page, position=page["position"])


@router.get("/robots", summary="Robots")
async def robots(
    caller: Calling, where: Where = "", limit: Limit = 50, cursor: Cursor = None, after: After = None
) -> Response:
    """Those that match `where`, a page at a time."""
    caller.need("read")
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.robots(caller.principal, where, limit, cursor)
    return json_response(page, position=page["position"])
