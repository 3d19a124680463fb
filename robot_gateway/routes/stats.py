"""Figures of a pool over a time."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands.reasons import Refusal
from projections.stats import Stats
from robot_gateway.event_views import now_ms
from robot_gateway.http import Calling, PathName, json_response
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.wire import instant_ms, instant_text, to_http, to_seconds

router = APIRouter(prefix="/v1/pools/{pool}/stats", tags=["pools"])

HOUR_MS = 3_600_000
Moment = Annotated[str | None, Query(max_length=64, description="RFC 3339, with a zone; default: now")]


@router.get("", summary="Throughput, waiting and running times, failures, queue length, use of robots")
async def stats(
    caller: Calling,
    pool: PathName,
    from_: Annotated[
        str | None,
        Query(alias="from", max_length=64, description="RFC 3339, with a zone; default: an hour before `to`"),
    ] = None,
    to: Moment = None,
    step_s: Annotated[int, Query(ge=60, le=7 * 86_400, description="whole minutes")] = 300,
    after: Annotated[str | None, Query(max_length=512, description="a position that the answer must include")] = None,
) -> Response:
    """In whole minutes, as a whole, by kind, step and robot; what is older than a week has left the tables."""
    caller.need("read", pool)
    end = _instant(to, "/to", now_ms())
    start = _instant(from_, "/from", end - HOUR_MS)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.stats(pool, start, end, step_s * 1000)
    if isinstance(found.value, Refusal):
        raise RefusedRequest(found.value)
    seen = await caller.gateway.reads.pool(pool)
    if found.value is None or seen is None:
        raise refuse("no_such_pool", f"there is no pool {pool}")
    now = {name: seen[name] for name in ("tasks", "robots", "oldest_waiting_at") if name in seen}
    shown = {**resource_of(found.value), "now": now, "position": str(found.position)}
    return json_response(shown, position=shown["position"])


def _instant(text: str | None, field: str, otherwise: int) -> int:
    try:
        return otherwise if text is None else instant_ms(text)
    except ValueError as error:
        raise refuse("invalid_field", str(error), field) from None


def resource_of(stats: Stats) -> dict[str, Any]:
    """Figures in HTTP units."""
    return {
        "pool": stats["pool"],
        "from": instant_text(stats["start"]),
        "to": instant_text(stats["end"]),
        "step_s": to_seconds(stats["step_ms"]),
        "total": to_http(stats["total"]),
        "kinds": [to_http(sums) for sums in stats["kinds"]],
        "steps": [to_http(sums) for sums in stats["steps"]],
        "robots_from": instant_text(stats["robots_start"]),
        "robots_to": instant_text(stats["robots_end"]),
        "robots": [to_http(sums) for sums in stats["robots"]],
        "robots_left_out": stats["robots_left_out"],
    }
