"""How many robots one gateway holds: idle sessions connected, tasks for any of them at a steady rate.

Robots and submitter are raw connections in one process, so that one clock measures submission and assignment. The
memory of a session is what the product's processes hold more with all of them than with none.
"""

import asyncio
import resource
import time
from contextlib import AsyncExitStack
from typing import Any, Final

from fleetlog.bench.latency import POOL, BareRobot, drain, submit_evenly
from fleetlog.bench.percentiles import percentile
from fleetlog.bench.product import BenchProblem, ProductProcess
from robot_gateway.sdk.bare import Connection, connected

AT_ONCE: Final = 32
"""How many robots connect at the same time."""
SPARE_FILES: Final = 64


def measure_robots(
    product: ProductProcess, robots: int, window_s: float, rate_per_s: float, seconds: float
) -> dict[str, Any]:
    """Connects the robots, then submits for `seconds`; ms from submission to `assign`, bytes a session."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if robots + SPARE_FILES > most:
        raise BenchProblem(f"{robots} robots need as many open files, {most} are allowed: raise `ulimit -n`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return asyncio.run(_measure(product, robots, window_s, rate_per_s, seconds))


async def _measure(
    product: ProductProcess, robots: int, window_s: float, rate_per_s: float, seconds: float
) -> dict[str, Any]:
    url = product.url.replace("http", "ws", 1)
    sent: dict[str, float] = {}
    crew = [BareRobot(sent, slots=1) for _ in range(robots)]
    before = product.memory_bytes()
    async with AsyncExitStack() as connections:
        began = time.perf_counter()
        sessions = await _connect(connections, url, crew)
        connected_s = time.perf_counter() - began
        working = [asyncio.create_task(one.work(session)) for one, session in zip(crew, sessions, strict=True)]
        await asyncio.sleep(2 * window_s)  # so that all have beaten, and what connecting left behind is gone
        session_bytes = (product.memory_bytes() - before) / robots
        submit = await connections.enter_async_context(connected(f"{url}/v1/submit", "fleetlog.submit.v1"))
        draining = asyncio.create_task(drain(submit))
        count = await submit_evenly(submit, sent, rate_per_s, seconds)
        while sum(len(one.started_ms) for one in crew) < count:
            await asyncio.sleep(0.1)
        for task in (*working, draining):
            task.cancel()
    waited_ms = [ms for one in crew for ms in one.assigned_ms]
    return {
        "robots": robots,
        "connected_s": round(connected_s, 1),
        "rate_per_s": rate_per_s,
        "tasks": count,
        "p50_ms": percentile(waited_ms, 0.5),
        "p99_ms": percentile(waited_ms, 0.99),
        "bytes_per_session": round(session_bytes),
    }


async def _connect(connections: AsyncExitStack, url: str, crew: list[BareRobot]) -> list[Connection]:
    """A session of each robot, in their order."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def enter(number: int) -> Connection:
        async with gate:
            address = f"{url}/v1/pools/{POOL}/robots/bench-{number}/session"
            session = await connections.enter_async_context(connected(address, "fleetlog.robot.v1"))
            await crew[number].begin(session)
            return session

    return await asyncio.gather(*(enter(number) for number in range(len(crew))))
