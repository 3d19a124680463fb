"""The owner's cache of event values: payloads and checkpoints that its state names only by position.

Everything in it is in the log as well, so it is thrown away at every start, and a fault of its disk only makes it slow.
"""

import logging
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Final

from rocksdict import DBCompactionStyle, FifoCompactOptions, Options, Rdict, WriteOptions

from streams.port import LogCorrupt, LogReader, Topic

DISK_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
ENTRY_BYTES: Final = 300
"""What a value in memory takes beside its own bytes: its key, its place in the order."""

logger = logging.getLogger("fleetlog")


class BodyStore:
    """Values by pool and sequence: in memory up to `bytes_max`, then in a RocksDB in `folder`, then in the log.

    Used by one thread. The RocksDB forgets the oldest beyond `disk_bytes_max`; without a folder there is none.
    """

    def __init__(
        self,
        log: LogReader,
        partition: int,
        folder: Path | None,
        bytes_max: int,
        disk_bytes_max: int = DISK_BYTES_MAX,
    ) -> None:
        self._log = log
        self._partition = partition
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes = 0
        self._values: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._disk: Rdict | None = None
        if folder is not None:
            try:
                self._disk = _open(folder, disk_bytes_max)
            except Exception as error:
                self._go_without_disk(error)

    def put(self, pool: str, sequence: int, value: bytes) -> None:
        """Remembers the value of an event that was written or read."""
        key = (pool, sequence)
        known = self._values.pop(key, None)
        self._bytes += _taken(value) - (0 if known is None else _taken(known))
        self._values[key] = value
        while self._bytes > self._bytes_max:
            oldest, pushed_out = self._values.popitem(last=False)
            self._bytes -= _taken(pushed_out)
            self._put_on_disk(oldest, pushed_out)

    def drop(self, pool: str, sequence: int) -> None:
        """Forgets what was put for an event that may not be in the log: another one may stand there by now."""
        key = (pool, sequence)
        known = self._values.pop(key, None)
        self._bytes -= 0 if known is None else _taken(known)
        if self._disk is not None:
            try:
                self._disk.delete(_key(key), _UNLOGGED)
            except Exception as error:
                self._go_without_disk(error)

    def get(self, pool: str, sequence: int, offset: int) -> bytes:
        """The value of the event of this pool and sequence, which stands at `offset` of the partition's events.

        Raises LogCorrupt where the log does not have it there, LogUnavailable where it does not answer.
        """
        key = (pool, sequence)
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
            return value
        value = self._get_from_disk(key)
        if value is None:
            record = self._log.read_at(Topic.EVENTS, self._partition, offset)
            if record is None or record.key != pool:
                raise LogCorrupt(
                    f"Event {sequence} of pool {pool} is not at events, partition {self._partition}, offset {offset}:"
                    " restore the log from a backup."
                )
            value = record.value
        self.put(pool, sequence, value)
        return value

    def close(self) -> None:
        """Throws the cache away."""
        self._values.clear()
        self._bytes = 0
        if self._disk is not None and self._folder is not None:
            self._close_disk()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _put_on_disk(self, key: tuple[str, int], value: bytes) -> None:
        if self._disk is None:
            return
        try:
            self._disk.put(_key(key), value, _UNLOGGED)
        except Exception as error:
            self._go_without_disk(error)

    def _get_from_disk(self, key: tuple[str, int]) -> bytes | None:
        if self._disk is None:
            return None
        try:
            value: bytes | None = self._disk.get(_key(key))
        except Exception as error:
            self._go_without_disk(error)
            return None
        return value

    def _go_without_disk(self, error: Exception) -> None:
        logger.warning("The cache in %s does not work and is left out: %s", self._folder, error)
        self._close_disk()

    def _close_disk(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.cancel_all_background(True)
        del disk


def _open(folder: Path, disk_bytes_max: int) -> Rdict:
    """A new RocksDB, which is never synced and drops its oldest files beyond the size."""
    if folder.exists():
        Rdict.destroy(str(folder), Options(raw_mode=True))
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compaction_style(DBCompactionStyle.fifo())
    fifo = FifoCompactOptions()
    fifo.max_table_files_size = disk_bytes_max
    options.set_fifo_compaction_options(fifo)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(1)
    return Rdict(str(folder), options)


def _taken(value: bytes) -> int:
    return len(value) + ENTRY_BYTES


def _key(key: tuple[str, int]) -> bytes:
    pool, sequence = key
    return pool.encode() + b"\0" + sequence.to_bytes(8, "big")


_UNLOGGED: Final = WriteOptions()
_UNLOGGED.disable_wal = True  # type: ignore[assignment,method-assign]  # a property, whatever the stubs say
