"""The writing thread of the embedded log: groups, answers, faults, retention, and what it costs when idle."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import streams.embedded_writer as embedded_writer
from streams.embedded_log import EmbeddedLog
from streams.embedded_reader import EmbeddedReader
from streams.port import Fenced, LogFault, LogUnavailable, Output, Topic
from tests.streams.contract import CEILING_S, Acks, LogContract, Members, own, put, read, values
from tests.streams.test_embedded_log import EmbeddedSite, Faults

HOUR_MS = 3_600_000
Opener = Callable[..., EmbeddedLog]


class UnsyncedSite(EmbeddedSite):
    """A folder whose log does not wait for the disk."""

    def open(self) -> EmbeddedLog:
        self.opened.append(EmbeddedLog.open(self.folder, partitions=self.partitions, sync=False, hook=self.faults))
        return self.opened[-1]

    def child(self) -> list[str] | None:
        return [f"{__name__}:open_unsynced", str(self.folder)]


def open_unsynced(folder: str) -> EmbeddedLog:
    """What the process opens that meets `kill -9`."""
    return EmbeddedLog.open(folder, partitions=EmbeddedSite.partitions, sync=False)


class TestWithoutSync(LogContract):
    """The contract holds without waiting for the disk as well, `kill -9` included."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[EmbeddedSite]:
        """A fresh folder."""
        site = UnsyncedSite(tmp_path / "log")
        yield site
        site.close()


@pytest.fixture
def faults() -> Faults:
    """What is to happen around the writes of this test's log."""
    return Faults()


@pytest.fixture
def opened(tmp_path: Path, faults: Faults) -> Iterator[Opener]:
    """Opens the log of this test, and closes what was opened."""
    logs: list[EmbeddedLog] = []

    def opener(**options: object) -> EmbeddedLog:
        logs.append(EmbeddedLog.open(tmp_path / "log", **options))  # type: ignore[arg-type]
        return logs[-1]

    yield opener
    faults.gate.set()
    for log in logs:
        log.close()


def wait_until(true: Callable[[], bool]) -> None:
    """Returns when it is true."""
    give_up = time.monotonic() + CEILING_S
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_what_many_threads_write_becomes_one_group(opened: Opener, faults: Faults) -> None:
    """While one group is written the others gather; all become durable together, each told after that."""
    log = opened(partitions=4, hook=faults)
    members = Members(log)
    seats = [members.seat(p) for p in range(4)]
    for seat in seats:
        seat.take_over()
    before = faults.writes
    faults.gate.clear()
    acks = Acks()
    log.append(Topic.COMMANDS, "_log-0", b"first", (), acks)
    wait_until(lambda: faults.writes == before + 1)
    threads = [
        threading.Thread(target=seat.commit, args=([Output(Topic.EVENTS, "p", b"e")], 0, i))
        for i, seat in enumerate(seats)
    ]
    for thread in threads:
        thread.start()
    for i in range(100):
        log.append(Topic.COMMANDS, "_log-1", f"{i}".encode(), (), acks)
    wait_until(lambda: len(log._writer._queue) == 104)
    assert acks.answers == []
    assert log.end(Topic.COMMANDS, 1) == 0
    faults.gate.set()
    acks.wait(101)
    for thread in threads:
        thread.join(CEILING_S)
    assert faults.writes == before + 2
    assert [offset for _, offset in acks.answers] == [0, *range(100)]
    assert [values(read(log, Topic.EVENTS, p)) for p in range(4)] == [[b"e"]] * 4


def test_a_group_is_bounded(opened: Opener, faults: Faults) -> None:
    """However much waits, a group ends after some megabytes, and order stays."""
    log = opened(partitions=1, hook=faults)
    faults.gate.clear()
    acks = Acks()
    for i in range(50):
        log.append(Topic.COMMANDS, "_log-0", bytes([i]) * 500_000, (), acks)
    sizes: list[int] = []
    original = log._writer._make_durable

    def counted(items: list[object]) -> None:
        sizes.append(len(items))
        original(items)  # type: ignore[arg-type]

    log._writer._make_durable = counted  # type: ignore[method-assign,assignment]
    faults.gate.set()
    acks.wait(50)
    assert max(sizes) <= embedded_writer.GROUP_BYTES_MAX // 500_000 + 1
    assert [offset for _, offset in acks.answers] == list(range(50))
    assert [value[0] for value in values(read(log, Topic.COMMANDS, 0))] == list(range(50))


def test_what_is_told_may_fail(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    """A callback that raises is logged; the writer and the other callbacks go on."""
    log = opened(partitions=1)

    def broken(fault: LogFault | None, offset: int) -> None:
        raise ValueError("of the caller")

    with caplog.at_level(logging.ERROR):
        log.append(Topic.COMMANDS, "_log-0", b"a", (), broken)
        assert put(log, Topic.COMMANDS, "_log-0", [b"b"]) == [1]
    assert "of the caller" in caplog.text


def test_a_log_that_cannot_write_refuses_and_goes_on_when_it_can(opened: Opener) -> None:
    """Everybody hears a sentence at once; commits are Fenced, reads go on; later all is as if nothing had been."""
    failing = threading.Event()

    def hook(step: str) -> None:
        if step == "write" and failing.is_set():
            raise OSError("No space left on device")

    log = opened(partitions=1, hook=hook)
    _, seat, taken = own(log, 0)
    put(log, Topic.COMMANDS, "_log-0", [b"a"])
    failing.set()
    acks = Acks()
    log.append(Topic.COMMANDS, "_log-0", b"b", (), acks)
    ((fault, offset),) = acks.wait(1)
    assert isinstance(fault, LogUnavailable)
    assert offset == -1
    assert "is full; make room" in str(fault)
    with pytest.raises(Fenced, match="is full; make room"):
        seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, taken.commands_next + 1)
    with pytest.raises(LogUnavailable, match="is full; make room"):
        seat.take_over()
    assert values(read(log, Topic.COMMANDS, 0)) == [b"a"]
    failing.clear()
    give_up = time.monotonic() + CEILING_S
    while True:
        try:
            assert seat.take_over() == taken
            break
        except LogUnavailable:
            assert time.monotonic() < give_up
            time.sleep(0.02)
    seat.start()
    assert seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, taken.commands_next) == [0]
    assert put(log, Topic.COMMANDS, "_log-0", [b"c"]) == [1]


