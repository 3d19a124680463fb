"""A process that decides: it ends in order at every moment."""

import threading
import time

import pytest

from streams.memory_log import MemoryLog, MemoryStore
from streams.owner import OwnerSettings, PartitionOwner
from streams.processor import Processor


def test_a_processor_that_is_ended_while_it_begins_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that is just beginning is waited for like any other: whoever ends the process early sees no fault."""
    processor = Processor(MemoryLog(MemoryStore(partitions=1)), OwnerSettings(name="owner", software="test"))
    begin = PartitionOwner.start
    faults: list[BaseException] = []

    def end() -> None:
        try:
            processor.close()
        except BaseException as fault:
            faults.append(fault)

    ending = threading.Thread(target=end)

    def begin_late(owner: PartitionOwner) -> None:
        ending.start()
        ending.join(0.2)  # what `close` can do before the owner has begun, it does now
        begin(owner)

    monkeypatch.setattr(PartitionOwner, "start", begin_late)
    processor.start()
    ending.join()

    assert faults == []


def test_owners_that_do_not_end_share_the_time_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight owners that wait for a broker end no later than one."""
    waits: list[float] = []

    def join(owner: PartitionOwner, timeout_s: float | None = None) -> None:
        waits.append(timeout_s or 0.0)
        time.sleep(timeout_s or 0.0)

    processor = Processor(MemoryLog(MemoryStore(partitions=8)), OwnerSettings(name="owner", software="test"))
    processor.start()
    monkeypatch.setattr(PartitionOwner, "join", join)
    processor.close(0.2)
    assert len(waits) == 8
    assert sum(waits) <= 0.2
