"""`ctx.sleep` in real time: as long as asked, or until the handler should end."""

import asyncio
import threading
from typing import Any

from commands.messages import Assign
from robot_gateway.sdk import AsyncTaskContext, TaskContext
from tests.support.fleet import CEILING_S

ASSIGN = Assign(
    task="t1", attempt=1, kind="weld", payload=None, idempotency_key="k", assignment_id="i",
    lease_ms=15_000, accept_within_ms=5_000, slot_cost=1, failures=0, lost=0,
)  # fmt: skip


def test_a_function_sleeps_until_it_should_end() -> None:
    """False after the whole time; True at once when it is told, before or meanwhile."""
    nowhere: Any = None
    context = TaskContext(ASSIGN, nowhere)
    assert context.sleep(0.001) is False
    teller = threading.Timer(0.01, lambda: context.tell("cancel"))
    teller.start()
    assert context.sleep(CEILING_S) is True
    assert context.sleep(CEILING_S) is True
    teller.join()


def test_a_coroutine_sleeps_until_it_should_end() -> None:
    """The same in an event loop."""

    async def handler() -> list[bool]:
        nowhere: Any = None
        context = AsyncTaskContext(ASSIGN, nowhere)
        first = await context.sleep(0.001)
        asyncio.get_running_loop().call_later(0.01, context.tell, "stop")
        return [first, await context.sleep(CEILING_S), await context.sleep(CEILING_S)]

    assert asyncio.run(handler()) == [False, True, True]
