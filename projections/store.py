"""The tables in RocksDB: one writer, any number of readers in other processes.

A folder holds `projector.lock` (held by the one projector), `generation` (a number) and `tables-<generation>`, the
RocksDB itself. A rebuild begins a new generation, so that readers never see rows of two formats; they notice the new
number and open it. Rows and positions of a batch are one WriteBatch: both or neither.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from projections.rows import FORMAT_KEY, STAMP_KEY, Table, dump, load, next_key, seal, unseal

FORMAT: Final = 6
"""The format of the rows. Another one in the folder means: build anew."""
MEMTABLE_BYTES: Final = 32 << 20
WAL_BYTES_MAX: Final = 192 << 20
LOG_FILE_BYTES: Final = 1 << 20

Writes = Mapping[bytes, bytes | None]
"""Key -> content (not yet sealed), or None to delete the row."""


class StoreFault(Exception):
    """The tables cannot be used; the message is a sentence that says what to do."""


class StoreMissing(StoreFault):
    """No projector has made tables here yet, or they are of another format."""


class StoreLocked(StoreFault):
    """Another projector writes these tables."""


class StoreCorrupt(StoreFault):
    """A row or file does not match its checksum; it is not served."""


class StoreUnavailable(StoreFault):
    """The file system does not let the tables be read or written."""


class Store:
    """One generation of tables, open for writing (`primary`) or, at a point in time, for reading.

    Methods raise StoreFault. Not for use by two threads at once.
    """

    def __init__(self, path: Path, primary: bool) -> None:
        self.path = path
        self.primary = primary
        self._scratch = None if primary else tempfile.mkdtemp(prefix="fleetlog-tables-")
        access = AccessType.read_write() if self._scratch is None else AccessType.secondary(self._scratch)
        families = {table.value: _options(table, primary) for table in Table if table is not Table.META}
        try:
            self._db = Rdict(str(path), _options(Table.META, primary), families, access)
            self._tables = {
                table: self._db if table is Table.META else self._db.get_column_family(table.value) for table in Table
            }
            self._handles = {
                table: None if table is Table.META else self._db.get_column_family_handle(table.value)
                for table in Table
            }
        except Exception as error:
            self._drop_scratch()
            raise _translated(error, path) from error
        self._stamp = 0
        if primary:
            try:
                self._stamp = self._check_stamps()
            except StoreFault:
                self.close()
                raise

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The content of one row, or None."""
        try:
            value = self._tables[table].get(key)
        except Exception as error:
            raise _translated(error, self.path) from error
        return None if value is None else self._content(table, key, value)

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        """The contents of rows in the order of `keys`, None where there is none."""
        if not keys:
            return []
        try:
            values: Any = self._tables[table].get(list(keys))
        except Exception as error:
            raise _translated(error, self.path) from error
        return [
            None if value is None else self._content(table, key, value) for key, value in zip(keys, values, strict=True)
        ]

    def scan(self, table: Table, start: bytes, end: bytes, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with start <= key < end in the order of keys, or against it. Take what you need and stop."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        try:
            rows = self._tables[table].iter(options)
            if backwards:
                rows.seek_to_last()
            else:
                rows.seek(start)
            while rows.valid():
                key: bytes = rows.key()
                if key < start:  # rocksdict 0.3.29 takes a lower bound and does not keep it
                    break
                yield key, self._content(table, key, rows.value())
                if backwards:
                    rows.prev()
                else:
                    rows.next()
            rows.status()
        except StoreFault:
            raise
        except Exception as error:
            raise _translated(error, self.path) from error

    def write(self, writes: Mapping[Table, Writes]) -> None:
        """Writes and deletes rows of all tables at once: after a crash all are there or none."""
        batch = WriteBatch(raw_mode=True)
        stamp = seal(STAMP_KEY, b"%d" % (self._stamp + 1))
        for handle in self._handles.values():
            batch.put(STAMP_KEY, stamp, handle)
        for table, rows in writes.items():
            handle = self._handles[table]
            for key, content in rows.items():
                if content is None:
                    batch.delete(key, handle)
                else:
                    batch.put(key, seal(key, content), handle)
        try:
            self._db.write(batch)
        except Exception as error:
            raise _translated(error, self.path) from error
        self._stamp += 1

    def catch_up(self) -> None:
        """A reader sees what the projector has written until now."""
        if self.primary:
            return
        try:
            self._db.try_catch_up_with_primary()
        except Exception as error:
            raise _translated(error, self.path) from error
        self._check_stamps()

    def format(self) -> dict[str, Any] | None:
        """The identity of the tables: `format`, `log_id`, `partitions`; None where nobody wrote it."""
        content = self.get(Table.META, FORMAT_KEY)
        return None if content is None else load(content)

    def positions(self, partitions: int) -> dict[int, "At"]:
        """Where the tables stand in each partition that they have begun."""
        keys = [next_key(partition) for partition in range(partitions)]
        contents = self.get_many(Table.META, keys)
        return {p: At(*load(content)) for p, content in enumerate(contents) if content is not None}

    def flush(self) -> None:
        """Writes what is in memory to files (for tests that damage files, and for backups)."""
        try:
            for table in Table:
                self._tables[table].flush(True)
        except Exception as error:
            raise _translated(error, self.path) from error

    def close(self) -> None:
        """Frees files and threads; the writer's last batch is safe without it."""
        for table in Table:
            if table is not Table.META:
                self._tables[table].close()
        self._handles.clear()
        self._db.close()
        self._drop_scratch()

    def _content(self, table: Table, key: bytes, value: bytes) -> bytes:
        content = unseal(key, value)
        if content is None:
            name = "meta" if table is Table.META else table.value
            raise StoreCorrupt(
                f"A row of the projections does not match its checksum (table {name}, key {key!r}, in {self.path}); "
                "it is not served, the projector builds the tables anew from the log."
            )
        return content

    def _check_stamps(self) -> int:
        """All tables were written last by the same batch: RocksDB opens a table for reading although a file of it is
        missing, and serves what it had before, or nothing."""
        stamps = {int(self.get(table, STAMP_KEY) or 0) for table in Table}
        if len(stamps) > 1:
            raise StoreCorrupt(
                f"Files of the projections in {self.path} are missing or damaged (tables stand at the batches "
                f"{sorted(stamps)}); they are not served, the projector builds them anew from the log."
            )
        return stamps.pop()

    def _drop_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class At:
    """The position in one partition: the `next` offset to fold, and the `last` event folded with its chain hash."""

    __slots__ = ("hash", "last", "next")

    def __init__(self, next_offset: int, last: int = -1, hash_hex: str = "") -> None:
        self.next = next_offset
        self.last = last
        self.hash = hash_hex

    def dump(self) -> bytes:
        """The content of its row."""
        return dump([self.next, self.last, self.hash])


class Folder:
    """The folder of the projections: who writes, and which generation is current."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def lock(self) -> None:
        """Makes this process the one projector. Raises StoreLocked, StoreUnavailable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "projector.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _translated(error, self.path) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise StoreLocked(
                f"The projections folder {self.path} is in use by another projector"
                f"{f' (process {owner})' if owner else ''}: stop it, or give this one a folder of its own."
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._lock = handle

    def unlock(self) -> None:
        """Lets another projector write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def generation(self) -> int | None:
        """The number of the current generation, or None where there is none."""
        try:
            text = (self.path / "generation").read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _translated(error, self.path) from error
        return int(text) if text.isdigit() else None

    def opened(self, generation: int | None) -> tuple[int, int] | None:
        """What differs each time a projector opens this generation; None where there is none.

        A reader must open it anew then: what a projector wrote just before it died comes to readers as files, and rows
        that a reader holds from before would hide them (RocksDB looks at those first).
        """
        try:
            current = (self.tables(generation or 0) / "CURRENT").stat()
        except OSError:
            return None
        return current.st_ino, current.st_mtime_ns

    def tables(self, generation: int) -> Path:
        """Where the RocksDB of a generation lies."""
        return self.path / f"tables-{generation}"

    def open_current(self) -> Store | None:
        """The current generation for writing, or None where there is none. Raises StoreFault."""
        generation = self.generation()
        if generation is None or not self.tables(generation).is_dir():
            return None
        return Store(self.tables(generation), primary=True)

    def begin(self, log_id: str, partitions: int) -> Store:
        """A new, empty generation; it becomes the current one, former ones are removed."""
        numbers = [int(path.name[7:]) for path in self.path.glob("tables-*") if path.name[7:].isdigit()]
        generation = max([self.generation() or 0, *numbers]) + 1
        store = Store(self.tables(generation), primary=True)
        identity = {"format": FORMAT, "log_id": log_id, "partitions": partitions}
        store.write({Table.META: {FORMAT_KEY: dump(identity)}})
        try:
            fresh = self.path / "generation.new"
            fresh.write_text(f"{generation}\n", "ascii")
            os.replace(fresh, self.path / "generation")
        except OSError as error:
            store.close()
            raise _translated(error, self.path) from error
        for number in numbers:
            shutil.rmtree(self.tables(number), ignore_errors=True)
        return store

    def report_corrupt(self, path: Path, sentence: str) -> None:
        """A reader tells the projector that the generation at `path` is damaged (as far as it may write here)."""
        with contextlib.suppress(OSError):
            (self.path / f"damaged-{path.name}").write_text(sentence, "utf-8")

    def reported_corrupt(self, path: Path) -> str | None:
        """What a reader said about the generation at `path`, taken once."""
        note = self.path / f"damaged-{path.name}"
        try:
            sentence = note.read_text("utf-8")
            note.unlink()
        except OSError:
            return None
        return sentence


def open_reader(folder: Folder) -> Store:
    """The current generation for reading beside the projector. Raises StoreMissing and other StoreFaults."""
    generation = folder.generation()
    if generation is None:
        raise StoreMissing(f"There are no projections in {folder.path} yet: start `fleetlog projector` on this folder.")
    try:
        store = Store(folder.tables(generation), primary=False)
    except StoreFault as error:
        if folder.generation() != generation:
            return open_reader(folder)
        raise error
    try:
        store.catch_up()
        identity = store.format()
    except StoreFault:
        store.close()
        raise
    if identity is None or identity.get("format") != FORMAT:
        store.close()
        raise StoreMissing(
            f"The projections in {folder.path} are of another format than this version reads: "
            "run gateway and projector in the same version."
        )
    return store


def _options(table: Table, primary: bool) -> Options:
    options = Options(raw_mode=True)
    # Readers must keep every file open. One thread opens them: the default of 16 is started anew at each catch-up,
    # which makes it take 5 ms instead of 30 microseconds (seen).
    options.set_max_open_files(-1)
    options.set_max_file_opening_threads(1)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(LOG_FILE_BYTES)
    options.set_stats_dump_period_sec(0)
    if not primary:
        return options
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    if table is Table.TASKS:
        # Every submission asks for a task that is most likely not there.
        blocks.set_bloom_filter(10, False)
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(0.05)
    if table is Table.INDEX:
        # Waiting tasks come and go at one end of the index: without this, scans wade through deleted rows.
        options.add_compact_on_deletion_collector_factory(1024, 512, 0.5)
    options.set_block_based_table_factory(blocks)
    return options


def _translated(error: Exception, path: Path) -> StoreFault:
    text = str(error).strip()
    if "lock hold" in text or "LOCK" in text:
        return StoreLocked(
            f"The projections in {path} are in use by another projector: stop it, or give this one a folder of its own."
        )
    if text.startswith("Corruption") or "CURRENT file" in text or "No such file" in text:
        return StoreCorrupt(
            f"The projections in {path} are damaged ({text}); they are not served, the projector builds them anew "
            "from the log."
        )
    if "Column famil" in text:
        return StoreMissing(f"The projections in {path} are incomplete ({text}): start `fleetlog projector` anew.")
    return StoreUnavailable(
        f"The projections in {path} cannot be used ({text}): check free space and permissions of the folder."
    )
