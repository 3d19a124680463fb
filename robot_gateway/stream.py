"""Events as they happen, for any number of readers: one thread follows `events`, each reader has a bounded queue.

The thread runs only while somebody reads. A reader that resumes reads the past with a follower of its own and joins
the others where that has caught up, without a gap or a repeat: what it has seen is kept per partition.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from streams.port import Follower, Log, LogFault, LogUnavailable, Record, Topic

logger = logging.getLogger("fleetlog.gateway")

RECORDS_MAX: Final = 2000
QUEUED_MAX: Final = 2000
QUEUED_BYTES_MAX: Final = 4 * 1024 * 1024
CATCHING_UP_MAX: Final = 8
BATCHES_WAITING_MAX: Final = 8
POLL_S: Final = 0.5
RETRY_S: Final = 0.5

Wanted = Callable[[Record], bytes | None]
"""What a reader gets of a record: the value, or another, or nothing."""


class ReaderEnded(Exception):
    """Nothing more comes: the gateway stops. The reader may resume from the last position that it got."""


class SlowReader(ReaderEnded):
    """The reader did not keep up; it may resume from the last position that it got."""


class TooManyReaders(Exception):
    """So many readers read the past now that one more must come back later."""


class Reader:
    """One reader. `offsets` says per partition from where it has not seen anything yet."""

    def __init__(self, offsets: Mapping[int, int], wanted: Wanted) -> None:
        self.offsets = dict(offsets)
        self.live = False
        self._wanted = wanted
        self._queue: deque[tuple[Record, bytes]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._slow = False
        self._ended = False

    def offer(self, record: Record) -> None:
        """One more record of the log, in order of its partition; what was seen already is passed over."""
        if self._slow or record.offset < self.offsets.get(record.partition, record.offset + 1):
            return
        value = self._wanted(record)
        if value is None:
            return
        if len(self._queue) >= QUEUED_MAX or self._bytes + len(value) > QUEUED_BYTES_MAX:
            self._slow = True
        else:
            self._queue.append((record, value))
            self._bytes += len(value)
        self._news.set()

    def seen(self, record: Record) -> None:
        """The record has been passed on."""
        self.offsets[record.partition] = record.offset + 1

    def passed(self, offsets: Mapping[int, int]) -> None:
        """Everything below `offsets` was looked at, where the past is read and nothing waits in the queue."""
        if self.live and not self._queue:
            for partition in self.offsets:
                self.offsets[partition] = max(self.offsets[partition], offsets.get(partition, 0))

    async def take(self, wait_s: float) -> tuple[Record, bytes] | None:
        """The next record and what the reader gets of it; None where nothing came in time. Raises ReaderEnded."""
        if not (self._queue or self._slow or self._ended):
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
        while self._queue:
            record, value = self._queue.popleft()
            self._bytes -= len(value)
            if record.offset >= self.offsets[record.partition]:  # else it was read from the past already
                self.seen(record)
                return record, value
        if self._slow:
            raise SlowReader
        if self._ended:
            raise ReaderEnded
        return None

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._news.set()

    def wants(self, record: Record) -> bytes | None:
        """What the reader gets of a record that it reads from the past."""
        if record.offset < self.offsets.get(record.partition, record.offset + 1):
            return None
        return self._wanted(record)


class EventHub:
    """Follows `events` for all readers of this process. Used by the gateway's loop."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._readers: set[Reader] = set()
        self._delivered: dict[int, int] = {}
        self._live: _LiveThread | None = None
        self._starting = asyncio.Lock()
        self._catching_up = 0
        self._threads = ThreadPoolExecutor(CATCHING_UP_MAX, "events-past")

    async def read(
        self, starts: Mapping[int, int] | None, partitions: list[int], wanted: Wanted, idle_s: float
    ) -> AsyncIterator[tuple[Reader, Record | None, bytes]]:
        """Records from `starts` on (None: from now on) for ever; an entry without a record after `idle_s` of silence.

        Raises ReaderEnded, TooManyReaders, LogFault.
        """
        await self._run()
        now = {p: self._delivered[p] for p in partitions}
        reader = Reader(starts or now, wanted)
        try:
            if starts is not None:
                async for item in self._past(reader, idle_s):
                    yield item
            else:
                self._readers.add(reader)
            reader.live = True
            while True:
                found = await reader.take(idle_s)
                yield (reader, None, b"") if found is None else (reader, *found)
        finally:
            self._readers.discard(reader)
            if not self._readers and not self._catching_up:
                await self._halt()

    async def _past(self, reader: Reader, idle_s: float) -> AsyncIterator[tuple[Reader, Record | None, bytes]]:
        """What was before now. Joins the live readers first, then reads on up to where they were at that moment."""
        if self._catching_up >= CATCHING_UP_MAX:
            raise TooManyReaders
        loop = asyncio.get_running_loop()
        self._catching_up += 1
        follower = await loop.run_in_executor(self._threads, self._log.follow, Topic.EVENTS, dict(reader.offsets))
        goal: dict[int, int] | None = None
        try:
            while goal is None or any(follower.positions().get(p, 0) < end for p, end in goal.items()):
                records = await loop.run_in_executor(self._threads, follower.poll, RECORDS_MAX, POLL_S)
                for record in records:
                    value = reader.wants(record)
                    reader.seen(record)
                    if value is not None:
                        yield reader, record, value
                if not records:
                    yield reader, None, b""
                if goal is None and len(records) < RECORDS_MAX:
                    goal = {p: self._delivered[p] for p in reader.offsets}
                    self._readers.add(reader)
        finally:
            self._catching_up -= 1
            await loop.run_in_executor(self._threads, follower.close)

    async def _run(self) -> None:
        """The live thread runs from here on."""
        async with self._starting:
            if self._live is None:
                loop = asyncio.get_running_loop()
                ends = await loop.run_in_executor(self._threads, self._ends)
                self._delivered = ends
                self._live = _LiveThread(self._log, ends, loop, self._deliver)
                self._live.start()

    def _ends(self) -> dict[int, int]:
        return {p: self._log.end(Topic.EVENTS, p) for p in range(self._log.partitions)}

    def _deliver(self, records: list[Record], positions: dict[int, int]) -> None:
        for record in records:
            for reader in self._readers:
                reader.offer(record)
        self._delivered = {**self._delivered, **positions}
        for reader in self._readers:
            reader.passed(positions)

    async def _halt(self) -> None:
        async with self._starting:
            if self._live is not None and not self._readers and not self._catching_up:
                live, self._live = self._live, None
                await asyncio.get_running_loop().run_in_executor(self._threads, live.stop)

    async def stop(self) -> None:
        """Ends the thread and all readers."""
        for reader in self._readers:
            reader.end()
        if self._live is not None:
            live, self._live = self._live, None
            await asyncio.to_thread(live.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)


