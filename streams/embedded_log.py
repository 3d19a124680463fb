"""The embedded log: RocksDB in one folder, one process that writes it. A `Log`.

Readers in other processes use `EmbeddedReader`. The format is described in `docs/formats/embedded-log.md`.
"""

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import Checkpoint, WriteBatch, WriteOptions

from commands.settings import FORMAT
from streams.embedded_faults import fault_of
from streams.embedded_reader import EmbeddedReading
from streams.embedded_record import appended_at_of
from streams.embedded_snapshots import keep_snapshot
from streams.embedded_store import LogHead, Store, Track, open_store, write_gently
from streams.embedded_writer import Commit, RaiseFormat, TakeOver, Trim, Writer
from streams.local_log import LocalOwnership, LocalSeat, Owners, check_size, wall_clock
from streams.log_format import check_known, check_raise
from streams.port import (
    Appended,
    Headers,
    LogFault,
    LogMisconfigured,
    LogState,
    Output,
    Seat,
    Snapshot,
    TakenOver,
    Topic,
    partition_of,
)

PARTITIONS: Final = 12
QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
TRIM_EVERY_S: Final = 60.0

_HOUR_MS: Final = 3_600_000
KEPT_MS: Final = {Topic.COMMANDS: 7 * 24 * _HOUR_MS, Topic.REPORTS: 7 * 24 * _HOUR_MS, Topic.OUTCOMES: 6 * _HOUR_MS}
"""How long the records of a topic are kept; `events` for ever."""
TRIMMED_AT: Final = 24
"""Records are taken away when the oldest is over its time by the 24th part of it, not one by one."""

Found = TypeVar("Found")


