"""The owner's cache of event values: what it remembers, what it forgets, and that it is never needed."""

import logging
from pathlib import Path

import pytest

from streams.body_store import ENTRY_BYTES, BodyStore
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import LogCorrupt, LogUnavailable, Output, Record, Topic
from tests.streams.contract import own


@pytest.fixture
def log() -> MemoryLog:
    """A log of one partition with events of pools `p` (sequence = offset) in one commit."""
    log = MemoryLog(MemoryStore(1))
    _, seat, _ = own(log, 0)
    seat.commit([Output(Topic.EVENTS, "p", f"event {i}".encode()) for i in range(100)], 0, 0)
    return log


class Counted(MemoryLog):
    """Counts how often the log is read."""

    reads = 0

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """As in `LogReader`."""
        self.reads += 1
        return super().read_at(topic, partition, offset)


def test_what_was_put_is_not_read_from_the_log() -> None:
    """Memory answers first; a value put again replaces the former one."""
    bodies = BodyStore(MemoryLog(MemoryStore(1)), 0, None, 10_000)
    bodies.put("p", 1, b"one")
    bodies.put("p", 1, b"uno")
    bodies.put("q", 1, b"other pool")
    assert bodies.get("p", 1, 77) == b"uno"
    assert bodies.get("q", 1, 77) == b"other pool"


def test_a_miss_is_filled_from_the_log_once(log: MemoryLog) -> None:
    """The event at the offset, remembered for the next time."""
    counted = Counted(log.store)
    bodies = BodyStore(counted, 0, None, 10_000)
    assert bodies.get("p", 5, 5) == b"event 5"
    assert bodies.get("p", 5, 5) == b"event 5"
    assert counted.reads == 1


def test_memory_is_bounded_and_the_least_used_goes(log: MemoryLog) -> None:
    """Beyond `bytes_max` the value that was not used for longest is read from the log again."""
    counted = Counted(log.store)
    bodies = BodyStore(counted, 0, None, 3 * (len(b"event 1") + ENTRY_BYTES))
    for i in (1, 2, 3):
        bodies.put("p", i, f"event {i}".encode())
    bodies.get("p", 1, 1)
    bodies.put("p", 4, b"event 4")
    assert bodies._bytes <= 3 * (len(b"event 1") + ENTRY_BYTES)
    assert bodies.get("p", 1, 1) == b"event 1"
    assert counted.reads == 0
    assert bodies.get("p", 2, 2) == b"event 2"
    assert counted.reads == 1
    bodies.put("p", 9, b"far too large for this memory" * 100)
    assert bodies._bytes <= 3 * (len(b"event 1") + ENTRY_BYTES)


def test_what_leaves_memory_stays_on_disk_and_is_thrown_away_at_the_next_start(tmp_path: Path) -> None:
    """With a folder nothing is read from the log; a new store begins empty, so an old value is never believed."""
    empty = MemoryLog(MemoryStore(1))
    bodies = BodyStore(empty, 0, tmp_path / "bodies", 10_000)
    for i in range(200):
        bodies.put("p", i, bytes([i]) * 1_000)
    assert [bodies.get("p", i, 0) for i in range(200)] == [bytes([i]) * 1_000 for i in range(200)]
    second = BodyStore(empty, 0, tmp_path / "bodies", 10_000)
    assert second._disk is None, "in use by the first: the second goes without"
    bodies.close()
    assert not (tmp_path / "bodies").exists()

    left = BodyStore(empty, 0, tmp_path / "bodies", 10)
    left.put("p", 1, b"a value that goes to the disk")
    left._close_disk()
    fresh = BodyStore(empty, 0, tmp_path / "bodies", 10)
    assert fresh._disk is not None
    with pytest.raises(LogCorrupt):
        fresh.get("p", 1, 0)
    fresh.close()


def test_a_disk_that_does_not_work_only_costs_time(log: MemoryLog, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and values come from the log."""
    with caplog.at_level(logging.WARNING):
        bodies = BodyStore(log, 0, Path("/proc/no-such-folder/bodies"), 10)
    assert "is left out" in caplog.text
    bodies.put("p", 1, b"event 1, which goes at once")
    assert bodies.get("p", 3, 3) == b"event 3"


def test_what_the_log_does_not_have_is_a_fault(log: MemoryLog) -> None:
    """A missing offset, another pool's event, a log that is away."""
    bodies = BodyStore(log, 0, None, 10_000)
    with pytest.raises(LogCorrupt, match="Event 7 of pool p is not at events, partition 0, offset 500"):
        bodies.get("p", 7, 500)
    with pytest.raises(LogCorrupt):
        bodies.get("q", 7, 7)
    log.store.away = True
    with pytest.raises(LogUnavailable):
        bodies.get("p", 8, 8)
