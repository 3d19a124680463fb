"""Verbs on one task."""

from fastapi import APIRouter
from pydantic_core import to_json
from starlette.responses import Response

from commands import inputs as i
from robot_gateway.http import Calling, PathName, PathTask, asked, takes
from robot_gateway.models import PatchIn, PauseIn, ReasonIn, RedriveIn, ReleaseIn, ResolveIn
from robot_gateway.problems import refuse
from robot_gateway.routes.asking import pause_scope, perform, resume_scope, task_verb
from robot_gateway.routes.permits import may_cancel

router = APIRouter(prefix="/v1/pools/{pool}/tasks/{task}", tags=["tasks"])


@router.patch("", openapi_extra=takes(PatchIn), summary="Change a waiting task")
async def change(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """Priority, requirement, prefer, slot cost, deadlines, not-before, labels."""
    caller.need("verb", pool)
    body = await asked(caller, PatchIn)
    changed = i.ChangeBody(task=task, reason=body.reason, changed=body.in_log())
    return await perform(caller, pool, i.ChangeTask, changed)


@router.post("/cancel", openapi_extra=takes(ReasonIn), summary="Nobody wants the task any more")
async def cancel(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """At once where it does not run; a robot that runs it is told, and may still complete it."""
    await may_cancel(caller, pool, task)
    return await task_verb(caller, pool, task, i.CancelTask)


@router.post("/redrive", openapi_extra=takes(RedriveIn), summary="Put a dead letter back")
async def redrive(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """Its counters begin at 0 again; fields may be changed on the way."""
    caller.need("verb", pool)
    body = await asked(caller, RedriveIn)
    changed = body.changed.in_log() if body.changed else None
    return await perform(caller, pool, i.RedriveTask, i.RedriveBody(task=task, reason=body.reason, changed=changed))


@router.post("/discard", openapi_extra=takes(ReasonIn), summary="Give a dead letter up")
async def discard(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """A reason is required; it is recorded."""
    caller.need("verb", pool)
    return await task_verb(caller, pool, task, i.DiscardTask)


@router.post("/release", openapi_extra=takes(ReleaseIn), summary="End the lease of a task")
async def release(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """A reason is required. Slot and target stay held until the robot has surely stopped, unless forced."""
    caller.need("verb", pool)
    body = await asked(caller, ReleaseIn)
    said = i.ReleaseBody(task=task, reason=body.reason, force=body.force)
    return await perform(caller, pool, i.ReleaseTask, said)


@router.post("/resolve", openapi_extra=takes(ResolveIn), summary="Say that a LOST or DEAD task is done")
async def resolve(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """A reason is required; a result may be given."""
    caller.need("verb", pool)
    body = await asked(caller, ResolveIn)
    if len(to_json(body.result)) > caller.gateway.settings.payload_max_bytes:
        raise refuse("too_large", "a result is no larger than a payload may be", "/result")
    result = None if body.result is None else {"json": body.result}
    return await perform(caller, pool, i.ResolveTask, i.ResolveBody(task=task, reason=body.reason, result=result))


@router.post("/pause", openapi_extra=takes(PauseIn), summary="Do not assign the task")
async def pause(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """Until resumed, or until an instant."""
    return await pause_scope(caller, pool, "task", task)


@router.post("/resume", openapi_extra=takes(ReasonIn), summary="Assign the task again")
async def resume(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """The reverse of pause."""
    return await resume_scope(caller, pool, "task", task)