class EmbeddedLog(EmbeddedReading):
    """The log of one machine. Made by `EmbeddedLog.open`; one process at a time."""

    look_every_s = inf

    def __init__(
        self,
        store: Store,
        head: LogHead,
        *,
        sync: bool = True,
        clock: Callable[[], int] = wall_clock,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        hook: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(store.folder, head)
        store.bind(self.tracks)
        self._clock = clock
        self._owners = Owners(head.partitions)
        self._memberships: list[LocalOwnership] = []
        self._writer = Writer(
            store, self.tracks, self.bells, sync=sync, clock=clock, queued_bytes_max=queued_bytes_max, hook=hook
        )
        self._closed = threading.Event()
        self._trimmer = threading.Thread(target=self._trim_for_ever, name="fleetlog-trim", daemon=True)
        self._trimmer.start()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        create: bool = True,
        partitions: int | None = None,
        sync: bool = True,
        *,
        log_id: str | None = None,
        clock: Callable[[], int] = wall_clock,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        hook: Callable[[str], None] | None = None,
    ) -> "EmbeddedLog":
        """Opens the log in `folder`, making it first where there is none and `create` allows.

        `partitions` (default 12 for a new log) must be those of a log that is there. `sync`: a group is on the disk
        before it is acknowledged; without it a power cut may take the last seconds, a kill -9 never takes anything.
        `clock` gives milliseconds. Raises LogLocked, LogMisconfigured, LogCorrupt, LogUnavailable.
        """
        folder = Path(folder)
        store = open_store(folder, create)
        try:
            head = store.head()
            if head is None:
                if not create:
                    raise LogMisconfigured(f"The log in {folder} was never finished; make it with `fleetlog log init`.")
                head = LogHead(log_id or str(uuid.uuid4()), FORMAT, partitions or PARTITIONS)
                _make_head(store, head)
            if partitions not in (None, head.partitions):
                raise LogMisconfigured(
                    f"The log in {folder} has {head.partitions} partitions, not {partitions}: their number is fixed."
                )
            check_known(head.format, f"in {folder}")
            return cls(store, head, sync=sync, clock=clock, queued_bytes_max=queued_bytes_max, hook=hook)
        except Exception as error:
            store.close()
            raise fault_of(error, folder) from None

    def state(self) -> LogState:
        """See `port.LogReader`: a disk that takes nothing is said as long as somebody tries."""
        return LogState(warning=self._writer.failing())

    def refresh(self) -> None:
        """Everything is visible as soon as it is durable."""

    def ask(self, question: Callable[[Store], Found]) -> Found:
        """As in `EmbeddedReading`."""
        try:
            return question(self._writer.store)
        except LogFault:
            raise
        except Exception as error:
            raise fault_of(error, self.folder) from None

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """As in `Log`; `done` is called by the writing thread and must not block."""
        size = check_size(pool, value, headers)
        track = self.tracks[topic][partition_of(pool, self.partitions)]
        self._writer.append(track, pool, value, headers, done, size)

    def own(self, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]) -> LocalOwnership:
        """As in `Log`; `taken` is called for every partition before this returns."""
        membership = self._owners.join(self, name, taken, lost)
        self._memberships.append(membership)
        return membership

    def take_over(self, seat: LocalSeat) -> TakenOver:
        """As in `Backend`."""
        request = TakeOver(seat)
        self._writer.ask(request)
        return request.taken

    def commit(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Backend`."""
        request = Commit(seat, outputs, reports_next, commands_next)
        self._writer.ask(request)
        return request.offsets

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """As in `Log`."""
        self.ask(lambda store: keep_snapshot(store, partition, snapshot))

    def raise_format(self, to: int) -> None:
        """As in `Log`; on the disk when it returns, also where groups are not synced."""
        check_raise(self.format, to)
        request = RaiseFormat(to)
        self._writer.ask(request)
        self.ask(lambda store: store.db.flush_wal(True))
        self.format = request.raised

    def backup(self, target: Path | str) -> None:
        """Makes a copy of the log as it is now in the new folder `target`, which `open` opens. Raises LogFault.

        Nothing waits for it: files that do not change any more are linked where `target` is on the same file system,
        else copied.
        """
        target = Path(target)
        if target.exists():
            raise LogMisconfigured(f"{target} exists already; back up into a new folder.")
        self.ask(lambda store: _backup(store, target))

    def trim(self) -> None:
        """Takes away what retention is over for, but no input that is not decided yet."""
        for topic, kept_ms in KEPT_MS.items():
            for track in self.tracks[topic]:
                beginning = self.ask(partial(self._kept_from, track, kept_ms))
                if beginning > track.beginning:
                    self._writer.ask(Trim(track, beginning))

    def _kept_from(self, track: Track, kept_ms: int, store: Store) -> int:
        """The first offset of a track that is to be kept."""
        now = self._clock()
        first, end = track.beginning, track.end
        if track.topic is not Topic.OUTCOMES:
            reports_next, commands_next = store.inputs_next(track.partition)
            end = min(end, reports_next if track.topic is Topic.REPORTS else commands_next)
        if first >= end or not _older(store, track, first, now - kept_ms - kept_ms // TRIMMED_AT):
            return first
        while first < end:
            middle = (first + end) // 2
            if _older(store, track, middle, now - kept_ms):
                first = middle + 1
            else:
                end = middle
        return first

    def _trim_for_ever(self) -> None:
        while not self._closed.wait(TRIM_EVERY_S):
            # What cannot be trimmed now is trimmed later; the fault itself comes to those who read or write.
            with suppress(LogFault):
                self.trim()

    def close(self) -> None:
        """As in `LogReader`: leaves the owners, writes what is queued, closes the folder."""
        while self._memberships:
            self._memberships.pop().close()
        self._closed.set()
        self._trimmer.join()
        self._writer.close()


def create_embedded_log(folder: Path | str, partitions: int = PARTITIONS, log_id: str | None = None) -> LogHead:
    """Makes a new log in `folder` and closes it again. Raises LogMisconfigured where there is one, and LogFault."""
    if (Path(folder) / "layout").exists():
        raise LogMisconfigured(f"There is a log in {folder} already; use it, or another folder.")
    log = EmbeddedLog.open(folder, create=True, partitions=partitions, log_id=log_id)
    log.close()
    return LogHead(log.log_id, log.format, log.partitions)


def _make_head(store: Store, head: LogHead) -> None:
    def fill() -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        store.put_head(batch, head)
        return batch

    write_gently(store.db, fill, WriteOptions())
    store.db.flush_wal(True)


def _older(store: Store, track: Track, offset: int, than_ms: int) -> bool:
    """Whether the record was appended before; one that is missing counts as new, so nothing goes because of it."""
    stored = store.stored_at(track, offset)
    return stored is not None and appended_at_of(stored) < than_ms


def _backup(store: Store, target: Path) -> None:
    target.mkdir(parents=True)
    with store.used():
        # RocksDB's checkpoint stops all threads while it copies; within the folder it only links.
        checkpoint = store.folder / f"checkpoint.{os.getpid()}"
        shutil.rmtree(checkpoint, ignore_errors=True)
        store.flush()
        Checkpoint(store.db).create_checkpoint(str(checkpoint))
    try:
        checkpoint.rename(target / "db")
    except OSError:
        shutil.copytree(checkpoint, target / "db")
        shutil.rmtree(checkpoint)
    shutil.copy(store.folder / "layout", target / "layout")
