"""The contract of the log port: what every adapter must do, in the same words for all of them.

A test file of an adapter subclasses `LogContract` and gives the fixture `site`; a `Site` is one test's log, and what
the world does to it: other owners, lost answers, flipped bits. `python -m tests.streams.contract <module>:<function>
<address>` is the process that `kill -9` meets: the function opens the log at the address.
"""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import pytest

from commands.settings import FORMAT
from streams import log_format
from streams.port import (
    RECORD_BYTES_MAX,
    VALUE_BYTES_MAX,
    Fenced,
    Follower,
    Headers,
    Log,
    LogBusy,
    LogCorrupt,
    LogFault,
    LogMisconfigured,
    LogReader,
    NoSuchPartition,
    Output,
    Record,
    RecordTooLarge,
    Seat,
    SeatLost,
    Snapshot,
    TakenOver,
    Topic,
    partition_of,
)

CEILING_S = 60.0
"""How long a test waits for what must happen; no test asserts that anything is faster."""
RECORD_OVERHEAD_BYTES = 1_000
"""What a record of the largest size may lose to the key, headers and framing of an adapter."""


class Site(ABC):
    """One test's log and what happens to it from outside. Closed by the fixture that made it."""

    partitions: int = 3
    reports_strictly_first: bool = True
    """Whether acknowledged reports always come before, or together with, commands in `fetch`."""

    @abstractmethod
    def open(self) -> Log:
        """Opens the log, with everything that former openings wrote. At most one is open; closing twice is allowed."""

    @abstractmethod
    def usurp(self, log: Log, former: Seat) -> Seat:
        """Another owner's seat of the same partition, already taken over and started, against the former's will."""

    @abstractmethod
    def lose_next_answer(self, log: Log) -> None:
        """The next `commit` reaches the log and is written, but its answer does not come back."""

    @abstractmethod
    def lose_next_commit(self, log: Log) -> None:
        """The next `commit` fails before anything of it is written; the one after it may succeed."""

    @abstractmethod
    def stalled(self, log: Log) -> AbstractContextManager[None]:
        """While it lasts, the log takes what is appended but makes nothing durable."""

    @abstractmethod
    def corrupt_record(self, log: Log, topic: Topic, partition: int, offset: int) -> Log:
        """Flips a bit in a stored record; returns the log to read it with (opened anew where that is needed)."""

    @abstractmethod
    def corrupt_snapshot(self, log: Log, partition: int, position: int) -> Log:
        """Flips a bit in a chunk of the snapshot at `position`; returns the log to find it with."""

    def child(self) -> list[str] | None:
        """`<module>:<function>` and address for a process of its own, or None where the log ends with its process."""
        return None


