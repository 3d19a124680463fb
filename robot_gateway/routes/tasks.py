"""Paths of tasks: submit, and look at one."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from commands import inputs as i
from commands.json_limits import parse_json
from commands.reasons import Refusal
from robot_gateway.http import (
    WAIT_S_MAX,
    Caller,
    Calling,
    PathName,
    PathTask,
    accepted,
    body_of,
    json_response,
    stored_events,
    takes,
)
from robot_gateway.models import TaskIn, TasksIn, model_of
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.routes.asking import perform
from robot_gateway.routes.permits import may_read, may_read_bodies, sees_bodies
from robot_gateway.settings import ENVELOPE_BYTES
from robot_gateway.submissions import Plan, commands_of, entry_of, read_submissions
from robot_gateway.submit import SUBMIT_FRAME_BYTES_MAX

router = APIRouter(prefix="/v1/pools/{pool}/tasks", tags=["tasks"])

WaitS = Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="seconds to wait for the end of the task")]
After = Annotated[str | None, Query(max_length=512, description="a position that the answer must include")]


# ---- submit ----


@router.post("", status_code=201, openapi_extra=takes(TaskIn, TasksIn), summary="Submit one task, or many")
async def submit(caller: Calling, pool: PathName, all_or_none: bool = False, wait_s: WaitS = 0) -> Response:
    """One task: 201 new, 200 known with the same content. Many: 200 with one {status, task | problem} each."""
    caller.need("submit", pool)
    tasks, many = await _tasks_in(caller)
    envelope = caller.envelope(pool)
    command_id, traceparent = envelope["id"], envelope["traceparent"]
    gateway, principal = caller.gateway, caller.principal
    submissions = read_submissions(gateway, principal, pool, command_id, tasks)
    if isinstance(submissions, Refusal):
        raise RefusedRequest(submissions, command_id)
    plan = Plan(many=many, all_or_none=all_or_none and many)
    answers = await gateway.ask_all(commands_of(gateway, principal, pool, command_id, submissions, plan, traceparent))
    if plan.all_or_none or not many:
        accepted(answers[0], command_id)
    entries = [entry for answer in answers for entry in entry_of(answer)]
    position = next((a.position for a in reversed(answers) if a.position is not None), None)
    if many:
        return json_response({"tasks": entries, "position": position}, position=position, command_id=command_id)
    task = entries[0]["task"] | {"position": position}
    if wait_s:
        task = await gateway.reads.task_when_ended(pool, task["id"], wait_s) or task
    return json_response(task, entries[0]["status"], position=task["position"], command_id=command_id)


async def _tasks_in(caller: Caller) -> tuple[list[TaskIn], bool]:
    """The tasks in the body, and whether it is the form for many."""
    raw = await body_of(caller.request, SUBMIT_FRAME_BYTES_MAX)
    value, problem = parse_json(raw)
    if problem is not None:
        raise RefusedRequest(problem)
    many = isinstance(value, dict) and "tasks" in value
    one_max = caller.gateway.settings.payload_max_bytes + ENVELOPE_BYTES
    if not many and len(raw) > one_max:
        raise refuse("too_large", f"one task has at most {one_max} bytes")
    if many:
        found = model_of(TasksIn, value)
        if isinstance(found, Refusal):
            raise RefusedRequest(found)
        return found.tasks, True
    one = model_of(TaskIn, value)
    if isinstance(one, Refusal):
        raise RefusedRequest(one)
    return [one], False


# ---- look ----


@router.get("/{task}", summary="The task as it stands")
async def task_as_it_stands(
    caller: Calling, pool: PathName, task: PathTask, wait_s: WaitS = 0, after: After = None
) -> Response:
    """With `wait_s` it answers when the task has ended, or after that time."""
    reads = caller.gateway.reads
    await reads.reach(after)
    await may_read(caller, pool, task)
    found = await reads.task_when_ended(pool, task, wait_s) if wait_s else await reads.task(pool, task)
    if found is None:
        raise refuse("no_such_task", f"there is no task {task} in pool {pool}")
    return json_response(found, position=found["position"])


@router.get("/{task}/result", summary="What the task came to")
async def result(caller: Calling, pool: PathName, task: PathTask, after: After = None) -> Response:
    """The result as the robot gave it; null where there is none."""
    return await _body(caller, pool, task, "result", after)


@router.get("/{task}/payload", summary="What the task was given")
async def payload(caller: Calling, pool: PathName, task: PathTask, after: After = None) -> Response:
    """The payload as it was submitted; null where there is none. A robot reads that of its own task."""
    return await _body(caller, pool, task, "payload", after)


async def _body(caller: Caller, pool: str, task: str, which: str, after: str | None) -> Response:
    reads = caller.gateway.reads
    await reads.reach(after)
    await may_read_bodies(caller, pool, task)
    value, position = await reads.body(pool, task, which)
    return json_response(value, position=position)


@router.get("/{task}/checkpoints", summary="The newest checkpoints")
async def checkpoints(caller: Calling, pool: PathName, task: PathTask, after: After = None) -> Response:
    """Numbers, attempts and instants; the values are at `/checkpoints/{number}`."""
    reads = caller.gateway.reads
    await reads.reach(after)
    await may_read_bodies(caller, pool, task)
    found = await reads.task(pool, task)
    if found is None:
        raise refuse("no_such_task", f"there is no task {task} in pool {pool}")
    items = found.get("checkpoints", [])
    return json_response({"items": items, "next": None, "position": found["position"]}, position=found["position"])


@router.get("/{task}/checkpoints/{number}", summary="The value of one checkpoint")
async def checkpoint(caller: Calling, pool: PathName, task: PathTask, number: int) -> Response:
    """As the robot saved it."""
    await may_read_bodies(caller, pool, task)
    value, position = await caller.gateway.reads.checkpoint(pool, task, number)
    return json_response(value, position=position)


@router.get("/{task}/history", summary="Every event of the task")
async def history(
    caller: Calling,
    pool: PathName,
    task: PathTask,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Events as stored, oldest first. For viewers without what robots and submitters put in."""
    reads = caller.gateway.reads
    await reads.reach(after)
    await may_read(caller, pool, task)
    return stored_events(*await reads.history(pool, task, limit, cursor, with_bodies=sees_bodies(caller, pool)))


@router.get("/{task}/why", summary="Why the task is where it is")
async def why(caller: Calling, pool: PathName, task: PathTask) -> Response:
    """Asks the owner of the pool: what holds the task, and a sentence."""
    await may_read(caller, pool, task)
    return await perform(caller, pool, i.Explain, i.TaskVerb(task=task))
