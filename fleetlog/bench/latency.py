"""How long a task waits for an idle robot: submit to assignment, and submit to the robot's leave to start.

50 submissions a second, spread evenly, onto idle robots. Submitter and robot are two raw connections in one process,
so that one clock measures both ends: from sending the submission to receiving `assign`, and to receiving the ack of
`accept`.
"""

import asyncio
import json
import time
import uuid
from typing import Any, Final

from fleetlog.bench.percentiles import percentile
from fleetlog.bench.product import Product
from robot_gateway.sdk.bare import Connection, connected

RATE_PER_S: Final = 50
SLOTS: Final = 64
POOL: Final = "default"


def measure_latency(product: Product, seconds: float) -> dict[str, Any]:
    """Submits for `seconds`; percentiles in ms."""
    return asyncio.run(_measure(product.url.replace("http", "ws", 1), seconds))


async def _measure(url: str, seconds: float) -> dict[str, Any]:
    sent: dict[str, float] = {}
    robot = BareRobot(sent)
    address = f"{url}/v1/pools/{POOL}/robots/bench/session"
    async with (
        connected(address, "fleetlog.robot.v1") as session,
        connected(f"{url}/v1/submit", "fleetlog.submit.v1") as submit,
    ):
        await robot.begin(session)
        working = asyncio.create_task(robot.work(session))
        draining = asyncio.create_task(drain(submit))
        count = await submit_evenly(submit, sent, RATE_PER_S, seconds)
        while len(robot.started_ms) < count:
            await asyncio.sleep(0.05)
        working.cancel()
        draining.cancel()
    return {
        "rate_per_s": RATE_PER_S,
        "tasks": count,
        "p50_ms": percentile(robot.assigned_ms, 0.5),
        "p99_ms": percentile(robot.assigned_ms, 0.99),
        "start_p50_ms": percentile(robot.started_ms, 0.5),
        "start_p99_ms": percentile(robot.started_ms, 0.99),
    }


async def submit_evenly(submit: Connection, sent: dict[str, float], rate_per_s: float, seconds: float) -> int:
    """Submits one task after another for `seconds`, noting in `sent` when (s); how many there were."""
    count, began = int(seconds * rate_per_s), time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate_per_s - time.perf_counter()))
        task = f"{uuid.uuid4()}"
        sent[task] = time.perf_counter()
        ask = {"type": "submit", "id": task, "pool": POOL, "tasks": [{"id": task, "kind": "nothing"}]}
        await submit.send(json.dumps(ask))
    return count


async def drain(submit: Connection) -> None:
    """Takes in all answers, so that nothing piles up."""
    async for _ in submit:
        pass


class BareRobot:
    """A robot by the bare protocol: accepts everything, completes at once. `sent`: task -> when it was submitted, s."""

    def __init__(self, sent: dict[str, float], slots: int = SLOTS) -> None:
        self._sent = sent
        self._slots = slots
        self._boot = uuid.uuid4().hex[:12]
        self._counter = self._seq = self._epoch = 0
        self._accepting: dict[str, tuple[str, int]] = {}
        self.assigned_ms: list[float] = []
        self.started_ms: list[float] = []

    def _message(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._counter += 1
        message = {"type": kind, "id": f"{self._boot}.{self._counter}", **fields}
        if kind != "hello":
            self._seq += 1
            message |= {"epoch": self._epoch, "seq": self._seq}
        return message

    async def begin(self, session: Connection) -> None:
        """hello, welcome, ready."""
        await session.send(json.dumps(self._message("hello", slots=self._slots, capabilities=[], holding=[])))
        welcome = json.loads(await session.recv())
        self._epoch = welcome["epoch"]
        self._beat_s = welcome["heartbeat_every_ms"] / 1000
        await session.send(json.dumps(self._message("ready", n=self._slots)))
        await session.recv()

    async def work(self, session: Connection) -> None:
        """Takes what comes, and beats."""
        beating = asyncio.create_task(self._beat(session))
        try:
            async for raw in session:
                await self._take(session, json.loads(raw), time.perf_counter())
        finally:
            beating.cancel()

    async def _take(self, session: Connection, message: dict[str, Any], at: float) -> None:
        if message["type"] == "assign":
            task, attempt = message["task"], message["attempt"]
            self.assigned_ms.append(1000 * (at - self._sent[task]))
            accept = self._message("accept", task=task, attempt=attempt)
            self._accepting[accept["id"]] = (task, attempt)
            await session.send(json.dumps(accept))
        elif message["type"] == "ack" and (started := self._accepting.pop(message["of"], None)):
            self.started_ms.append(1000 * (at - self._sent[started[0]]))
            await session.send(json.dumps(self._message("complete", task=started[0], attempt=started[1])))

    async def _beat(self, session: Connection) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            await session.send(json.dumps(self._message("heartbeat", holding=[])))