class _LiveThread(threading.Thread):
    """Follows `events` from `starts` and hands batches to the loop; waits where a few of them have not been taken."""

    def __init__(
        self,
        log: Log,
        starts: Mapping[int, int],
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[list[Record], dict[int, int]], None],
    ) -> None:
        super().__init__(name="events-live", daemon=True)
        self._log, self._loop, self._to = log, loop, deliver
        self._positions = dict(starts)
        self._follower: Follower | None = None
        self._room = threading.Semaphore(BATCHES_WAITING_MAX)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until stopped; when the log is away, again from where it was."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except LogFault as fault:
                logger.warning("events cannot be followed: %s", fault)
                self._stopping.wait(RETRY_S)

    def stop(self) -> None:
        """Ends the thread; blocks until it has ended."""
        self._stopping.set()
        self._room.release()
        if self._follower is not None:
            self._follower.wake()
        if self.is_alive():
            self.join()

    def _follow(self) -> None:
        follower = self._follower = self._log.follow(Topic.EVENTS, self._positions)
        try:
            while not self._stopping.is_set():
                try:
                    records = follower.poll(RECORDS_MAX, POLL_S)
                except LogUnavailable:
                    self._stopping.wait(RETRY_S)
                    continue
                positions = follower.positions()
                if positions != self._positions:
                    self._hand_over(records, positions)
                    self._positions = positions
        finally:
            self._follower = None
            follower.close()

    def _hand_over(self, records: list[Record], positions: dict[int, int]) -> None:
        self._room.acquire()
        if self._stopping.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(self._on_loop, records, positions)
        except RuntimeError:  # the loop is closed
            self._stopping.set()

    def _on_loop(self, records: list[Record], positions: dict[int, int]) -> None:
        self._room.release()
        self._to(records, positions)