def test_a_writer_that_must_wait_for_compaction_tries_again(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB says `incomplete` where it would otherwise stop every thread: nothing is lost or doubled."""
    log = opened(partitions=1)
    real = log._writer.store.db
    refusals = [1] * 3

    class Behind:
        def write(self, batch: object, options: object) -> None:
            if refusals:
                refusals.pop()
                raise Exception("Result incomplete: Write stall")
            real.write(batch, options)  # type: ignore[arg-type]

        def flush_wal(self, sync: bool) -> None:
            real.flush_wal(sync)

    monkeypatch.setattr(log._writer.store, "db", Behind())
    assert put(log, Topic.EVENTS, "_log-0", [b"a", b"b"]) == [0, 1]
    assert refusals == []
    assert values(read(log, Topic.EVENTS, 0)) == [b"a", b"b"]
    monkeypatch.undo()


def test_an_idle_log_with_waiting_owners_costs_nothing(opened: Opener) -> None:
    """Twelve owners and a follower of everything wait without looking, also after something came."""
    log = opened(partitions=12)
    members = Members(log)
    seats = [members.seat(p) for p in range(12)]
    for seat in seats:
        seat.take_over()
        seat.start()
    follower = log.follow(Topic.OUTCOMES, dict.fromkeys(range(12), 0))
    for partition, seat in enumerate(seats):
        put(log, Topic.COMMANDS, f"_log-{partition}", [b"c"])
        put(log, Topic.OUTCOMES, f"_log-{partition}", [b"o"])
        assert values(seat.fetch(500, CEILING_S).commands) == [b"c"]
    assert values(follower.poll(500, CEILING_S)) == [b"o"] * 12
    threads = [threading.Thread(target=seat.fetch, args=(500, CEILING_S)) for seat in seats]
    threads.append(threading.Thread(target=follower.poll, args=(500, CEILING_S)))
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    cpu, started = time.process_time(), time.monotonic()
    time.sleep(1.0)
    share = (time.process_time() - cpu) / (time.monotonic() - started)
    for seat in seats:
        seat.wake()
    follower.wake()
    for thread in threads:
        thread.join(CEILING_S)
    assert share < 0.1


def test_retention_takes_old_outcomes_and_decided_inputs_never_events(opened: Opener, tmp_path: Path) -> None:
    """6 hours for outcomes, 7 days for inputs but never an undecided one, events for ever; offsets go on."""
    now = [1_700_000_000_000]
    log = opened(partitions=2, clock=lambda: now[0])
    _, seat, _ = own(log, 0)

    def write(mark: bytes) -> None:
        for topic in Topic:
            put(log, topic, "_log-0", [mark + b"0", mark + b"1"])

    def kept() -> dict[Topic, list[bytes]]:
        return {topic: values(read(log, topic, 0)) for topic in Topic}

    first, second = [b"a0", b"a1"], [b"b0", b"b1"]
    write(b"a")
    now[0] += 6 * HOUR_MS + HOUR_MS // 10
    write(b"b")
    log.trim()
    assert kept() == dict.fromkeys(Topic, first + second), "taken away before a 24th part more was over"
    now[0] += HOUR_MS // 3
    log.trim()
    assert kept() == {**dict.fromkeys(Topic, first + second), Topic.OUTCOMES: second}
    stale = log.follow(Topic.OUTCOMES, {0: 0})
    with pytest.raises(LogFault, match="keeps 2 to 4"):
        stale.poll(1, 0.0)
    assert log.read_at(Topic.OUTCOMES, 0, 1) is None

    now[0] += 8 * 24 * HOUR_MS
    seat.commit([], 3, 0)
    log.trim()
    assert kept() == {
        Topic.COMMANDS: first + second,
        Topic.REPORTS: [b"b1"],
        Topic.EVENTS: first + second,
        Topic.OUTCOMES: [],
    }
    reader = EmbeddedReader(tmp_path / "log")
    assert (reader.beginning(Topic.OUTCOMES, 0), reader.end(Topic.OUTCOMES, 0)) == (4, 4)
    assert values(read(reader, Topic.REPORTS, 0)) == [b"b1"]
    with pytest.raises(LogFault, match="keeps 3 to 4"):
        reader.follow(Topic.REPORTS, {0: 1}).poll(1, 0.0)
    reader.close()

    log.close()
    log = opened()
    assert (log.beginning(Topic.OUTCOMES, 0), log.end(Topic.OUTCOMES, 0)) == (4, 4)
    assert put(log, Topic.OUTCOMES, "_log-0", [b"c"]) == [4]
    assert own(log, 0)[2].reports_next == 3
