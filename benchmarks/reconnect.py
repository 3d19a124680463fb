"""A whole fleet says hello in a minute, each robot takes a task, and half of it reconnects at once (R8).

    fleetlog up --set pool.window_s=20 --set pool.lease_s=60
    python -m benchmarks.reconnect --gateway http://127.0.0.1:8780 --robots 10000

All robots are served, and nobody's lease is lost by it: the gateway is asked for every `LeaseExpired` of the pool
afterwards. The robots live in this process, so it needs a file descriptor for each (`ulimit -n`).
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL

AT_ONCE: Final = 1_000
ANSWER_S: Final = 120.0
RECONNECT_FIRST_S: Final = 0.5
RECONNECT_MAX_S: Final = 30.0
Message = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Result:
    """What happened. `hello_s`, `reconnect_s`: until the last robot had its welcome; `worst`: how long one waited.

    `stopped`: how often a robot was told to stop what it held.
    """

    robots: int
    hello_s: float
    hello_worst_s: float
    reconnected: int
    reconnect_s: float
    reconnect_worst_s: float
    refused_handshakes: int
    stopped: int
    leases_expired: int
    completed: int


class Member:
    """One robot of the fleet: it reconnects as the protocol says, beats, and works on its task until it may end."""

    def __init__(self, fleet: "Fleet", number: int) -> None:
        self.fleet, self.name = fleet, f"r{number}"
        self.boot = uuid.uuid4().hex[:12]
        self.held: list[tuple[str, int]] = []
        self.welcomed = 0
        self.waited_s: list[float] = []
        self._ids = itertools.count(1)
        self._epoch = self._seq = 0
        self._connection: ClientConnection | None = None
        self._until = 0.0
        self._beat_every_s = 1.0

    async def live(self, after_s: float) -> None:
        """From its first hello until the fleet ends."""
        await asyncio.sleep(after_s)
        began, tries = time.monotonic(), 0
        while not self.fleet.over.is_set():
            welcomed = self.welcomed
            try:
                async with connect(
                    f"{self.fleet.url.replace('http', 'ws', 1)}/v1/pools/{self.fleet.pool}/robots/{self.name}/session",
                    subprotocols=[Subprotocol(PROTOCOL)],
                    compression=None,
                    open_timeout=ANSWER_S,
                    ping_interval=None,
                ) as self._connection:
                    await self._session(self._connection, began)
            except (WebSocketException, OSError, TimeoutError) as failure:
                self.fleet.refused += isinstance(failure, InvalidHandshake)
            if self.welcomed > welcomed:
                began, tries = time.monotonic(), -1
            tries += 1
            await asyncio.sleep(random.uniform(0, min(RECONNECT_MAX_S, RECONNECT_FIRST_S * 2**tries)))

    async def drop(self) -> None:
        """The connection is gone, without a word."""
        if self._connection is not None:
            self._connection.transport.abort()

    async def _session(self, connection: ClientConnection, began: float) -> None:
        holding = [{"task": task, "attempt": attempt, "started": True} for task, attempt in self.held]
        await self._send(connection, "hello", slots=1, capabilities=[], holding=holding)
        while (message := json.loads(await connection.recv()))["type"] != "welcome":
            continue
        self._epoch, self._seq = message["epoch"], 0
        self._beat_every_s = message["heartbeat_every_ms"] / 1_000
        self.welcomed += 1
        self.waited_s.append(time.monotonic() - began)
        await self._send(connection, "ready", n=1)
        self._until = time.monotonic() + self._beat_every_s * random.random()
        while not self.fleet.over.is_set():
            try:
                async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                    await self._heard(connection, json.loads(await connection.recv()))
            except TimeoutError:
                await self._beat(connection)

    async def _heard(self, connection: ClientConnection, message: Message) -> None:
        if message["type"] == "assign":
            self.held = [(message["task"], message["attempt"])]
            await self._send(connection, "accept", task=message["task"], attempt=message["attempt"])
        elif message["type"] == "stop":
            self.fleet.stopped += 1

    async def _beat(self, connection: ClientConnection) -> None:
        self._until = time.monotonic() + self._beat_every_s
        holding = [{"task": task, "attempt": attempt} for task, attempt in self.held]
        await self._send(connection, "heartbeat", holding=holding)
        if self.fleet.ending.is_set() and self.held:
            [(task, attempt)] = self.held
            self.held = []
            await self._send(connection, "complete", task=task, attempt=attempt, result=None)

    async def _send(self, connection: ClientConnection, kind: str, **fields: Any) -> None:
        message: Message = {"type": kind, "id": f"{self.boot}.{next(self._ids)}", **fields}
        if kind != "hello":
            self._seq += 1
            message |= {"epoch": self._epoch, "seq": self._seq}
        await connection.send(json.dumps(message))


class Fleet:
    """All robots, and what is counted of them."""

    def __init__(self, url: str, pool: str, robots: int) -> None:
        self.url, self.pool = url, pool
        self.members = [Member(self, number) for number in range(robots)]
        self.refused = self.stopped = 0
        self.ending, self.over = asyncio.Event(), asyncio.Event()
        self._http = httpx.AsyncClient(base_url=url, timeout=ANSWER_S)

    async def storm(self, within_s: float, stay_s: float) -> Result:
        """Hellos over `within_s`, a task each, half of the robots dropped at once, and `stay_s` more to lose leases."""
        await self._submit()
        spread = [within_s * number / len(self.members) for number in range(len(self.members))]
        lives = [
            asyncio.create_task(member.live(after_s)) for member, after_s in zip(self.members, spread, strict=True)
        ]
        began = time.monotonic()
        await self._until(lambda: all(member.welcomed for member in self.members), "every hello is answered")
        hello_s = time.monotonic() - began
        worst_s = max(member.waited_s[0] for member in self.members)
        await self._until_count("RUNNING", len(self.members))
        half = self.members[::2]
        began, seen = time.monotonic(), {member.name: member.welcomed for member in half}
        for member in half:
            await member.drop()
        await self._until(lambda: all(m.welcomed > seen[m.name] for m in half), "every robot is back")
        reconnect_s = time.monotonic() - began
        await asyncio.sleep(stay_s)
        self.ending.set()
        completed = await self._until_count("COMPLETED", len(self.members))
        expired = (await self._get("/v1/events", where=f"pool={self.pool}", types="LeaseExpired", limit=1_000))["items"]
        self.over.set()
        for member in self.members:
            await member.drop()
        await asyncio.gather(*lives, return_exceptions=True)
        await self._http.aclose()
        return Result(
            robots=len(self.members),
            hello_s=round(hello_s, 1),
            hello_worst_s=round(worst_s, 2),
            reconnected=len(half),
            reconnect_s=round(reconnect_s, 1),
            reconnect_worst_s=round(max(member.waited_s[-1] for member in half), 2),
            refused_handshakes=self.refused,
            stopped=self.stopped,
            leases_expired=len(expired),
            completed=completed,
        )

    async def _submit(self) -> None:
        tasks = [{"id": f"t{number}", "kind": "work", "accept_s": 60} for number in range(len(self.members))]
        for first in range(0, len(tasks), AT_ONCE):
            path = f"/v1/pools/{self.pool}/tasks"
            answer = await self._http.post(path, json={"tasks": tasks[first : first + AT_ONCE]})
            answer.raise_for_status()

    async def _until_count(self, state: str, count: int) -> int:
        while True:
            found = (await self._get("/v1/tasks/count", where=f"pool={self.pool} state={state}"))["count"]
            if found >= count:
                return int(found)
            await asyncio.sleep(0.2)

    async def _get(self, path: str, **query: Any) -> Any:
        answer = await self._http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    async def _until(self, condition: Any, what: str) -> None:
        give_up = time.monotonic() + 10 * ANSWER_S
        while not condition():
            if time.monotonic() > give_up:
                raise RuntimeError(f"it did not come about that {what}")
            await asyncio.sleep(0.05)


def storm(url: str, pool: str, robots: int, within_s: float, stay_s: float) -> Result:
    """The whole play against the gateway at `url`, in a pool that nobody else uses."""

    async def play() -> Result:
        return await Fleet(url, pool, robots).storm(within_s, stay_s)

    return asyncio.run(play())


def main(arguments: Sequence[str]) -> int:
    """The command line: prints the result as JSON; exit code 1 where a lease was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconnect", description="A reconnect storm.")
    parser.add_argument("--gateway", default="http://127.0.0.1:8780")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--robots", type=int, default=10_000)
    parser.add_argument("--within", type=float, default=60.0, help="seconds for the first hellos")
    parser.add_argument("--stay", type=float, default=90.0, help="seconds after the reconnect: longer than a lease")
    asked = parser.parse_args(arguments)
    result = storm(asked.gateway, asked.pool, asked.robots, asked.within, asked.stay)
    print(json.dumps(asdict(result), indent=2))
    return int(result.leases_expired > 0 or result.stopped > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
