"""Who may see or touch one task: by role, because it submitted the task, or because its robot holds it."""

from typing import Any

from robot_gateway.http import Caller
from robot_gateway.problems import refuse


async def may_read(caller: Caller, pool: str, task: str) -> None:
    """Readers read every task of their pools, submitters their own. Raises RefusedRequest."""
    if not caller.principal.may("read", pool):
        await _must_be_own(caller, pool, task)


async def may_read_bodies(caller: Caller, pool: str, task: str) -> None:
    """Payloads, results and checkpoints: not for viewers; for the robots that the task is with."""
    principal = caller.principal
    if principal.may("read_bodies", pool):
        return
    if principal.may("session", pool):
        card = await caller.gateway.reads.card_when_there(pool, task)
        if card is not None and "robot" in card and principal.covers_robot(card["robot"]):
            return
        raise refuse("forbidden", f"task {task} is not with a robot of this token")
    await _must_be_own(caller, pool, task)


def sees_bodies(caller: Caller, pool: str) -> bool:
    """Whether payloads and results are shown to somebody who may read the task: not to viewers."""
    return caller.principal.may("read_bodies", pool) or not caller.principal.may("read", pool)


async def may_cancel(caller: Caller, pool: str, task: str) -> None:
    """Operators cancel every task, submitters their own."""
    if not caller.principal.may("verb", pool):
        await _must_be_own(caller, pool, task)


async def _must_be_own(caller: Caller, pool: str, task: str) -> None:
    principal = caller.principal
    if principal.may("submit", pool):
        card = await caller.gateway.reads.card_when_there(pool, task)
        if card is None:
            raise refuse("no_such_task", f"there is no task {task} in pool {pool}")
        if is_own(caller, card):
            return
    raise refuse("forbidden", f"{principal.name} ({principal.role}) may not do this with task {task}")


def is_own(caller: Caller, card: Any) -> bool:
    """Whether the caller submitted the task."""
    return bool(card.get("actor") == caller.principal.name)
