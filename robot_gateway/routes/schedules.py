"""Schedules of a pool: tasks that are submitted again and again, by an interval or a cron pattern."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands import inputs as i
from commands.reasons import Refusal
from robot_gateway.http import Caller, Calling, PathName, PathSchedule, asked, json_response, takes
from robot_gateway.models import ReasonIn, ScheduleIn, schedule_of
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import perform
from robot_gateway.routes.permits import sees_bodies
from robot_gateway.wire import field_outside, instant_ms

router = APIRouter(prefix="/v1/pools/{pool}/schedules", tags=["schedules"])

NEXT_MAX: Final = 100
After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=2000)]


@router.get("", summary="Schedules of a pool")
async def schedules(
    caller: Calling, pool: PathName, limit: Limit = 50, cursor: Cursor = None, after: After = None
) -> Response:
    """By name, each with its next firing, what fired last and what was skipped."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    page = await caller.gateway.reads.schedules(pool, limit, cursor, with_bodies=sees_bodies(caller, pool))
    return json_response(page, position=page["position"])


@router.get("/{schedule}", summary="One schedule")
async def schedule(caller: Calling, pool: PathName, schedule: PathSchedule, after: After = None) -> Response:
    """As it was set, its next firing, what fired last and what was skipped."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.schedule(pool, schedule, with_bodies=sees_bodies(caller, pool))
    return json_response(found, position=found["position"])


@router.get("/{schedule}/next", summary="When a schedule fires next")
async def following(
    caller: Calling,
    pool: PathName,
    schedule: PathSchedule,
    count: Annotated[int, Query(ge=1, le=NEXT_MAX)] = 10,
    since: Annotated[str | None, Query(max_length=64, description="later than this instant; default: now")] = None,
    after: After = None,
) -> Response:
    """The next instants in UTC and by the clocks of the schedule's zone, and when each is due with its jitter."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    try:
        since_ms = None if since is None else instant_ms(since)
    except ValueError:
        raise refuse("invalid_field", "an instant is written like 2026-11-30T09:15:00Z", "/since") from None
    found = await caller.gateway.reads.next_firings(pool, schedule, count, since_ms)
    return json_response(found, position=found["position"])


@router.put("/{schedule}", openapi_extra=takes(ScheduleIn), summary="Set a schedule")
async def set_schedule(caller: Calling, pool: PathName, schedule: PathSchedule) -> Response:
    """Creates it or replaces it, from its next instant on; a pause goes on. The same again: `changed: false`."""
    caller.need("verb", pool)
    body = schedule_of(await asked(caller, ScheduleIn), schedule)
    if isinstance(body, Refusal):
        raise RefusedRequest(Refusal(body.reason, body.text, field_outside(body.field), body.retry_after_ms))
    return await perform(caller, pool, i.SetSchedule, body, create=caller.gateway.access.pools_are_made_on_first_use)


@router.delete("/{schedule}", openapi_extra=takes(ReasonIn), summary="Remove a schedule")
async def remove(caller: Calling, pool: PathName, schedule: PathSchedule) -> Response:
    """The tasks that it submitted go on."""
    return await _verb(caller, pool, schedule, i.DeleteSchedule)


@router.post("/{schedule}/pause", openapi_extra=takes(ReasonIn), summary="Let a schedule fire nothing")
async def pause(caller: Calling, pool: PathName, schedule: PathSchedule) -> Response:
    """Until resumed; the instants that pass are counted as skipped."""
    return await _verb(caller, pool, schedule, i.PauseSchedule)


@router.post("/{schedule}/resume", openapi_extra=takes(ReasonIn), summary="Let a schedule fire again")
async def resume(caller: Calling, pool: PathName, schedule: PathSchedule) -> Response:
    """From its next instant on."""
    return await _verb(caller, pool, schedule, i.ResumeSchedule)


@router.post("/{schedule}/fire", openapi_extra=takes(ReasonIn), summary="Submit a schedule's task now")
async def fire(caller: Calling, pool: PathName, schedule: PathSchedule) -> Response:
    """Beside its instants. Refused `wrong_state` while a firing is open, unless its overlap is `allow`."""
    return await _verb(caller, pool, schedule, i.FireSchedule)


async def _verb(
    caller: Caller,
    pool: str,
    schedule: str,
    shape: type[i.PauseSchedule] | type[i.ResumeSchedule] | type[i.DeleteSchedule] | type[i.FireSchedule],
) -> Response:
    caller.need("verb", pool)
    body = await asked(caller, ReasonIn)
    return await perform(caller, pool, shape, i.ScheduleVerb(schedule=schedule, reason=body.reason))