class Members:
    """One membership among the owners, and its seats as they come and go."""

    def __init__(self, log: Log, name: str = "first") -> None:
        self._changed = threading.Condition()
        self.seats: dict[int, Seat] = {}
        self.lost: list[Seat] = []
        self.ownership = log.own(name, self._taken, self._lost)

    def _taken(self, seat: Seat) -> None:
        with self._changed:
            self.seats[seat.partition] = seat
            self._changed.notify_all()

    def _lost(self, seat: Seat) -> None:
        with self._changed:
            self.lost.append(seat)
            if self.seats.get(seat.partition) is seat:
                del self.seats[seat.partition]
            self._changed.notify_all()

    def seat(self, partition: int) -> Seat:
        """The seat of `partition`, as soon as it is ours."""
        with self._changed:
            assert self._changed.wait_for(lambda: partition in self.seats, CEILING_S), f"no seat of {partition}"
            return self.seats[partition]

    def wait_lost(self, seat: Seat) -> None:
        """Returns when `seat` was said to be lost."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(s is seat for s in self.lost), CEILING_S), "not lost"


def own(log: Log, partition: int, name: str = "first") -> tuple[Members, Seat, TakenOver]:
    """Joins as an owner, takes `partition` over and starts it."""
    members = Members(log, name)
    seat = members.seat(partition)
    taken = seat.take_over()
    seat.start()
    return members, seat, taken


def pool_on(partition: int, partitions: int, number: int = 0) -> str:
    """The `number`-th pool name that lies on `partition`."""
    names = (f"pool-{i}" for i in range(10_000))
    fitting = [
        name for _, name in zip(range(4_000), names, strict=False) if partition_of(name, partitions) == partition
    ]
    return fitting[number]


class Acks:
    """Collects what `done` is called with."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.answers: list[tuple[LogFault | None, int]] = []

    def __call__(self, fault: LogFault | None, offset: int) -> None:
        with self._changed:
            self.answers.append((fault, offset))
            self._changed.notify_all()

    def wait(self, count: int) -> list[tuple[LogFault | None, int]]:
        """Returns all answers when there are `count` of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.answers) >= count, CEILING_S), "not acknowledged"
            return list(self.answers)


def put(log: Log, topic: Topic, pool: str, values: Iterable[bytes], headers: Headers = ()) -> list[int]:
    """Appends `values`, waits until all are durable, returns their offsets."""
    acks, count = Acks(), 0
    for value in values:
        log.append(topic, pool, value, headers, acks)
        count += 1
    answers = acks.wait(count)
    assert [fault for fault, _ in answers if fault] == []
    return [offset for _, offset in answers]


def read(reader: LogReader, topic: Topic, partition: int, start: int | None = None) -> list[Record]:
    """Everything of one partition that is visible now, from `start` (default: the beginning) on."""
    first = reader.beginning(topic, partition) if start is None else start
    end = reader.end(topic, partition)
    follower = reader.follow(topic, {partition: first})
    try:
        records: list[Record] = []
        give_up = time.monotonic() + CEILING_S
        while follower.positions()[partition] < end:
            records += follower.poll(500, 0.2)
            assert time.monotonic() < give_up, f"stuck at {follower.positions()} of {end}"
        return records
    finally:
        follower.close()


def values(records: Iterable[Record]) -> list[bytes]:
    """The values of `records`."""
    return [record.value for record in records]


def fetch_all(seat: Seat, reports: int, commands: int, commands_max: int = 500) -> tuple[list[Record], list[Record]]:
    """Fetches until so many reports and commands came."""
    got_reports: list[Record] = []
    got_commands: list[Record] = []
    give_up = time.monotonic() + CEILING_S
    while len(got_reports) < reports or len(got_commands) < commands:
        fetched = seat.fetch(commands_max, 0.2)
        assert len(fetched.commands) <= commands_max
        got_reports += fetched.reports
        got_commands += fetched.commands
        assert time.monotonic() < give_up, f"{len(got_reports)} reports, {len(got_commands)} commands"
    return got_reports, got_commands


def snapshot(position: int, incarnation: str = "a", chunks: Sequence[bytes] = (b"one", b"two")) -> Snapshot:
    """A small snapshot that tells its position in its first chunk."""
    return Snapshot(position, incarnation, 1_700_000_000_000 + position, (f"at {position}".encode(), *chunks))


class LogContract:
    """What every adapter must do. Subclass it and give the fixture `site`."""

    @pytest.fixture
    def log(self, site: Site) -> Iterable[Log]:
        """The opened log of the site."""
        log = site.open()
        yield log
        log.close()

    # --- appending and reading ---

    def test_an_empty_log_has_a_beginning_an_end_and_no_records(self, site: Site, log: Log) -> None:
        """A log without records can be asked everything."""
        assert log.partitions == site.partitions
        assert log.log_id
        assert log.format >= 1
        for topic in Topic:
            for partition in range(site.partitions):
                assert log.beginning(topic, partition) == log.end(topic, partition)
                assert log.read_at(topic, partition, log.end(topic, partition)) is None
                assert read(log, topic, partition) == []
        follower = log.follow(Topic.EVENTS, {p: log.beginning(Topic.EVENTS, p) for p in range(site.partitions)})
        assert follower.poll(10, 0.0) == []
        follower.close()
        assert log.find_snapshots(0) == []
        assert log.bad_snapshots() == 0

    def test_records_come_back_in_order_and_whole(self, site: Site, log: Log) -> None:
        """Order within a partition is the order of `append`; key, value, headers, offset come back as given."""
        headers: Headers = (("to", b"gateway-1"), ("to", b"second"), ("empty", b""), ("raw", bytes(range(256))))
        pool = pool_on(1, site.partitions)
        before = time.time_ns() // 1_000_000 - 3_600_000
        sent = [f"value {i}".encode() for i in range(300)] + [b"", "ü\0".encode()]
        offsets = put(log, Topic.OUTCOMES, pool, sent, headers)
        assert offsets == sorted(set(offsets))
        records = read(log, Topic.OUTCOMES, 1)
        assert values(records) == sent
        assert [record.offset for record in records] == offsets
        assert {(r.topic, r.partition, r.key, r.headers) for r in records} == {(Topic.OUTCOMES, 1, pool, headers)}
        assert records[0].header("to") == b"gateway-1"
        assert records[0].header("none") is None
        stamps = [record.appended_at for record in records]
        assert stamps == sorted(stamps)
        assert stamps[0] > before
        assert read(log, Topic.OUTCOMES, 0) == []
        assert read(log, Topic.EVENTS, 1) == []

    def test_every_pool_lies_on_its_partition(self, site: Site, log: Log) -> None:
        """Pools spread by murmur2; a reserved pool lies on the partition that it names."""
        pools = [f"hall-{i}" for i in range(20)] + [f"_log-{p}" for p in range(site.partitions)]
        for pool in pools:
            put(log, Topic.COMMANDS, pool, [pool.encode()])
        for partition in range(site.partitions):
            expected = [pool.encode() for pool in pools if partition_of(pool, site.partitions) == partition]
            assert values(read(log, Topic.COMMANDS, partition)) == expected

    def test_a_pool_of_a_partition_that_is_not_there_is_refused(self, site: Site, log: Log) -> None:
        """`_log-<n>` beyond the last partition: a sentence at once, nothing appended, and the log goes on."""
        acks = Acks()
        for beyond in (site.partitions, site.partitions + 95):
            with pytest.raises(NoSuchPartition, match=f"no pool _log-{beyond}: this log has partitions 0 to 2"):
                log.append(Topic.COMMANDS, f"_log-{beyond}", b"lost", (), acks)
        last = site.partitions - 1
        put(log, Topic.COMMANDS, f"_log-{last}", [b"here"])
        assert values(read(log, Topic.COMMANDS, last)) == [b"here"]
        assert acks.answers == []

    def test_the_format_is_raised_for_good_and_never_lowered(
        self, site: Site, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A newer number stays; a lower and an unknown one are refused; software that does not know it stops."""
        monkeypatch.setattr(log_format, "FORMAT", FORMAT + 2)
        log_id, newer = log.log_id, FORMAT + 1
        for _ in range(2):
            log.raise_format(newer)
            assert log.format == newer
        with pytest.raises(LogMisconfigured, match=f"has format {newer} already; a format is never lowered"):
            log.raise_format(FORMAT)
        with pytest.raises(LogMisconfigured, match=f"knows formats up to {FORMAT + 2}, not {FORMAT + 3}"):
            log.raise_format(FORMAT + 3)
        log.close()
        again = site.open()
        assert (again.log_id, again.format) == (log_id, newer)
        put(again, Topic.COMMANDS, pool_on(0, site.partitions), [b"goes on"])
        again.close()
        monkeypatch.undo()
        with pytest.raises(LogMisconfigured, match=f"has format {newer}, this Fleetlog knows formats up to {FORMAT}"):
            site.open()

    def test_a_single_record_can_be_read_at_its_offset(self, site: Site, log: Log) -> None:
        """`read_at` gives exactly that record, or None."""
        offsets = put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a", b"b", b"c"])
        found = log.read_at(Topic.COMMANDS, 0, offsets[1])
        assert found is not None
        assert (found.value, found.offset) == (b"b", offsets[1])
        assert log.read_at(Topic.COMMANDS, 0, log.end(Topic.COMMANDS, 0) + 5) is None
        assert log.read_at(Topic.REPORTS, 0, offsets[1]) is None

    def test_the_largest_records_pass_and_larger_ones_are_refused_at_once(self, site: Site, log: Log) -> None:
        """1 MB minus overhead is taken; beyond it `RecordTooLarge`, and the log goes on."""
        pool = pool_on(0, site.partitions)
        largest = bytes(RECORD_BYTES_MAX - RECORD_OVERHEAD_BYTES)
        biggest_value = b"v" * VALUE_BYTES_MAX
        acks = Acks()
        with pytest.raises(RecordTooLarge):
            log.append(Topic.COMMANDS, pool, bytes(RECORD_BYTES_MAX + 1), (), acks)
        with pytest.raises(RecordTooLarge):
            log.append(Topic.COMMANDS, pool, b"", (("big", bytes(RECORD_BYTES_MAX)),), acks)
        put(log, Topic.COMMANDS, pool, [largest, biggest_value, b"small"])
        assert values(read(log, Topic.COMMANDS, 0)) == [largest, biggest_value, b"small"]
        assert acks.answers == []

    def test_what_was_written_is_there_after_opening_again(self, site: Site, log: Log) -> None:
        """Records, input positions, log id and ends outlive closing."""
        put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a", b"b"])
        members, seat, taken = own(log, 0)
        _, commands = fetch_all(seat, 0, 2)
        seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, commands[0].offset + 1)
        members.ownership.close()
        ends = [log.end(topic, 0) for topic in Topic]
        log_id = log.log_id
        log.close()
        again = site.open()
        try:
            assert again.log_id == log_id
            assert [again.end(topic, 0) for topic in Topic] == ends
            assert values(read(again, Topic.EVENTS, 0)) == [b"e"]
            _, seat, taken = own(again, 0, "second")
            assert taken.commands_next == commands[0].offset + 1
            assert values(fetch_all(seat, 0, 1)[1]) == [b"b"]
        finally:
            again.close()

    # --- following ---

    def test_a_follower_starts_in_the_middle_and_at_the_end(self, site: Site, log: Log) -> None:
        """From a record's offset that record is the first; from the end only what comes later."""
        pool = pool_on(0, site.partitions)
        offsets = put(log, Topic.OUTCOMES, pool, [b"0", b"1", b"2", b"3"])
        assert values(read(log, Topic.OUTCOMES, 0, offsets[2])) == [b"2", b"3"]
        follower = log.follow(Topic.OUTCOMES, {0: log.end(Topic.OUTCOMES, 0)})
        assert follower.poll(10, 0.0) == []
        put(log, Topic.OUTCOMES, pool, [b"4"])
        assert values(self._poll_until(follower, 1)) == [b"4"]
        follower.close()

    def test_positions_lead_on_without_repeat_or_gap(self, site: Site, log: Log) -> None:
        """A follower that starts at another's positions sees exactly the rest, and both come to the end."""
        count = 60
        for i in range(count):
            put(log, Topic.OUTCOMES, f"pool-{i}", [f"{i}".encode()])
        starts = {p: log.beginning(Topic.OUTCOMES, p) for p in range(site.partitions)}
        ends = {p: log.end(Topic.OUTCOMES, p) for p in range(site.partitions)}
        follower = log.follow(Topic.OUTCOMES, starts)
        first = follower.poll(25, CEILING_S)
        assert 0 < len(first) <= 25
        middle = follower.positions()
        follower.close()
        follower = log.follow(Topic.OUTCOMES, middle)
        rest: list[Record] = []
        give_up = time.monotonic() + CEILING_S
        while follower.positions() != ends:
            rest += follower.poll(7, 0.1)
            assert time.monotonic() < give_up, follower.positions()
        follower.close()
        assert sorted(values(first + rest)) == sorted(f"{i}".encode() for i in range(count))

    def test_positions_reach_the_end_across_whatever_a_transaction_leaves(self, site: Site, log: Log) -> None:
        """After the last visible record of committed batches a follower stands at `end`, gaps or not."""
        _, seat, taken = own(log, 0)
        for i in range(3):
            seat.commit([Output(Topic.EVENTS, "p", f"{i}".encode())], taken.reports_next, taken.commands_next)
        assert values(read(log, Topic.EVENTS, 0)) == [b"0", b"1", b"2"]
        follower = log.follow(Topic.EVENTS, {0: log.beginning(Topic.EVENTS, 0)})
        give_up = time.monotonic() + CEILING_S
        while follower.positions()[0] != log.end(Topic.EVENTS, 0):
            follower.poll(1, 0.1)
            assert time.monotonic() < give_up, follower.positions()
        follower.close()

    def test_an_offset_outside_what_is_kept_is_refused_at_the_first_poll(self, site: Site, log: Log) -> None:
        """Beyond the end is a fault, never silence."""
        put(log, Topic.EVENTS, pool_on(0, site.partitions), [b"a"])
        follower = log.follow(Topic.EVENTS, {0: log.end(Topic.EVENTS, 0) + 1_000})
        try:
            with pytest.raises(LogFault):
                self._poll_until(follower, 1)
        finally:
            follower.close()

    def test_a_waiting_follower_gets_what_comes(self, site: Site, log: Log) -> None:
        """A `poll` that waits ends with the first record, and `wake` ends it without one."""
        follower = log.follow(Topic.OUTCOMES, {p: log.beginning(Topic.OUTCOMES, p) for p in range(site.partitions)})
        got: list[list[Record]] = []
        thread = threading.Thread(target=lambda: got.append(self._poll_until(follower, 1, wait_s=CEILING_S)))
        thread.start()
        put(log, Topic.OUTCOMES, "somebody", [b"now"])
        thread.join(CEILING_S)
        assert [values(records) for records in got] == [[b"now"]]

        started = time.monotonic()
        thread = threading.Thread(target=lambda: got.append(follower.poll(10, 10 * CEILING_S)))
        thread.start()
        follower.wake()
        thread.join(CEILING_S)
        assert not thread.is_alive(), time.monotonic() - started
        assert got[1] == []
        follower.close()

    # --- owning ---

    def test_an_owner_begins_at_the_beginning(self, site: Site, log: Log) -> None:
        """Where nothing was committed yet, both input positions are the beginning and the events are empty."""
        put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a"])
        _, seat, taken = own(log, 0)
        assert taken.reports_next == log.beginning(Topic.REPORTS, 0)
        assert taken.commands_next == log.beginning(Topic.COMMANDS, 0)
        assert taken.events_end == log.end(Topic.EVENTS, 0)
        assert seat.partition == 0
        assert not seat.lost()
        assert values(fetch_all(seat, 0, 1)[1]) == [b"a"]

    def test_reports_are_drained_before_commands(self, site: Site, log: Log) -> None:
        """All reports, then at most `commands_max` commands, each in order, none twice."""
        pool = pool_on(0, site.partitions)
        put(log, Topic.COMMANDS, pool, (f"c{i}".encode() for i in range(250)))
        put(log, Topic.REPORTS, pool, (f"r{i}".encode() for i in range(300)))
        put(log, Topic.REPORTS, pool_on(1, site.partitions), [b"of another partition"])
        _, seat, _ = own(log, 0)
        reports: list[Record] = []
        commands: list[Record] = []
        give_up = time.monotonic() + CEILING_S
        while len(commands) < 250 or len(reports) < 300:
            fetched = seat.fetch(100, 0.2)
            reports += fetched.reports
            commands += fetched.commands
            assert len(fetched.commands) <= 100
            if fetched.commands and site.reports_strictly_first:
                assert len(reports) == 300
            assert time.monotonic() < give_up
        assert values(reports) == [f"r{i}".encode() for i in range(300)]
        assert values(commands) == [f"c{i}".encode() for i in range(250)]
        assert seat.fetch(100, 0.0).commands == seat.fetch(100, 0.0).reports == []

    def test_reports_end_is_asked_now(self, site: Site, log: Log) -> None:
        """The end of reports is beyond every acknowledged report, fetched or not."""
        _, seat, _ = own(log, 0)
        before = seat.reports_end()
        assert before == log.end(Topic.REPORTS, 0)
        offsets = put(log, Topic.REPORTS, pool_on(0, site.partitions), [b"a", b"b"])
        assert seat.reports_end() > offsets[-1] >= before

    def test_outputs_and_input_positions_are_committed_together(self, site: Site, log: Log) -> None:
        """Outputs appear in order with offsets as returned; positions are what the next take-over reads."""
        put(log, Topic.COMMANDS, pool_on(2, site.partitions), [b"a", b"b", b"c"])
        put(log, Topic.REPORTS, pool_on(2, site.partitions), [b"r"])
        _, seat, taken = own(log, 2)
        reports, commands = fetch_all(seat, 1, 3)
        outputs = [
            Output(Topic.EVENTS, "p", b"e0", (("hash", b"\0" * 32),)),
            Output(Topic.OUTCOMES, "p", b"o0", (("to", b"g"),)),
            Output(Topic.EVENTS, "q", b"e1"),
        ]
        offsets = seat.commit(outputs, reports[0].offset + 1, commands[1].offset + 1)
        events = read(log, Topic.EVENTS, 2)
        assert [(e.key, e.value, e.headers, e.offset) for e in events] == [
            ("p", b"e0", (("hash", b"\0" * 32),), offsets[0]),
            ("q", b"e1", (), offsets[1]),
        ]
        assert [(o.value, o.headers) for o in read(log, Topic.OUTCOMES, 2)] == [(b"o0", (("to", b"g"),))]
        again = seat.take_over()
        assert again.reports_next == reports[0].offset + 1
        assert again.commands_next == commands[1].offset + 1
        assert again.events_end == log.end(Topic.EVENTS, 2) > offsets[-1]
        assert taken.commands_next == commands[0].offset
        seat.start()
        assert values(fetch_all(seat, 0, 1)[1]) == [b"c"]

    def test_positions_alone_can_be_committed(self, site: Site, log: Log) -> None:
        """A batch whose inputs caused nothing still moves on."""
        put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a"])
        _, seat, taken = own(log, 0)
        _, commands = fetch_all(seat, 0, 1)
        assert seat.commit([], taken.reports_next, commands[0].offset + 1) == []
        again = seat.take_over()
        assert again.commands_next == commands[0].offset + 1
        assert read(log, Topic.EVENTS, 0) == []

    def test_a_batch_with_a_record_too_large_writes_nothing(self, site: Site, log: Log) -> None:
        """`RecordTooLarge` at commit: no output is visible, no position moved, and the partition can go on."""
        _, seat, taken = own(log, 0)
        outputs = [
            Output(Topic.EVENTS, "p", b"small"),
            Output(Topic.EVENTS, "p", bytes(RECORD_BYTES_MAX + 1)),
            Output(Topic.OUTCOMES, "p", b"small"),
        ]
        with pytest.raises(RecordTooLarge):
            seat.commit(outputs, taken.reports_next, taken.commands_next)
        assert seat.take_over().commands_next == taken.commands_next
        seat.start()
        assert read(log, Topic.EVENTS, 0) == read(log, Topic.OUTCOMES, 0) == []
        seat.commit([Output(Topic.EVENTS, "p", b"next")], taken.reports_next, taken.commands_next)
        assert values(read(log, Topic.EVENTS, 0)) == [b"next"]

    def test_the_former_owner_is_fenced(self, site: Site, log: Log) -> None:
        """After another take-over the former owner writes nothing more; the new one starts from its last commit."""
        put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a", b"b"])
        _, former, taken = own(log, 0)
        _, commands = fetch_all(former, 0, 2)
        former.commit([Output(Topic.EVENTS, "p", b"first")], taken.reports_next, commands[0].offset + 1)
        newer = site.usurp(log, former)
        with pytest.raises((Fenced, SeatLost)):
            former.commit([Output(Topic.EVENTS, "p", b"stale")], taken.reports_next, commands[1].offset + 1)
        _, again = fetch_all(newer, 0, 1)
        assert values(again) == [b"b"]
        newer.commit([Output(Topic.EVENTS, "p", b"second")], taken.reports_next, commands[1].offset + 1)
        assert values(read(log, Topic.EVENTS, 0)) == [b"first", b"second"]
        with pytest.raises((Fenced, SeatLost)):
            former.commit([], taken.reports_next, commands[0].offset + 1)

    def test_a_seat_is_lost_when_its_owner_leaves(self, site: Site, log: Log) -> None:
        """Leaving makes every seat lost first; a lost seat writes and reads nothing, a newcomer gets it."""
        members, seat, taken = own(log, 0)
        members.ownership.close()
        members.wait_lost(seat)
        assert seat.lost()
        for use in (
            seat.take_over,
            lambda: seat.fetch(1, 0.0),
            lambda: seat.commit([Output(Topic.EVENTS, "p", b"x")], taken.reports_next, taken.commands_next),
        ):
            with pytest.raises(SeatLost):
                use()
        _, seat, _ = own(log, 0, "second")
        assert read(log, Topic.EVENTS, 0) == []
        seat.commit([Output(Topic.EVENTS, "p", b"y")], taken.reports_next, taken.commands_next)
        assert values(read(log, Topic.EVENTS, 0)) == [b"y"]

    def test_wake_ends_a_waiting_fetch(self, site: Site, log: Log) -> None:
        """`wake` from another thread, also just before `fetch` begins to wait."""
        _, seat, _ = own(log, 0)
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.append(len(seat.fetch(10, 10 * CEILING_S).commands)))
        thread.start()
        seat.wake()
        thread.join(CEILING_S)
        assert got == [0]

    def test_a_waiting_fetch_gets_what_comes(self, site: Site, log: Log) -> None:
        """A `fetch` that waits ends with the first input of either kind."""
        _, seat, _ = own(log, 0)
        for topic in (Topic.REPORTS, Topic.COMMANDS):
            got: list[tuple[list[bytes], list[bytes]]] = []

            def wait(into: list[tuple[list[bytes], list[bytes]]] = got) -> None:
                fetched = seat.fetch(10, CEILING_S)
                into.append((values(fetched.reports), values(fetched.commands)))

            thread = threading.Thread(target=wait)
            thread.start()
            put(log, topic, pool_on(0, site.partitions), [b"x"])
            thread.join(CEILING_S)
            assert got == [([b"x"], []) if topic is Topic.REPORTS else ([], [b"x"])]

    # --- faults ---

    def test_a_commit_whose_answer_is_lost_happened_once(self, site: Site, log: Log) -> None:
        """Unknown outcome, written: either `commit` resolves it, or a take-over shows that it happened."""
        self._unknown_outcome(site, log, site.lose_next_answer)

    def test_a_commit_that_was_lost_is_made_or_was_not(self, site: Site, log: Log) -> None:
        """Unknown outcome, not written: either `commit` repeats it, or a take-over shows that nothing happened."""
        self._unknown_outcome(site, log, site.lose_next_commit)

    def _unknown_outcome(self, site: Site, log: Log, fault: Callable[[Log], None]) -> None:
        put(log, Topic.COMMANDS, pool_on(0, site.partitions), [b"a", b"b"])
        _, seat, taken = own(log, 0)
        _, commands = fetch_all(seat, 0, 2)
        batch = [Output(Topic.EVENTS, "p", b"e0"), Output(Topic.EVENTS, "p", b"e1"), Output(Topic.OUTCOMES, "p", b"o")]
        fault(log)
        try:
            offsets = seat.commit(batch, taken.reports_next, commands[0].offset + 1)
            assert len(offsets) == 2
        except Fenced:
            again = seat.take_over()
            seat.start()
            if again.commands_next == taken.commands_next:
                assert read(log, Topic.EVENTS, 0) == read(log, Topic.OUTCOMES, 0) == []
                seat.commit(batch, taken.reports_next, commands[0].offset + 1)
        assert values(read(log, Topic.EVENTS, 0)) == [b"e0", b"e1"]
        assert values(read(log, Topic.OUTCOMES, 0)) == [b"o"]
        again = seat.take_over()
        assert again.commands_next == commands[0].offset + 1
        seat.start()
        assert values(fetch_all(seat, 0, 1)[1]) == [b"b"]
        seat.commit([Output(Topic.EVENTS, "p", b"e2")], again.reports_next, commands[1].offset + 1)
        assert values(read(log, Topic.EVENTS, 0)) == [b"e0", b"e1", b"e2"]

    def test_what_waits_to_be_appended_is_bounded(self, site: Site, log: Log) -> None:
        """While nothing becomes durable, `append` says `LogBusy` before memory is full; what it took is kept."""
        pool = pool_on(0, site.partitions)
        acks, taken = Acks(), 0
        value = bytes(100_000)

        def append_for_ever() -> None:
            nonlocal taken
            for _ in range(20_000):
                log.append(Topic.COMMANDS, pool, taken.to_bytes(4, "big") + value, (), acks)
                taken += 1

        with site.stalled(log):
            with pytest.raises(LogBusy):
                append_for_ever()
            assert taken > 0
        answers = acks.wait(taken)
        assert [fault for fault, _ in answers if fault] == []
        numbers = [int.from_bytes(record.value[:4], "big") for record in read(log, Topic.COMMANDS, 0)]
        assert numbers == list(range(taken))
        put(log, Topic.COMMANDS, pool, [b"and on"])

    def test_i5_a_corrupt_record_is_named(self, site: Site, log: Log) -> None:
        """A flipped bit is found at reading; the message names topic, partition and offset."""
        offsets = put(log, Topic.EVENTS, pool_on(1, site.partitions), [b"a" * 200, b"b" * 200, b"c" * 200])
        log = site.corrupt_record(log, Topic.EVENTS, 1, offsets[1])
        for use in (lambda: log.read_at(Topic.EVENTS, 1, offsets[1]), lambda: read(log, Topic.EVENTS, 1)):
            with pytest.raises(LogCorrupt) as fault:
                use()
            for part in ("events", "1", str(offsets[1])):
                assert part in str(fault.value)
        good = log.read_at(Topic.EVENTS, 1, offsets[0])
        assert good is not None
        assert good.value == b"a" * 200

    # --- snapshots ---

    def test_snapshots_are_kept_and_found_newest_first(self, site: Site, log: Log) -> None:
        """Two slots alternate: the last good one outlives the making of the next, older ones go."""
        log.keep_snapshot(0, snapshot(10))
        assert log.find_snapshots(0) == [snapshot(10)]
        log.keep_snapshot(0, snapshot(20, chunks=[bytes(900_000 - i) for i in range(3)]))
        log.keep_snapshot(1, snapshot(5))
        found = log.find_snapshots(0)
        assert found == [snapshot(20, chunks=[bytes(900_000 - i) for i in range(3)]), snapshot(10)]
        log.keep_snapshot(0, snapshot(30, chunks=[]))
        assert [s.position for s in log.find_snapshots(0)] == [30, 20]
        log.keep_snapshot(0, snapshot(40))
        assert [s.position for s in log.find_snapshots(0)] == [40, 30]
        assert log.find_snapshots(1) == [snapshot(5)]
        assert log.bad_snapshots() == 0

    def test_f06_a_corrupt_snapshot_is_skipped_and_counted(self, site: Site, log: Log) -> None:
        """F06: the older good one is found instead, and the metric counts it."""
        log.keep_snapshot(0, snapshot(10))
        log.keep_snapshot(0, snapshot(20))
        log = site.corrupt_snapshot(log, 0, 20)
        assert log.find_snapshots(0) == [snapshot(10)]
        assert log.bad_snapshots() == 1
        log.keep_snapshot(0, snapshot(30))
        assert log.find_snapshots(0)[0] == snapshot(30)

    def test_a_paused_former_owner_cannot_destroy_a_newer_snapshot(self, site: Site, log: Log) -> None:
        """What a former incarnation keeps late takes nothing away from the newer one."""
        log.keep_snapshot(0, snapshot(10, "former"))
        log.keep_snapshot(0, snapshot(20, "newer"))
        log.keep_snapshot(0, snapshot(30, "newer"))
        log.keep_snapshot(0, snapshot(15, "former"))
        log.keep_snapshot(0, snapshot(16, "former"))
        assert log.find_snapshots(0)[:2] == [snapshot(30, "newer"), snapshot(20, "newer")]

    # --- kill -9 ---

    def test_kill_9_loses_nothing_and_decides_nothing_twice(self, site: Site, log: Log) -> None:
        """A child that appends and decides is killed, three times; each command has its one event, in order."""
        child = site.child()
        if child is None:
            # A log in memory ends with its process, so there is nothing to resume.
            return
        log.close()
        for round_ in range(3):
            appended, decided = run_and_kill([*child, str(round_)], decided_at_least=40)
            again = site.open()
            try:
                commands = read(again, Topic.COMMANDS, 0)
                by_offset = {record.offset: record.value for record in commands}
                assert all(by_offset[offset] == value for offset, value in appended)
                members, seat, taken = own(again, 0, f"checker-{round_}")
                expected = [r.value for r in commands if r.offset < taken.commands_next]
                assert len(expected) >= len(decided)
                assert values(read(again, Topic.EVENTS, 0)) == expected
                assert values(read(again, Topic.OUTCOMES, 0)) == expected
                assert not seat.lost()
                members.ownership.close()
            finally:
                again.close()

    # --- helpers ---

    @staticmethod
    def _poll_until(follower: Follower, count: int, wait_s: float = 0.2) -> list[Record]:
        records: list[Record] = []
        give_up = time.monotonic() + CEILING_S
        while len(records) < count:
            records += follower.poll(100, wait_s)
            assert time.monotonic() < give_up, "nothing came"
        return records


