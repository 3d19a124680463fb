"""The log port: the one interface through which everything reads and writes the log.

Three adapters pass one contract suite: `memory` (simulation), `embedded` (RocksDB, one machine), `kafka`. Offsets
only grow and may have gaps; never compute with them. Instants are milliseconds since 1970 UTC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol

Headers = tuple[tuple[str, bytes], ...]

RECORD_BYTES_MAX: Final = 1_048_576
"""What the topics take: value, key and headers together."""
VALUE_BYTES_MAX: Final = 900_000
"""What we write at most as one value, so that a record always fits."""
CHUNK_BYTES_MAX: Final = 900_000
"""What one chunk of a snapshot has at most."""


class Topic(StrEnum):
    """The streams of the log, all keyed by pool and with the same number of partitions."""

    COMMANDS = "commands"
    REPORTS = "reports"
    EVENTS = "events"
    OUTCOMES = "outcomes"


@dataclass(slots=True, frozen=True)
class Record:
    """One record as read. `appended_at` is the log's own time of appending (ms)."""

    topic: Topic
    partition: int
    offset: int
    key: str
    value: bytes
    headers: Headers
    appended_at: int

    def header(self, name: str) -> bytes | None:
        """The first header called `name`."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(slots=True, frozen=True)
class Output:
    """One record that an owner writes (to `events` or `outcomes` of its own partition)."""

    topic: Topic
    key: str
    value: bytes
    headers: Headers = ()


@dataclass(slots=True, frozen=True)
class TakenOver:
    """What is true at take-over, read only after the former owner was fenced.

    `reports_next`, `commands_next`: committed input positions (the next offset to decide). `events_end`: the
    read-committed end of the partition's events (everything below it is to be folded).
    """

    reports_next: int
    commands_next: int
    events_end: int


@dataclass(slots=True, frozen=True)
class Fetched:
    """Inputs of one batch: all `reports` that were there, then commands, each in order of offsets."""

    reports: Sequence[Record]
    commands: Sequence[Record]


@dataclass(slots=True, frozen=True)
class Snapshot:
    """Dispatch state of a partition as of `position` (the next event offset to fold), in chunks.

    `incarnation` names the owner's life that made it, so that a paused former owner cannot destroy a newer one.
    """

    position: int
    incarnation: str
    made_at: int
    chunks: Sequence[bytes]


@dataclass(slots=True, frozen=True)
class LogState:
    """How the log as a whole stands, each as a sentence that says what to do. `problem`: nothing goes on until it is
    mended. `warning`: everything goes on."""

    problem: str | None = None
    warning: str | None = None


class LogFault(Exception):
    """The log failed."""


class LogUnavailable(LogFault):
    """The log does not answer; nothing is lost, the same call may succeed later."""


class LogBusy(LogFault):
    """Too much is waiting to be appended; send later."""


class LogCorrupt(LogFault):
    """A record does not match its checksum; the message names topic, partition and offset."""


class LogLocked(LogFault):
    """Another process uses this log's folder."""


class LogMisconfigured(LogFault):
    """Topics or folder are not what Fleetlog needs; the message says what to change."""


class LogReplaced(LogFault):
    """Another log is where the one that was opened had been; the message says what to do."""


class MadeAnew(LogFault):
    """The topic was deleted and made again while it was followed: what is new begins at its beginning."""


class NoSuchPartition(LogFault):
    """A reserved pool `_log-<partition>` names a partition that this log does not have."""


class RecordTooLarge(LogFault):
    """A record is larger than the topic takes; nothing of its batch was written."""


class Fenced(LogFault):
    """Another process took the partition over, or may have: drop the state, then `take_over` again."""


class SeatLost(LogFault):
    """The partition is no longer ours: drop the state and end."""


Appended = Callable[[LogFault | None, int], None]
"""Called once, from any thread, when a record is durable (None, offset) or was not written (fault, -1)."""


class Follower(Protocol):
    """Reads partitions of one topic in order, committed records only."""

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """What is there now, at most `records_max`; waits up to `timeout_s` for the first. Raises LogFault."""

    def positions(self) -> dict[int, int]:
        """Partition -> the offset after everything delivered or skipped (markers, aborted records)."""

    def wake(self) -> None:
        """Ends a waiting `poll` early, from any thread."""

    def close(self) -> None:
        """Frees what the follower holds."""


