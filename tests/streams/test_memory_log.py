"""The log in memory keeps the contract of the port, and the faults that simulations set do what they say."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams import local_log
from streams.local_log import LocalSeat
from streams.memory_log import CommitFault, MemoryLog, MemoryStore
from streams.port import Fenced, Log, LogFault, LogUnavailable, Output, Seat, SeatLost, Topic
from tests.streams.contract import Acks, LogContract, Members, Site, own, pool_on, put, read, values


class MemorySite(Site):
    """A store in memory; every opening is a new process on it."""

    def __init__(self) -> None:
        self.store = MemoryStore(self.partitions)

    def open(self) -> Log:
        return MemoryLog(self.store)

    def usurp(self, log: Log, former: Seat) -> Seat:
        seat = LocalSeat(MemoryLog(self.store), former.partition)
        seat.take_over()
        seat.start()
        return seat

    def lose_next_answer(self, log: Log) -> None:
        self.store.next_commits.append(CommitFault.ANSWER_LOST)

    def lose_next_commit(self, log: Log) -> None:
        self.store.next_commits.append(CommitFault.NOT_WRITTEN)

    @contextmanager
    def stalled(self, log: Log) -> Iterator[None]:
        self.store.hold()
        yield
        self.store.release()

    def corrupt_record(self, log: Log, topic: Topic, partition: int, offset: int) -> Log:
        self.store.corrupt.add((topic, partition, offset))
        return log

    def corrupt_snapshot(self, log: Log, partition: int, position: int) -> Log:
        self.store.spoil_snapshot(partition, position)
        return log


@pytest.fixture
def site() -> Site:
    """A fresh store."""
    return MemorySite()


class TestMemoryLog(LogContract):
    """The contract."""


def test_a_follower_behind_whose_position_only_a_marker_lies_does_not_wait() -> None:
    """As one that begins where a snapshot ends, at the last event: it is at the end at once."""
    log = MemoryLog(MemoryStore(1))
    seat = LocalSeat(log, 0)
    taken = seat.take_over()
    [offset] = seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, taken.commands_next)
    follower = log.follow(Topic.EVENTS, {0: offset + 1})
    began = time.monotonic()
    assert follower.poll(10, 60.0) == []
    assert follower.positions() == {0: log.end(Topic.EVENTS, 0)}
    assert time.monotonic() - began < 30


def test_the_newest_member_has_every_partition_and_gives_them_back() -> None:
    """A second process takes over from the first; when it leaves, the first gets new seats."""
    store = MemoryStore(3)
    first = Members(MemoryLog(store), "first")
    former = first.seat(1)
    newer_log = MemoryLog(store)
    second = Members(newer_log, "second")
    first.wait_lost(former)
    assert len(first.lost) == 3
    assert first.seats == {}
    with pytest.raises(SeatLost):
        former.fetch(1, 0.0)
    assert sorted(second.seats) == [0, 1, 2]
    newer_log.close()
    assert len(second.lost) == 3
    assert first.seat(1) is not former
    assert first.seat(1).take_over().commands_next == 0


def test_append_is_answered_at_once_with_the_time_of_the_clock() -> None:
    """Deterministic: the answer comes before `append` returns, stamped by the clock given."""
    log = MemoryLog(MemoryStore(2, log_id="0" * 8, clock=lambda: 42))
    acks = Acks()
    log.append(Topic.COMMANDS, pool_on(1, 2), b"a", (), acks)
    assert acks.answers == [(None, 0)]
    record = log.read_at(Topic.COMMANDS, 1, 0)
    assert record is not None
    assert record.appended_at == 42
    assert log.log_id == "00000000"


def test_commits_leave_gaps() -> None:
    """As on Kafka, so that code which computes with offsets is found out."""
    log = MemoryLog(MemoryStore(1))
    _, seat, _ = own(log, 0)
    assert seat.commit([Output(Topic.EVENTS, "p", b"a"), Output(Topic.EVENTS, "p", b"b")], 0, 0) == [0, 1]
    assert seat.commit([Output(Topic.EVENTS, "p", b"c")], 0, 0) == [3]
    assert log.end(Topic.EVENTS, 0) == 5


def test_a_log_that_is_away_answers_nothing_and_loses_nothing() -> None:
    """Reads raise, appends are refused by their answer, a commit is unknown; afterwards all is as before."""
    store = MemoryStore(1)
    log = MemoryLog(store)
    _, seat, taken = own(log, 0)
    put(log, Topic.COMMANDS, "p", [b"a"])
    store.away = True
    for use in (
        seat.reports_end,
        seat.take_over,
        lambda: log.end(Topic.EVENTS, 0),
        lambda: log.read_at(Topic.COMMANDS, 0, 0),
        lambda: log.find_snapshots(0),
    ):
        with pytest.raises(LogUnavailable):
            use()
    with pytest.raises(Fenced):
        seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, taken.commands_next)
    acks = Acks()
    log.append(Topic.COMMANDS, "p", b"b", (), acks)
    assert [(type(fault), offset) for fault, offset in acks.answers] == [(LogUnavailable, -1)]
    store.away = False
    assert seat.take_over() == taken
    assert values(read(log, Topic.COMMANDS, 0)) == [b"a"]
    assert read(log, Topic.EVENTS, 0) == []


def test_trimmed_offsets_are_refused() -> None:
    """What retention took away is no silence for a follower that stands there."""
    store = MemoryStore(1)
    log = MemoryLog(store)
    put(log, Topic.OUTCOMES, "p", [b"a", b"b", b"c"])
    store.trim(Topic.OUTCOMES, 0, 2)
    assert log.beginning(Topic.OUTCOMES, 0) == 2
    assert values(read(log, Topic.OUTCOMES, 0)) == [b"c"]
    with pytest.raises(LogFault, match="keeps 2 to 3"):
        log.follow(Topic.OUTCOMES, {0: 1}).poll(1, 0.0)


def test_commands_wait_until_more_reports_than_one_fetch_takes_are_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reports are beyond the bound of one `fetch`, no command comes before the last of them."""
    monkeypatch.setattr(local_log, "REPORTS_MAX", 10)
    log = MemoryLog(MemoryStore(1))
    put(log, Topic.COMMANDS, "p", [b"c"])
    put(log, Topic.REPORTS, "p", [b"r"] * 25)
    _, seat, _ = own(log, 0)
    fetched = [seat.fetch(500, 0.0) for _ in range(4)]
    assert [(len(f.reports), len(f.commands)) for f in fetched] == [(10, 0), (10, 0), (5, 1), (0, 0)]