def run_and_kill(arguments: list[str], decided_at_least: int) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Runs the child until it decided so many, kills it; gives (offset, value) acknowledged, and values decided."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.streams.contract", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    guard = threading.Timer(5 * CEILING_S, process.kill)
    guard.start()
    lines: list[bytes] = []
    decided = 0
    for line in process.stdout:
        lines.append(line)
        decided += line.startswith(b"decided ")
        if decided == decided_at_least:
            process.send_signal(signal.SIGKILL)
    guard.cancel()
    errors = process.stderr.read().decode()
    assert process.wait() == -signal.SIGKILL, errors
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    appended = [(int(words[1]), words[2]) for words in whole if words[0] == b"appended"]
    return appended, [words[1] for words in whole if words[0] == b"decided"]


def say(line: str) -> None:
    """One whole line to the parent, from any thread."""
    os.write(1, f"{line}\n".encode())


def _append_for_ever(log: Log, pool: str, round_: str) -> None:
    """Appends numbered commands, at most 64 unanswered, and says which are durable."""
    room = threading.Semaphore(64)
    number = 0
    while True:
        room.acquire()
        value = f"{round_}-{number}".encode()

        def done(fault: LogFault | None, offset: int, value: bytes = value) -> None:
            assert fault is None, fault
            say(f"appended {offset} {value.decode()}")
            room.release()

        log.append(Topic.COMMANDS, pool, value, (), done)
        number += 1


def _child(opener: str, address: str, round_: str) -> None:
    """Appends commands and decides them, one event and one outcome each, until it is killed."""
    module, _, function = opener.partition(":")
    log: Log = getattr(importlib.import_module(module), function)(address)
    _, seat, taken = own(log, 0, f"child-{round_}")
    reports_next, commands_next = taken.reports_next, taken.commands_next
    threading.Thread(target=_append_for_ever, args=(log, pool_on(0, log.partitions), round_), daemon=True).start()
    while True:
        fetched = seat.fetch(7, 1.0)
        if not fetched.commands:
            continue
        outputs = [Output(t, r.key, r.value) for r in fetched.commands for t in (Topic.EVENTS, Topic.OUTCOMES)]
        commands_next = fetched.commands[-1].offset + 1
        seat.commit(outputs, reports_next, commands_next)
        for record in fetched.commands:
            say(f"decided {record.value.decode()}")


if __name__ == "__main__":
    _child(*sys.argv[1:4])
