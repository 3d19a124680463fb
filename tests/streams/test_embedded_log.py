"""The embedded log keeps the contract of the port."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streams.embedded_log import EmbeddedLog
from streams.embedded_record import record_key
from streams.local_log import LocalSeat
from streams.port import Log, Seat, Topic
from tests.streams.contract import LogContract, Site


class Faults:
    """The hook of a writer: what is to happen around its writes."""

    def __init__(self) -> None:
        self.raise_at: list[str] = []
        self.writes = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, step: str) -> None:
        if step == "write":
            self.writes += 1
            self.gate.wait()
        if step in self.raise_at:
            self.raise_at.remove(step)
            raise OSError(f"Input/output error at {step}")


class EmbeddedSite(Site):
    """A folder; one opening at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = Faults()
        self.opened: list[EmbeddedLog] = []

    def open(self) -> EmbeddedLog:
        self.opened.append(EmbeddedLog.open(self.folder, partitions=self.partitions, hook=self.faults))
        return self.opened[-1]

    def close(self) -> None:
        for log in self.opened:
            log.close()

    def usurp(self, log: Log, former: Seat) -> Seat:
        assert isinstance(log, EmbeddedLog)
        seat = LocalSeat(log, former.partition)
        seat.take_over()
        seat.start()
        return seat

    def lose_next_answer(self, log: Log) -> None:
        self.faults.raise_at.append("written")

    def lose_next_commit(self, log: Log) -> None:
        self.faults.raise_at.append("write")

    @contextmanager
    def stalled(self, log: Log) -> Iterator[None]:
        self.faults.gate.clear()
        try:
            yield
        finally:
            self.faults.gate.set()

    def corrupt_record(self, log: Log, topic: Topic, partition: int, offset: int) -> Log:
        return self._spoil(log, topic.value, record_key(partition, offset))

    def corrupt_snapshot(self, log: Log, partition: int, position: int) -> Log:
        return self._spoil(log, "snapshots", b"c" + partition.to_bytes(2, "big") + position.to_bytes(8, "big"))

    def _spoil(self, log: Log, family: str, key: bytes) -> Log:
        """Flips the lowest bit of the middle byte of the first value at or after `key`."""
        log.close()
        with raw(self.folder) as db:
            stored = db.get_column_family(family)
            found = stored.iter()
            found.seek(key)
            value = bytearray(found.value())
            value[len(value) // 2] ^= 1
            stored[found.key()] = bytes(value)
            del found
            stored.close()
        return self.open()

    def child(self) -> list[str] | None:
        return [f"{__name__}:open_for_child", str(self.folder)]


@contextmanager
def raw(folder: Path) -> Iterator[Rdict]:
    """The RocksDB of a log that nobody has open."""
    names = Rdict.list_cf(str(folder / "db"), Options(raw_mode=True))
    db = Rdict(str(folder / "db"), Options(raw_mode=True), {name: Options(raw_mode=True) for name in names})
    yield db
    db.close()


def open_for_child(folder: str) -> Log:
    """What the process opens that meets `kill -9`."""
    return EmbeddedLog.open(folder, partitions=EmbeddedSite.partitions)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[EmbeddedSite]:
    """A fresh folder."""
    site = EmbeddedSite(tmp_path / "log")
    yield site
    site.close()


class TestEmbeddedLog(LogContract):
    """The contract."""
