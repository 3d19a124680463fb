"""Reading an embedded log from another process, while it is written, killed and started again."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.embedded_log import EmbeddedLog
from streams.embedded_reader import EmbeddedReader
from streams.embedded_record import record_key
from streams.port import LogBusy, LogCorrupt, LogFault, LogUnavailable, Output, Record, Snapshot, Topic
from tests.streams.contract import CEILING_S, own, put, read, say, snapshot, values
from tests.streams.test_embedded_log import raw

POOL = "_log-0"
PARTITIONS = 2


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """The log that is written, by this process."""
    log = EmbeddedLog.open(tmp_path / "log", partitions=PARTITIONS)
    yield log
    log.close()


@pytest.fixture
def reader(log: EmbeddedLog) -> Iterator[EmbeddedReader]:
    """A reader as another process would open it."""
    reader = EmbeddedReader(log.folder)
    yield reader
    reader.close()


def test_a_reader_sees_what_is_written_at_once(log: EmbeddedLog, reader: EmbeddedReader) -> None:
    """Records, ends, single records and snapshots, also those that no table file holds yet."""
    assert (reader.log_id, reader.format, reader.partitions) == (log.log_id, log.format, log.partitions)
    assert reader.end(Topic.EVENTS, 0) == reader.beginning(Topic.EVENTS, 0) == 0
    assert reader.read_at(Topic.EVENTS, 0, 0) is None
    _, seat, _ = own(log, 0)
    seat.commit([Output(Topic.EVENTS, "p", b"a", (("type", b"T"),)), Output(Topic.EVENTS, "q", b"b")], 0, 0)
    assert reader.end(Topic.EVENTS, 0) == 2
    assert read(reader, Topic.EVENTS, 0) == read(log, Topic.EVENTS, 0)
    assert reader.read_at(Topic.EVENTS, 0, 1) == log.read_at(Topic.EVENTS, 0, 1)
    log.keep_snapshot(1, snapshot(7, chunks=[bytes(900_000 - 1)] * 3))
    assert reader.find_snapshots(1) == log.find_snapshots(1) != []
    assert reader.bad_snapshots() == 0


def test_a_waiting_reader_gets_what_comes_and_can_be_woken(log: EmbeddedLog, reader: EmbeddedReader) -> None:
    """It looks again and again; `wake` ends the wait at once."""
    follower = reader.follow(Topic.EVENTS, dict.fromkeys(range(PARTITIONS), 0))
    got: list[list[Record]] = []
    thread = threading.Thread(target=lambda: got.append(follower.poll(10, CEILING_S)))
    thread.start()
    put(log, Topic.EVENTS, POOL, [b"now"])
    thread.join(CEILING_S)
    assert [values(records) for records in got] == [[b"now"]]
    thread = threading.Thread(target=lambda: got.append(follower.poll(10, 10 * CEILING_S)))
    thread.start()
    follower.wake()
    thread.join(CEILING_S)
    assert got[1:] == [[]]
    assert follower.positions() == {0: 1, 1: 0}


def test_a_waiting_reader_is_cheap(log: EmbeddedLog, reader: EmbeddedReader) -> None:
    """Fifty looks a second cost a small share of a processor (a look that opens all files anew costs a tenth)."""
    put(log, Topic.EVENTS, POOL, [b"x"] * 100)
    follower = reader.follow(Topic.EVENTS, {0: reader.end(Topic.EVENTS, 0), 1: 0})
    cpu, started = time.thread_time(), time.monotonic()
    follower.poll(1, 1.0)
    assert (time.thread_time() - cpu) / (time.monotonic() - started) < 0.1


def test_damage_is_named_to_a_reader_as_well(log: EmbeddedLog) -> None:
    """A flipped bit: topic, partition and offset; what is sound can be read."""
    put(log, Topic.EVENTS, POOL, [b"a" * 50, b"b" * 50])
    log.close()
    with raw(log.folder) as db:
        events = db.get_column_family("events")
        key = record_key(0, 1)
        stored = bytearray(events[key] or b"")
        stored[-1] ^= 1
        events[key] = bytes(stored)
        events.close()
    reader = EmbeddedReader(log.folder)
    try:
        with pytest.raises(LogCorrupt, match="events, partition 0, offset 1 "):
            read(reader, Topic.EVENTS, 0)
        assert values(follow_one(reader)) == [b"a" * 50]
    finally:
        reader.close()


def follow_one(reader: EmbeddedReader) -> list[Record]:
    """The first record of partition 0's events."""
    return reader.follow(Topic.EVENTS, {0: 0}).poll(1, 0.0)