class LogReader(Protocol):
    """The reading half of a log."""

    log_id: str
    format: int
    partitions: int

    def follow(self, topic: Topic, starts: Mapping[int, int]) -> Follower:
        """Follows the partitions named in `starts` (partition -> first offset) for ever.

        An offset outside what is kept raises LogFault at the first poll; use `beginning` and `end` to find valid ones.
        """

    def beginning(self, topic: Topic, partition: int) -> int:
        """The smallest offset that may be followed."""

    def end(self, topic: Topic, partition: int) -> int:
        """The read-committed end: the offset after the last record that a follower can see now."""

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """The record at exactly this offset, or None. Raises LogCorrupt, LogUnavailable."""

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """Good snapshots (checksums verified), newest position first; bad ones are skipped and counted."""

    def bad_snapshots(self) -> int:
        """How many snapshots were found bad since the start of this process."""

    def state(self) -> LogState:
        """Whether this is still the log that was opened, without asking anybody."""

    def close(self) -> None:
        """Frees what the log holds."""


class Seat(Protocol):
    """One partition that this process decides for. Used by one thread, except `lost` and `wake`."""

    partition: int

    def take_over(self) -> TakenOver:
        """Fences the former owner, then reads positions and end. Raises SeatLost, LogUnavailable, LogReplaced."""

    def start(self) -> None:
        """Lets `fetch` deliver from the positions that `take_over` read."""

    def fetch(self, commands_max: int, timeout_s: float) -> Fetched:
        """All reports that are there (bounded by the adapter), then up to `commands_max` commands.

        Waits up to `timeout_s` for the first of either. Nothing is delivered twice within one `take_over`.
        Raises SeatLost, LogUnavailable, LogReplaced.
        """

    def reports_end(self) -> int:
        """The end of this partition's reports, asked now. Raises LogUnavailable: then time stands still."""

    def commit(self, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """Writes outputs and input positions in one transaction; returns the offsets of the `events` among them.

        Keeps the batch and resolves retriable errors and unknown outcomes by itself, so it either happened once, or
        raises: Fenced, SeatLost (state must be dropped), RecordTooLarge (nothing written, state is ahead: drop it).
        """

    def lost(self) -> bool:
        """Whether the partition was taken from this process."""

    def wake(self) -> None:
        """Ends a waiting `fetch` early, from any thread."""


class Ownership(Protocol):
    """This process's membership among the owners."""

    def close(self) -> None:
        """Leaves; every seat becomes lost first (after its running commit)."""


class Log(LogReader, Protocol):
    """A log that can be written."""

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """Queues one record for the partition of `pool`; order within a partition is the order of calls.

        Never blocks for long. Raises LogBusy when too much is queued, RecordTooLarge and NoSuchPartition at once.
        """

    def own(self, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]) -> Ownership:
        """Joins the owners as `name`. `taken` and `lost` are called from the log's own thread and must not block."""

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """Keeps a snapshot beside the last good one; written completely or never found. Raises LogFault."""

    def raise_format(self, to: int) -> None:
        """Raises the log's `format` to `to`, durably; the same number again changes nothing.

        Processes that opened the log before keep the number they found. Raises LogMisconfigured for a lower number and
        for one that this software does not know, LogUnavailable.
        """


@lru_cache(maxsize=65_536)
def partition_of(pool: str, partitions: int) -> int:
    """The partition of a pool: murmur2 of its UTF-8 bytes, as Kafka's Java clients compute it.

    A reserved pool `_log-<partition>` lies on the partition that it names. Raises NoSuchPartition where there is none.
    """
    named = pool.removeprefix("_log-")
    if named != pool and named.isascii() and named.isdigit():
        if int(named) >= partitions:
            raise NoSuchPartition(f"There is no pool {pool}: this log has partitions 0 to {partitions - 1}.")
        return int(named)
    return (murmur2(pool.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 (32 bit) with Kafka's seed, unsigned; source: Kafka's `Utils.murmur2`."""
    length, m, mask = len(data), 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
