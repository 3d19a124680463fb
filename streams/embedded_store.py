"""The folder of an embedded log: RocksDB opened, its options, its faults as sentences, records and meta read.

`<folder>/layout` names the layout, `<folder>/db` is the RocksDB, `<folder>/pid` the process that writes it. The format
is described in `docs/formats/embedded-log.md`.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from streams.embedded_faults import fault_of
from streams.embedded_record import corrupt, decode_record, record_key, record_offset
from streams.local_log import check_kept
from streams.port import (
    LogCorrupt,
    LogFault,
    LogMisconfigured,
    LogUnavailable,
    Record,
    Topic,
)

LAYOUT: Final = 1
LAYOUT_LINE: Final = "Fleetlog embedded log, layout "
META: Final = "meta"
SNAPSHOTS: Final = "snapshots"
READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""How many bytes of values one read gives at most (and one record more)."""
STALLED_S: Final = 0.005
"""How long a writer waits for compaction before it tries again."""

_MIB: Final = 1024 * 1024
_LOG_KEY: Final = b"log"
_GROUP_KEY: Final = b"group"


@dataclass(slots=True, frozen=True)
class LogHead:
    """What the log says about itself."""

    log_id: str
    format: int
    partitions: int


class Track:
    """One partition of one topic: where its records stand, and between which offsets.

    `next` is the offset that the writer gives next; from `end` on nothing is visible yet. `family` and `handle` are
    bound anew when the store is opened anew.
    """

    __slots__ = ("beginning", "end", "family", "handle", "looked", "next", "partition", "topic")

    family: Rdict
    handle: ColumnFamily | None

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.beginning = 0
        self.end = 0
        self.next = 0
        self.looked = -1


Tracks = dict[Topic, list[Track]]


