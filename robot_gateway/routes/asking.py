"""What the verbs share: one command to the owner, its answer to the caller."""

from typing import Any

from starlette.responses import Response

from commands import inputs as i
from commands.vocabulary import PauseScope
from robot_gateway.http import Caller, accepted, asked, json_response
from robot_gateway.models import PauseIn, ReasonIn
from robot_gateway.pending import Answer
from robot_gateway.problems import refuse
from robot_gateway.submissions import resource_of


async def perform(
    caller: Caller, pool: str, shape: type[Any], body: Any, *, create: bool = False, status: int = 200
) -> Response:
    """Sends the command `shape(body)` and answers with what the owner says and how far that is true."""
    envelope = caller.envelope(pool)
    answer = await caller.gateway.ask(shape(body=body, create=create, **envelope))
    said = resource_of(answer.pool, accepted(answer, envelope["id"])) | {"position": answer.position}
    found = status if said.get("changed", True) else 200
    return json_response(said, found, position=answer.position, command_id=envelope["id"])


def need_everywhere(caller: Caller) -> None:
    """Raises RefusedRequest unless the caller may do this for all pools: one partition holds many."""
    if not (caller.principal.may("verb") and caller.principal.everywhere):
        raise refuse("forbidden", f"{caller.principal.name} ({caller.principal.role}) may not do this for all pools")


async def ask_partitions(caller: Caller, shape: type[Any], body: Any) -> tuple[str, list[Answer]]:
    """Sends the command to the owner of each partition, by its reserved pool; the command id and their answers."""
    envelope = caller.envelope("")
    partitions = range(caller.gateway.log.partitions)
    commands = [shape(**envelope | {"pool": f"_log-{partition}"}, body=body) for partition in partitions]
    return envelope["id"], await caller.gateway.ask_all(commands)


async def task_verb(caller: Caller, pool: str, task: str, shape: type[Any]) -> Response:
    """A verb on a task that takes a reason and nothing else."""
    body = await asked(caller, ReasonIn)
    return await perform(caller, pool, shape, i.TaskVerb(task=task, reason=body.reason))


async def robot_verb(caller: Caller, pool: str, robot: str, shape: type[Any]) -> Response:
    """A verb on a robot."""
    caller.need("verb", pool)
    body = await asked(caller, ReasonIn)
    return await perform(caller, pool, shape, i.RobotVerb(robot=robot, reason=body.reason))


async def pause_scope(caller: Caller, pool: str, scope: PauseScope, name: str | None = None) -> Response:
    """Pauses a pool, target, kind or task."""
    caller.need("verb", pool)
    body = await asked(caller, PauseIn)
    said = i.ScopeBody(scope=scope, name=name, until=body.until, reason=body.reason)
    return await perform(caller, pool, i.Pause, said)


async def resume_scope(caller: Caller, pool: str, scope: PauseScope, name: str | None = None) -> Response:
    """Resumes a pool, target, kind or task."""
    caller.need("verb", pool)
    body = await asked(caller, ReasonIn)
    return await perform(caller, pool, i.Resume, i.ScopeBody(scope=scope, name=name, reason=body.reason))
