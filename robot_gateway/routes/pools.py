"""Pools, and what can be paused in them: the pool itself, targets, kinds."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands import inputs as i
from commands.reasons import Refusal
from robot_gateway.http import Caller, Calling, PathKind, PathName, asked, json_response, takes
from robot_gateway.models import PauseIn, PoolIn, ReasonIn, SettingsIn
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import pause_scope, perform, resume_scope
from robot_gateway.settings import pool_problem
from robot_gateway.wire import setting_outside, settings_in

router = APIRouter(prefix="/v1/pools", tags=["pools"])

After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=2000)]


@router.get("", summary="All pools")
async def pools(caller: Calling, limit: Limit = 50, cursor: Cursor = None, after: After = None) -> Response:
    """Those of the caller's token, with what waits and runs in each."""
    caller.need("read")
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.pools(caller.principal, limit, cursor)
    return json_response(page, position=page["position"])


@router.post("", status_code=201, openapi_extra=takes(PoolIn), summary="Create a pool")
async def create(caller: Calling) -> Response:
    """201 where it is new; one that exists stays as it is (200, `changed: false`)."""
    body = await asked(caller, PoolIn)
    caller.need("verb", body.pool)
    settings = _settings(caller, body.settings)
    said = i.SettingsBody(settings=settings, reason=body.reason)
    return await _perform_on_settings(caller, body.pool, i.CreatePool, said, 201)


@router.get("/{pool}", summary="One pool with its settings")
async def pool(caller: Calling, pool: PathName, after: After = None) -> Response:
    """Settings, what waits and runs, who owns it, whether it is paused or frozen."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.pool(pool)
    if found is None:
        raise refuse("no_such_pool", f"there is no pool {pool}")
    return json_response(found, position=found["position"])


@router.patch("/{pool}", openapi_extra=takes(SettingsIn), summary="Change settings of a pool")
async def configure(caller: Calling, pool: PathName) -> Response:
    """A new window length holds from the next whole minute."""
    caller.need("verb", pool)
    body = await asked(caller, SettingsIn)
    said = i.SettingsBody(settings=_settings(caller, body.settings), reason=body.reason)
    return await _perform_on_settings(caller, pool, i.ConfigurePool, said, 200)


@router.post("/{pool}/pause", openapi_extra=takes(PauseIn), summary="Assign nothing in the pool")
async def pause(caller: Calling, pool: PathName) -> Response:
    """Until resumed, or until an instant. What runs goes on."""
    return await pause_scope(caller, pool, "pool")


@router.post("/{pool}/resume", openapi_extra=takes(ReasonIn), summary="Assign again")
async def resume(caller: Calling, pool: PathName) -> Response:
    """The reverse of pause."""
    return await resume_scope(caller, pool, "pool")


@router.post("/{pool}/unfreeze", openapi_extra=takes(ReasonIn), summary="Let a frozen pool go on")
async def unfreeze(caller: Calling, pool: PathName) -> Response:
    """After a fault of dispatch or of time; a reason is required."""
    caller.need("verb", pool)
    body = await asked(caller, ReasonIn)
    return await perform(caller, pool, i.UnfreezePool, i.ReasonBody(reason=body.reason or ""))


# ---- targets and kinds ----


@router.get("/{pool}/targets", summary="Targets that have open tasks, are held or paused")
async def targets(
    caller: Calling, pool: PathName, limit: Limit = 50, cursor: Cursor = None, after: After = None
) -> Response:
    """What waits for each target, and which task holds it."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.targets(pool, limit, cursor)
    return json_response(page, position=page["position"])


@router.get("/{pool}/targets/{target}", summary="One target")
async def target(caller: Calling, pool: PathName, target: PathName, after: After = None) -> Response:
    """What waits for it, and which task holds it."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.target(pool, target)
    if found is None:
        raise refuse("no_such_target", f"there is no target {target} with open tasks in pool {pool}")
    return json_response(found, position=found["position"])


@router.post("/{pool}/targets/{target}/pause", openapi_extra=takes(PauseIn), summary="Assign nothing of the target")
async def pause_target(caller: Calling, pool: PathName, target: PathName) -> Response:
    """Until resumed, or until an instant."""
    return await pause_scope(caller, pool, "target", target)


@router.post("/{pool}/targets/{target}/resume", openapi_extra=takes(ReasonIn), summary="Assign the target again")
async def resume_target(caller: Calling, pool: PathName, target: PathName) -> Response:
    """The reverse of pause."""
    return await resume_scope(caller, pool, "target", target)


@router.post("/{pool}/kinds/{kind}/pause", openapi_extra=takes(PauseIn), summary="Assign nothing of the kind")
async def pause_kind(caller: Calling, pool: PathName, kind: PathKind) -> Response:
    """Until resumed, or until an instant."""
    return await pause_scope(caller, pool, "kind", kind)


@router.post("/{pool}/kinds/{kind}/resume", openapi_extra=takes(ReasonIn), summary="Assign the kind again")
async def resume_kind(caller: Calling, pool: PathName, kind: PathKind) -> Response:
    """The reverse of pause."""
    return await resume_scope(caller, pool, "kind", kind)


# ---- settings ----


def _settings(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    """In log units. Raises RefusedRequest where this gateway could not serve such a pool."""
    settings = settings_in(said)
    window_ms, accept_ms = (settings.get(name) for name in ("window_ms", "accept_ms"))
    problem = pool_problem(
        caller.gateway.settings,
        window_ms if isinstance(window_ms, int) else None,
        accept_ms if isinstance(accept_ms, int) else None,
    )
    if problem is not None:
        raise refuse("impossible_settings", problem, "/settings")
    return settings


async def _perform_on_settings(
    caller: Caller, pool: str, shape: type[Any], body: i.SettingsBody, status: int
) -> Response:
    """A refusal speaks of settings by their names in the log; outside they have others."""
    try:
        return await perform(caller, pool, shape, body, status=status)
    except RefusedRequest as refused:
        refusal = refused.refusal
        head, _, name = (refusal.field or "").rpartition("/")
        if head != "/settings":
            raise
        outside = setting_outside(name)
        text = refusal.text.replace(name, outside)
        raise RefusedRequest(Refusal(refusal.reason, text, f"/settings/{outside}"), refused.command_id) from None