class Store:
    """An opened folder. Its methods raise RocksDB's own exceptions, which `fault_of` turns into ours."""

    def __init__(self, folder: Path, db: Rdict, secondary: Path | None) -> None:
        self.folder = folder
        self.db = db
        self._secondary = secondary
        self.meta = db.get_column_family(META)
        self.meta_handle = db.get_column_family_handle(META)
        self.snapshots = db.get_column_family(SNAPSHOTS)
        self.snapshots_handle = db.get_column_family_handle(SNAPSHOTS)
        self._families = {topic: db.get_column_family(topic.value) for topic in Topic}
        self._handles = {topic: db.get_column_family_handle(topic.value) for topic in Topic}
        self._tracks: list[Track] = []
        self._in_use = threading.Lock()
        self._closed = False

    # --- meta ---

    def head(self) -> LogHead | None:
        """What the log says about itself, or None where it was never made."""
        stored = self.meta.get(_LOG_KEY)
        if stored is None:
            return None
        try:
            fields = json.loads(stored)
            return LogHead(str(fields["log_id"]), int(fields["format"]), int(fields["partitions"]))
        except (ValueError, KeyError, TypeError):
            raise LogCorrupt(f"The log in {self.folder} does not say who it is: restore it from a backup.") from None

    def put_head(self, batch: WriteBatch, head: LogHead) -> None:
        """Adds to `batch` what the log says about itself."""
        fields = {"log_id": head.log_id, "format": head.format, "partitions": head.partitions}
        batch.put(_LOG_KEY, json.dumps(fields).encode(), self.meta_handle)

    def group(self) -> int:
        """The number of the last group that was written."""
        return int.from_bytes(self.meta.get(_GROUP_KEY) or b"", "big")

    def put_group(self, batch: WriteBatch, number: int) -> None:
        """Adds the number of its group to `batch`."""
        batch.put(_GROUP_KEY, number.to_bytes(8, "big"), self.meta_handle)

    def inputs_next(self, partition: int) -> tuple[int, int]:
        """The committed input positions of a partition: reports, commands."""
        stored = self.meta.get(_inputs_key(partition))
        if stored is None:
            return 0, 0
        return int.from_bytes(stored[:8], "big"), int.from_bytes(stored[8:], "big")

    def put_inputs_next(self, batch: WriteBatch, partition: int, reports_next: int, commands_next: int) -> None:
        """Adds the input positions of a partition to `batch`."""
        stored = reports_next.to_bytes(8, "big") + commands_next.to_bytes(8, "big")
        batch.put(_inputs_key(partition), stored, self.meta_handle)

    def put_beginning(self, batch: WriteBatch, track: Track, beginning: int) -> None:
        """Adds to `batch` that a track begins at `beginning`, and that what is before it goes."""
        batch.delete_range(record_key(track.partition, 0), record_key(track.partition, beginning), track.handle)
        batch.put(_beginning_key(track), beginning.to_bytes(8, "big"), self.meta_handle)

    # --- records ---

    def bind(self, tracks: Tracks) -> None:
        """Makes this store the one that the tracks stand in, and finds where each begins and ends."""
        for topic, places in tracks.items():
            for track in places:
                track.family, track.handle = self._families[topic], self._handles[topic]
                self._tracks.append(track)
                self.look(track)

    def look(self, track: Track) -> None:
        """Reads where a track begins and ends now."""
        stored = self.meta.get(_beginning_key(track))
        track.beginning = int.from_bytes(stored, "big") if stored else 0
        found = track.family.iter()
        found.seek_for_prev(record_key(track.partition, 2**64 - 1))
        last = found.key() or b""
        found.status()
        ours = last[:2] == record_key(track.partition, 0)[:2]
        track.end = track.next = max(track.beginning, record_offset(last) + 1 if ours else 0)

    def read(self, track: Track, start: int, records_max: int) -> tuple[list[Record], int]:
        """Records of `start` up to the end; offsets in the folder have no gap, so one that is missing is a fault."""
        topic, partition, end = track.topic, track.partition, track.end
        records: list[Record] = []
        offset, room = start, READ_BYTES_MAX
        stop = min(end, start + records_max)
        found = track.family.iter()
        found.seek(record_key(partition, start))
        while offset < stop and room > 0:
            key = found.key()
            if key != record_key(partition, offset):
                _check_status(found, track, offset)
                check_kept((track.beginning, end), topic, partition, start)
                raise corrupt(topic, partition, offset)
            stored = found.value()
            records.append(decode_record(topic, partition, key, stored))
            room -= len(stored)
            offset += 1
            found.next()
        return records, offset

    def stored_at(self, track: Track, offset: int) -> bytes | None:
        """A record as stored."""
        stored: bytes | None = track.family.get(record_key(track.partition, offset))
        return stored

    @contextmanager
    def used(self) -> Iterator[None]:
        """For whoever lets others run inside RocksDB, which cannot be closed meanwhile. Raises LogUnavailable."""
        with self._in_use:
            if self._closed:
                raise LogUnavailable(f"The log in {self.folder} was closed meanwhile; try again.")
            yield

    def flush(self) -> None:
        """Writes what is in memory into files, while other threads run."""
        for family in (*self._families.values(), self.meta):
            family.flush(True)

    def close(self) -> None:
        """Closes RocksDB; faults of closing change nothing any more. Whoever reads meanwhile gets LogUnavailable."""
        with self._in_use:
            self._closed = True
            for track in self._tracks:
                track.handle = None
            self._tracks.clear()
            self._handles.clear()
            del self.meta_handle, self.snapshots_handle
            for family in (*self._families.values(), self.meta, self.snapshots, self.db):
                with suppress(Exception):
                    family.close()
        if self._secondary:
            shutil.rmtree(self._secondary, ignore_errors=True)


def _check_status(found: RdictIter, track: Track, offset: int) -> None:
    """Raises what ended an iteration before `offset`, if a fault did."""
    try:
        found.status()
    except Exception as error:
        if str(error).startswith("Corruption"):
            raise corrupt(track.topic, track.partition, offset) from None
        raise


def write_gently(db: Rdict, fill: Callable[[], WriteBatch], options: WriteOptions) -> None:
    """Writes what `fill` gives, without ever waiting inside RocksDB, where that would stop every thread."""
    options.no_slowdown = True
    while True:
        try:
            db.write(fill(), options)
            return
        except Exception as error:
            # Compaction is behind; nothing of the batch was written.
            if "incomplete" not in str(error):
                raise
            time.sleep(STALLED_S)


