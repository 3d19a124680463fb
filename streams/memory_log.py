"""The log in memory: for simulation and tests. Everything happens at once, in the caller's thread, in one order.

A `MemoryStore` is the log; each `MemoryLog` is one process's way to it. Simulations make several, close one to kill
that process, and set the store's faults. Like Kafka, a commit leaves a gap in the offsets of what it wrote.
"""

import threading
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Final

from commands.settings import FORMAT
from streams.local_log import (
    Bells,
    LocalFollower,
    LocalOwnership,
    LocalSeat,
    Owners,
    check_size,
    fenced,
    wall_clock,
)
from streams.log_format import check_known, check_raise
from streams.port import (
    CHUNK_BYTES_MAX,
    Appended,
    Fenced,
    Headers,
    LogBusy,
    LogCorrupt,
    LogState,
    LogUnavailable,
    Output,
    Record,
    RecordTooLarge,
    Seat,
    Snapshot,
    TakenOver,
    Topic,
    partition_of,
)

SNAPSHOTS_KEPT: Final = 2
QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024


class CommitFault(Enum):
    """What may happen to the next commit; in either case it raises `Fenced`."""

    NOT_WRITTEN = auto()
    ANSWER_LOST = auto()


@dataclass(slots=True)
class _Place:
    """One partition of one topic: records by offset, and the offset after the last of them or its marker."""

    records: list[Record] = field(default_factory=list)
    beginning: int = 0
    end: int = 0

    def index(self, offset: int) -> int:
        """The index of the first record at or after `offset`."""
        low, high = 0, len(self.records)
        while low < high:
            middle = (low + high) // 2
            if self.records[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


@dataclass(slots=True)
class _Owned:
    """What the log knows about the owner of a partition."""

    epoch: int = 0
    reports_next: int = 0
    commands_next: int = 0


class MemoryStore:
    """The log itself, which outlives the processes of a simulation. `clock` gives milliseconds."""

    def __init__(
        self,
        partitions: int = 12,
        log_id: str | None = None,
        clock: Callable[[], int] = wall_clock,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
    ) -> None:
        self.partitions = partitions
        self.log_id = log_id or str(uuid.uuid4())
        self.format = FORMAT
        self.clock = clock
        self.bells = Bells()
        self.owners = Owners(partitions)
        self.lock = threading.RLock()
        self.next_commits: deque[CommitFault] = deque()
        self.away = False
        self.corrupt: set[tuple[Topic, int, int]] = set()
        self._places = {topic: [_Place() for _ in range(partitions)] for topic in Topic}
        self._owned = [_Owned() for _ in range(partitions)]
        self._snapshots: list[list[tuple[Snapshot, int]]] = [[] for _ in range(partitions)]
        self._held: list[tuple[Topic, str, bytes, Headers, Appended]] | None = None
        self._held_bytes = 0
        self._held_bytes_max = queued_bytes_max

    def place(self, topic: Topic, partition: int) -> _Place:
        """One partition of one topic. Raises LogUnavailable while the log is away."""
        self.check_here()
        return self._places[topic][partition]

    def check_here(self) -> None:
        """Raises LogUnavailable while the log is `away`."""
        if self.away:
            raise LogUnavailable("The log does not answer; try again.")

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """As in `Log`; `done` is called before this returns, unless appends are held."""
        size = check_size(pool, value, headers)
        with self.lock:
            if self._held is not None:
                if self._held_bytes + size > self._held_bytes_max:
                    raise LogBusy("Too much waits to be appended; send again in a moment.")
                self._held_bytes += size
                self._held.append((topic, pool, value, headers, done))
                return
            partition = partition_of(pool, self.partitions)
            offset = -1 if self.away else self._add(topic, partition, pool, value, headers, self.clock())
        if offset < 0:
            done(LogUnavailable("The log does not answer; nothing was appended."), -1)
        else:
            self.bells.ring(topic, partition)
            done(None, offset)

    def hold(self) -> None:
        """From now on appends are taken, but not made, as by a log that is slow."""
        with self.lock:
            self._held = []

    def release(self) -> None:
        """Makes the appends that were held."""
        with self.lock:
            held, self._held, self._held_bytes = self._held or [], None, 0
        for append in held:
            self.append(*append)

    def take_over(self, seat: LocalSeat) -> TakenOver:
        """As in `Backend`."""
        with self.lock:
            self.check_here()
            owned = self._owned[seat.partition]
            owned.epoch += 1
            seat.epoch = owned.epoch
            return TakenOver(owned.reports_next, owned.commands_next, self._places[Topic.EVENTS][seat.partition].end)

    def commit(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Backend`: all of it at once."""
        partition = seat.partition
        with self.lock:
            owned = self._owned[partition]
            if seat.epoch != owned.epoch:
                raise fenced(partition)
            fault = self.next_commits.popleft() if self.next_commits else None
            if self.away or fault is CommitFault.NOT_WRITTEN:
                raise Fenced("The commit was not answered; take over again to see whether it happened.")
            now = self.clock()
            offsets = [
                (output.topic, self._add(output.topic, partition, output.key, output.value, output.headers, now))
                for output in outputs
            ]
            owned.reports_next, owned.commands_next = reports_next, commands_next
            topics = {output.topic for output in outputs}
            for topic in topics:
                self._places[topic][partition].end += 1
        for topic in topics:
            self.bells.ring(topic, partition)
        if fault is CommitFault.ANSWER_LOST:
            raise Fenced("The commit was not answered; take over again to see whether it happened.")
        return [offset for topic, offset in offsets if topic is Topic.EVENTS]

    def _add(self, topic: Topic, partition: int, key: str, value: bytes, headers: Headers, now: int) -> int:
        place = self._places[topic][partition]
        offset, place.end = place.end, place.end + 1
        place.records.append(Record(topic, partition, offset, key, value, headers, now))
        return offset

    def trim(self, topic: Topic, partition: int, beginning: int) -> None:
        """Forgets what is below `beginning`, as retention does."""
        with self.lock:
            place = self._places[topic][partition]
            place.beginning = max(place.beginning, min(beginning, place.end))
            del place.records[: place.index(place.beginning)]

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """As in `Log`: of all snapshots of the partition those with the highest positions stay."""
        if any(len(chunk) > CHUNK_BYTES_MAX for chunk in snapshot.chunks):
            raise RecordTooLarge(f"A chunk of a snapshot has at most {CHUNK_BYTES_MAX} bytes; make more of them.")
        with self.lock:
            self.check_here()
            kept = [*self._snapshots[partition], (snapshot, _checksum(snapshot))]
            kept.sort(key=lambda pair: (pair[0].position, pair[0].made_at), reverse=True)
            self._snapshots[partition] = kept[:SNAPSHOTS_KEPT]

    def find_snapshots(self, partition: int) -> tuple[list[Snapshot], int]:
        """Good snapshots, highest position first, and how many were bad."""
        with self.lock:
            self.check_here()
            kept = self._snapshots[partition]
            good = [snapshot for snapshot, checksum in kept if _checksum(snapshot) == checksum]
            return good, len(kept) - len(good)

    def spoil_snapshot(self, partition: int, position: int) -> None:
        """Flips a bit in the first chunk of a snapshot, whose checksum then does not fit."""
        with self.lock:
            for i, (kept, checksum) in enumerate(self._snapshots[partition]):
                if kept.position == position:
                    first, *rest = kept.chunks
                    chunks = (bytes([first[0] ^ 1]) + first[1:], *rest)
                    spoilt = Snapshot(kept.position, kept.incarnation, kept.made_at, chunks)
                    self._snapshots[partition][i] = (spoilt, checksum)


class MemoryLog:
    """One process's way to a `MemoryStore`: a `Log`."""

    look_every_s = inf

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        check_known(self.store.format, "in memory")
        self.log_id = self.store.log_id
        self.format = self.store.format
        self.partitions = self.store.partitions
        self.bells = self.store.bells
        self._bad_snapshots = 0
        self._memberships: list[LocalOwnership] = []

    def refresh(self) -> None:
        """Everything is visible at once."""

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """As in `Log`; `done` is called before this returns, unless appends are held."""
        self.store.append(topic, pool, value, headers, done)

    def follow(self, topic: Topic, starts: Mapping[int, int]) -> LocalFollower:
        """As in `LogReader`."""
        return LocalFollower(self, topic, starts)

    def beginning(self, topic: Topic, partition: int) -> int:
        """As in `LogReader`."""
        return self.kept(topic, partition)[0]

    def end(self, topic: Topic, partition: int) -> int:
        """As in `LogReader`."""
        return self.kept(topic, partition)[1]

    def kept(self, topic: Topic, partition: int) -> tuple[int, int]:
        """As in `Source`."""
        place = self.store.place(topic, partition)
        return place.beginning, place.end

    def read(self, topic: Topic, partition: int, start: int, records_max: int) -> tuple[list[Record], int]:
        """As in `Source`."""
        with self.store.lock:
            place = self.store.place(topic, partition)
            first = place.index(start)
            records = place.records[first : first + records_max]
            reached = place.end if first + len(records) == len(place.records) else records[-1].offset + 1
        if self.store.corrupt:
            for record in records:
                self._check_sound(topic, partition, record.offset)
        return records, reached

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """As in `LogReader`."""
        with self.store.lock:
            place = self.store.place(topic, partition)
            records = place.records[place.index(offset) :][:1]
        if not records or records[0].offset != offset:
            return None
        self._check_sound(topic, partition, offset)
        return records[0]

    def _check_sound(self, topic: Topic, partition: int, offset: int) -> None:
        if (topic, partition, offset) in self.store.corrupt:
            raise LogCorrupt(f"The record at {topic.value}, partition {partition}, offset {offset} is corrupt.")

    def own(self, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]) -> LocalOwnership:
        """As in `Log`; `taken` is called for every partition before this returns."""
        membership = self.store.owners.join(self, name, taken, lost)
        self._memberships.append(membership)
        return membership

    def take_over(self, seat: LocalSeat) -> TakenOver:
        """As in `Backend`."""
        return self.store.take_over(seat)

    def commit(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Backend`."""
        return self.store.commit(seat, outputs, reports_next, commands_next)

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """As in `Log`."""
        self.store.keep_snapshot(partition, snapshot)

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """As in `LogReader`."""
        good, bad = self.store.find_snapshots(partition)
        self._bad_snapshots += bad
        return good

    def state(self) -> LogState:
        """See `port.LogReader`: nobody takes it away."""
        return LogState()

    def bad_snapshots(self) -> int:
        """As in `LogReader`."""
        return self._bad_snapshots

    def raise_format(self, to: int) -> None:
        """As in `Log`."""
        with self.store.lock:
            self.store.check_here()
            check_raise(self.store.format, to)
            self.store.format = self.format = to

    def close(self) -> None:
        """As in `LogReader`: this process leaves the owners; the store stays."""
        while self._memberships:
            self._memberships.pop().close()


def _checksum(snapshot: Snapshot) -> int:
    checksum = 0
    for chunk in snapshot.chunks:
        checksum = zlib.crc32(chunk, checksum)
    return checksum
