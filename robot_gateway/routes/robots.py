"""Robots: one robot, verbs on it, and its session by long polling."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands import inputs as i
from commands.messages import PROTOCOL
from commands.reasons import Refusal
from robot_gateway.http import Calling, PathName, body_of, json_response, takes
from robot_gateway.models import PollIn, ReasonIn
from robot_gateway.polling import POLL_BYTES_MAX, read_poll
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import robot_verb

router = APIRouter(prefix="/v1/pools/{pool}/robots/{robot}", tags=["robots"])

After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]


@router.get("", summary="One robot")
async def robot(caller: Calling, pool: PathName, robot: PathName, after: After = None) -> Response:
    """Its state, capabilities, slots, and the attempts it holds."""
    caller.need("read", pool)
    await caller.gateway.reads.reach(after)
    found = await caller.gateway.reads.robot(pool, robot)
    if found is None:
        raise refuse("no_such_robot", f"there is no robot {robot} in pool {pool}")
    return json_response(found, position=found["position"])


@router.post("/drain", openapi_extra=takes(ReasonIn), summary="Give the robot nothing new")
async def drain(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """What it holds goes on."""
    return await robot_verb(caller, pool, robot, i.DrainRobot)


@router.post("/undrain", openapi_extra=takes(ReasonIn), summary="Give the robot work again")
async def undrain(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """The reverse of drain."""
    return await robot_verb(caller, pool, robot, i.UndrainRobot)


@router.post("/clear", openapi_extra=takes(ReasonIn), summary="Take the robot out of ERROR")
async def clear(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """By an operator's word, whatever put it there."""
    return await robot_verb(caller, pool, robot, i.ClearRobot)


@router.post("/retire", openapi_extra=takes(ReasonIn), summary="Forget the robot")
async def retire(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """A reason is required; it must hold nothing that runs. A later hello registers it anew."""
    return await robot_verb(caller, pool, robot, i.RetireRobot)


@router.get("/session", summary="A robot's session (WebSocket)")
async def session(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """Upgrade to a WebSocket with the subprotocol fleetlog.robot.v1; see the robot protocol."""
    raise refuse("protocol_version", f"this is a WebSocket: ask for an upgrade with the subprotocol {PROTOCOL}")


@router.post("/poll", openapi_extra=takes(PollIn), summary="A robot's session by long polling")
async def poll(caller: Calling, pool: PathName, robot: PathName) -> Response:
    """Says messages of the robot, and gets those for it; see the robot protocol."""
    read = read_poll(await body_of(caller.request, POLL_BYTES_MAX))
    if isinstance(read, Refusal):
        raise RefusedRequest(read)
    answer = await caller.gateway.polling.poll(caller.principal, pool, robot, read)
    if isinstance(answer, Refusal):
        raise RefusedRequest(answer)
    return Response(answer, media_type="application/json")