def open_store(folder: Path, create: bool) -> Store:
    """Opens the folder for writing. Raises LogLocked, LogMisconfigured, LogCorrupt, LogUnavailable."""
    try:
        _check_layout(folder, create)
        options = _options()
        options.create_if_missing(create)
        options.create_missing_column_families(create)
        db = Rdict(str(folder / "db"), options, _families(), AccessType.read_write())
        (folder / "pid").write_text(f"{os.getpid()}\n")
    except LogFault:
        raise
    except Exception as error:
        raise fault_of(error, folder) from None
    return Store(folder, db, None)


def open_secondary(folder: Path) -> Store:
    """Opens the folder for reading beside its writer. Raises LogMisconfigured, LogCorrupt, LogUnavailable."""
    own = Path(tempfile.mkdtemp(prefix="fleetlog-reader-"))
    try:
        _check_layout(folder, create=False)
        options = _options()
        # A secondary must hold every file open, because the writer may remove it; each look opens the new ones, and
        # RocksDB starts 15 threads per column family for that unless told otherwise (2 ms a look instead of 30 us).
        options.set_max_open_files(-1)
        options.set_max_file_opening_threads(1)
        db = Rdict(str(folder / "db"), options, _families(), AccessType.secondary(str(own)))
    except Exception as error:
        shutil.rmtree(own, ignore_errors=True)
        if isinstance(error, LogFault):
            raise
        raise fault_of(error, folder) from None
    return Store(folder, db, own)


def _check_layout(folder: Path, create: bool) -> None:
    """Checks the layout that the folder names; names ours in a new folder."""
    path = folder / "layout"
    if not path.exists():
        if (folder / "db").exists():
            raise LogMisconfigured(f"{folder} holds no embedded log that this Fleetlog knows; use another folder.")
        if not create:
            raise LogMisconfigured(f"There is no log in {folder}; make one with `fleetlog log init` or `fleetlog up`.")
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"layout.{os.getpid()}"
        fresh.write_text(f"{LAYOUT_LINE}{LAYOUT}\n")
        fresh.rename(path)
    line = path.read_text(errors="replace").strip()
    number = line.removeprefix(LAYOUT_LINE)
    if not number.isdigit() or not line.startswith(LAYOUT_LINE):
        raise LogMisconfigured(f"{path} does not name the layout of an embedded log; use another folder.")
    if int(number) > LAYOUT:
        raise LogMisconfigured(f"The log in {folder} has layout {number}, newer than this Fleetlog knows: update it.")
    if not create and not (folder / "db" / "CURRENT").exists():
        raise LogMisconfigured(f"The log in {folder} was never finished; make it with `fleetlog log init`.")


def _inputs_key(partition: int) -> bytes:
    return b"inputs" + partition.to_bytes(2, "big")


def _beginning_key(track: Track) -> bytes:
    return b"beginning" + track.partition.to_bytes(2, "big") + track.topic.value.encode()


def _options() -> Options:
    """Options of the database as a whole."""
    options = Options(raw_mode=True)
    # A torn tail is a group that nobody was told of; damage before the end of the write-ahead log is refused, where
    # point-in-time recovery would silently drop all that was acknowledged after it.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_max_total_wal_size(256 * _MIB)
    options.set_db_write_buffer_size(256 * _MIB)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(_MIB)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 * _MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _families() -> dict[str, Options]:
    cache = Cache(64 * _MIB)
    families = {topic.value: _family(cache) for topic in Topic}
    families[Topic.EVENTS.value].set_bottommost_compression_type(DBCompressionType.zstd())
    families[META] = _family(cache)
    families[SNAPSHOTS] = _family(cache)
    families["default"] = _family(cache)
    return families


def _family(cache: Any) -> Options:
    """Options of one column family: written in runs per partition, read forwards."""
    options = Options(raw_mode=True)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_block_size(32 * 1024)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(64 * _MIB)
    options.set_max_write_buffer_number(4)
    # Files of 256 MiB keep the number of open files small; writes are slowed only when compaction is far behind.
    options.set_target_file_size_base(256 * _MIB)
    options.set_max_bytes_for_level_base(512 * _MIB)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(80)
    return options
