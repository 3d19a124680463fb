"""A TCP proxy on a loopback port whose link a test can cut, hold, slow down, make deaf, and restore.

    with Proxy("127.0.0.1:9092") as proxy:      # clients use proxy.address
        proxy.hold("answers")                   # a partition that may heal: nothing is lost, nothing arrives
        proxy.restore()

`KafkaProxy` knows Kafka's frames as well, so that it can lose or alter the answer to one kind of request only.
All methods may be called from any thread and return when the change holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tests.support.ports import LOOPBACK

Way = Literal["requests", "answers"]
WAYS: tuple[Way, Way] = ("requests", "answers")
PIECE_BYTES = 65536
T = TypeVar("T")


@dataclass(slots=True)
class _Lane:
    """What happens now to the bytes that go one way."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    loses: bool = False


@dataclass(eq=False, slots=True)
class Link:
    """One client's connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    damaged: bool = False
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)

    def close(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Passes bytes between its clients and `target` ("HOST:PORT", may be set later)."""

    def __init__(self, target: str = "", *, port: int = 0) -> None:
        self.target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._port = port
        self._cut = False
        self._links: set[Link] = set()
        self._lanes: dict[Way, _Lane] = {way: _Lane() for way in WAYS}
        for lane in self._lanes.values():
            lane.open.set()

    @property
    def address(self) -> str:
        """Where clients connect, `127.0.0.1:PORT`; settled by the first start() or by this call."""
        self.start()
        return f"{LOOPBACK}:{self._port}"

    @property
    def port(self) -> int:
        """Where it listens, or will."""
        return self._port

    @property
    def connections(self) -> int:
        """Connections open through the proxy now."""
        return self._do(self._count())

    def start(self) -> Self:
        """Listen; a second call does nothing."""
        if self._server is None and not self._loop.is_closed():
            self._thread.start()
            self._server = self._do(asyncio.start_server(self._serve, LOOPBACK, self._port))
            self._port = int(self._server.sockets[0].getsockname()[1])
        return self

    def stop(self) -> None:
        """End all connections and stop listening; a second call does nothing."""
        if self._server is None or self._loop.is_closed():
            return
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._do(self._set_cut())

    def hold(self, *ways: Way) -> None:
        """Let bytes wait in the proxy until restore(): a network that lost its way, for both ways if none is named."""
        self._change(ways, lambda lane: lane.open.clear())

    def lose(self, *ways: Way) -> None:
        """Throw bytes away; restore() breaks the connections that lost some, since they cannot go on."""
        self._change(ways, lambda lane: setattr(lane, "loses", True))

    def delay(self, seconds: float, *ways: Way) -> None:
        """Let every piece of bytes wait `seconds` before it goes on, for both ways if none is named."""
        self._change(ways, lambda lane: setattr(lane, "delay_s", seconds))

    def restore(self) -> None:
        """Be an ordinary link again."""
        self._do(self._restore())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def read_piece(self, reader: asyncio.StreamReader) -> bytes:
        """The next bytes to pass on as one piece; b"" at the end."""
        return await reader.read(PIECE_BYTES)

    def let_through(self, link: Link, way: Way, piece: bytes) -> bytes | None:
        """What to pass on instead of `piece`; None loses it."""
        return piece

    # ---- on the proxy's own thread ----

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    def _change(self, ways: tuple[Way, ...], change: Callable[[_Lane], None]) -> None:
        async def step() -> None:
            for way in ways or WAYS:
                change(self._lanes[way])

        self._do(step())

    async def _count(self) -> int:
        return len(self._links)

    async def _set_cut(self) -> None:
        self._cut = True
        for link in list(self._links):
            link.close()

    async def _restore(self) -> None:
        self._cut = False
        for lane in self._lanes.values():
            lane.loses, lane.delay_s = False, 0.0
            lane.open.set()
        for link in list(self._links):
            if link.damaged:
                link.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for link in list(self._links):
            link.close()
        await asyncio.sleep(0)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._cut:
            to_client.transport.abort()
            return
        host, port = self.target.rsplit(":", 1)
        try:
            from_server, to_server = await asyncio.open_connection(host, int(port))
        except OSError:
            to_client.transport.abort()
            return
        link = Link(to_client, to_server)
        self._links.add(link)
        pumps = [
            asyncio.create_task(self._pump(link, "requests", from_client, to_server)),
            asyncio.create_task(self._pump(link, "answers", from_server, to_client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._links.discard(link)
            link.close()

    async def _pump(self, link: Link, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carry one way of one connection until either side ends it."""
        lane = self._lanes[way]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while piece := await self.read_piece(source):
                if lane.delay_s:
                    await asyncio.sleep(lane.delay_s)
                await lane.open.wait()
                passed = None if lane.loses else self.let_through(link, way, piece)
                if passed is None:
                    link.damaged = True
                    continue
                sink.write(passed)
                await sink.drain()


class Api(IntEnum):
    """Kafka's numbers for the requests that tests meddle with."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_FETCH = 9
    JOIN_GROUP = 11
    HEARTBEAT = 12
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


# The first version whose answer starts with tagged fields, for the answers that then are throttle_ms, error code.
FLEXIBLE_FROM = {Api.HEARTBEAT: 4, Api.INIT_PRODUCER_ID: 2, Api.ADD_OFFSETS_TO_TXN: 3, Api.END_TXN: 3}


@dataclass(slots=True)
class _Meddling:
    """What happens to the next `times` answers to one kind of request."""

    times: int
    error: int | None


class KafkaProxy(Proxy):
    """A proxy that sees Kafka's requests and answers one by one."""

    def __init__(self, target: str = "", *, port: int = 0) -> None:
        super().__init__(target, port=port)
        self._meddling: dict[int, _Meddling] = {}
        self._seen: dict[int, int] = {}

    def lose_answers(self, api: Api, *, times: int = 1) -> None:
        """Throw away the next `times` answers to `api`: the broker has done it, the client is not told."""
        self._meddle(api, _Meddling(times, None))

    def answer_with(self, api: Api, error: int, *, times: int = 1) -> None:
        """Put Kafka's error code `error` into the next `times` answers to `api`, one of FLEXIBLE_FROM."""
        if api not in FLEXIBLE_FROM:
            raise ValueError(f"the error of an answer to {api.name} has no fixed place")
        self._meddle(api, _Meddling(times, error))

    def restore(self) -> None:
        self._do(self._forget())
        super().restore()

    def requests_seen(self, api: Api) -> int:
        """How many requests of this kind came by so far."""
        return self._seen.get(api, 0)

    async def read_piece(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head, "big"))

    def let_through(self, link: Link, way: Way, piece: bytes) -> bytes | None:
        if way == "requests":
            api, version, number = struct.unpack_from(">hhi", piece, 4)
            self._seen[api] = self._seen.get(api, 0) + 1
            link.asked[number] = (api, version)
            return piece
        api, version = link.asked.pop(int.from_bytes(piece[4:8], "big"), (-1, 0))
        meddling = self._meddling.get(api)
        if meddling is None:
            return piece
        meddling.times -= 1
        if meddling.times <= 0:
            del self._meddling[api]
        return None if meddling.error is None else with_error(piece, Api(api), version, meddling.error)

    def _meddle(self, api: Api, meddling: _Meddling) -> None:
        async def step() -> None:
            self._meddling[api] = meddling

        self._do(step())

    async def _forget(self) -> None:
        self._meddling.clear()


def with_error(answer: bytes, api: Api, version: int, error: int) -> bytes:
    """The same answer frame with another error code: size, correlation id, [tags,] throttle_ms, error code, ..."""
    place = 4 + 4 + (1 if version >= FLEXIBLE_FROM[api] else 0) + 4
    return answer[:place] + struct.pack(">h", error) + answer[place + 2 :]