def test_a_closed_reader_says_so(log: EmbeddedLog, reader: EmbeddedReader) -> None:
    """A fault of the log, not RocksDB's; its own files are gone."""
    follower = reader.follow(Topic.EVENTS, {0: 0})
    own_files = reader._store._secondary if reader._store else None
    assert own_files is not None
    assert own_files.exists()
    reader.close()
    reader.close()
    assert not own_files.exists()
    uses: list[Callable[[], object]] = [lambda: follower.poll(1, 0.0), lambda: reader.end(Topic.EVENTS, 0)]
    for use in uses:
        with pytest.raises(LogUnavailable, match="closed"):
            use()


def write_until_killed(folder: str) -> None:
    """Writes as fast as it may, with many small table files and snapshots that come and go."""
    log = EmbeddedLog.open(folder, partitions=PARTITIONS, sync=False)

    def churn() -> None:
        while True:
            log.ask(lambda store: store.flush())
            end = log.end(Topic.EVENTS, 0)
            log.keep_snapshot(0, Snapshot(end, "writer", 0, (end.to_bytes(8, "big"), bytes(500_000))))

    threading.Thread(target=churn, daemon=True).start()
    say("writing")
    number = log.end(Topic.EVENTS, 0)
    while True:
        try:
            log.append(Topic.EVENTS, POOL, f"{number}".encode() + b" " * 200, (), lambda *_: None)
            number += 1
        except LogBusy:
            time.sleep(0.001)
        if number % 500 == 0:
            time.sleep(0.005)


def test_a_reader_outlives_its_writer_and_misses_nothing(tmp_path: Path) -> None:
    """Followed while files are made and removed, through three kills and starts: every record once, in order."""
    reader: EmbeddedReader | None = None
    followed = 0
    for _ in range(3):
        call = "import sys; from tests.streams.test_embedded_log_reader import *; write_until_killed(sys.argv[1])"
        process = subprocess.Popen([sys.executable, "-c", call, str(tmp_path / "log")], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            reader = reader or EmbeddedReader(tmp_path / "log")
            follower = reader.follow(Topic.EVENTS, {0: followed})
            give_up, target = time.monotonic() + CEILING_S, followed + 10_000
            while followed < target:
                assert time.monotonic() < give_up
                followed += check_next(follower.poll(1_000, 1.0), followed)
                for found in reader.find_snapshots(0):
                    assert found.chunks[0] == found.position.to_bytes(8, "big")
        finally:
            process.kill()
            process.wait()
        end = reader.end(Topic.EVENTS, 0)
        while follower.positions()[0] < end:
            followed += check_next(follower.poll(1_000, 1.0), followed)
    assert reader is not None
    assert reader.bad_snapshots() == 0
    reader.close()
    log = EmbeddedLog.open(tmp_path / "log")
    assert log.end(Topic.EVENTS, 0) == followed
    log.close()


def check_next(records: list[Record], number: int) -> int:
    """Checks that the records go on at `number`; how many they are."""
    for record in records:
        assert record.offset == number
        assert int(record.value) == number
        number += 1
    return len(records)


def test_a_reader_needs_no_writer(log: EmbeddedLog) -> None:
    """A log that nobody has open can be read; what it cannot do, it refuses."""
    put(log, Topic.EVENTS, POOL, [b"a"])
    log.close()
    reader = EmbeddedReader(log.folder)
    assert values(read(reader, Topic.EVENTS, 0)) == [b"a"]
    with pytest.raises(LogFault):
        reader.follow(Topic.EVENTS, {0: 5}).poll(1, 0.0)
    reader.close()
