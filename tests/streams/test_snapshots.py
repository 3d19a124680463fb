"""Snapshots are made while the owner goes on: true of a committed position, never found before they are whole."""

import threading
from typing import Any

import pytest

from commands.cut import snapshot_lines
from commands.rows import canonical, restore
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import LogUnavailable, Snapshot, Topic
from streams.snapshots import Keeper, Making
from streams.takeover import Known, fold, load, restored
from tests.streams.test_owner import FAST, POOL, Office
from tests.support.play import play


def test_a_slice_at_a_time_gives_what_all_at_once_gives() -> None:
    """Chunks of whole lines, however they are sliced; the state may go on between."""
    world = play("t+0 robot r1\n" + "\n".join(f"t+0 submit t{n} target=a{n % 3}" for n in range(20)))
    lines = list(snapshot_lines(world.state))
    then = canonical(world.state)
    making, made = Making([world.state], 7, "life", 1), None
    slices = 0
    while made is None:
        made = making.go_on(3)
        world.submit(f"later{slices}")
        slices += 1
    assert slices > 5
    assert b"\n".join(made.chunks).split(b"\n") == lines
    assert canonical(restore(made.chunks, world.now)[0]) == then
    assert world.state.cut is None


def test_the_owner_goes_on_while_a_snapshot_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each command: they are answered meanwhile, and what is found in the end, with the events after it, is
    what the log says from its beginning. A successor begins from it."""
    answered, seen = 0, 0

    def one_line_for_a_command(making: Making, lines: int) -> Snapshot | None:
        nonlocal seen
        if seen == answered:
            return None
        seen = answered
        return go_on(making, 1)

    go_on = Making.go_on
    monkeypatch.setattr(Making, "go_on", one_line_for_a_command)
    office = Office(MemoryStore(partitions=1), defaults=FAST, snapshot_events=30)
    office.open()
    while not (found := MemoryLog(office.store).find_snapshots(0)):
        assert office.submit(f"t{answered}")["status"] == "accepted"
        answered += 1
    assert answered > 60
    office.close()
    log = MemoryLog(office.store)
    end = log.end(Topic.EVENTS, 0)
    assert found[0].position < end - 20
    from_snapshot = Known({pool.pool: pool for pool in restored(found[0], 0)}, found[0].position)
    from_beginning = Known(position=log.beginning(Topic.EVENTS, 0))
    for known in (from_snapshot, from_beginning):
        fold(log, 0, known, end, lambda: None)
    assert canonical(from_snapshot.pools[POOL]) == canonical(from_beginning.pools[POOL])
    office.open()
    assert office.submit("t1")["answer"]["changed"] is False
    office.close()
    office.check()


@pytest.mark.parametrize("chunk", [b"no rows", b"{}", b"[]", b'{"row":"of newer software"}'])
def test_a_snapshot_that_cannot_be_read_is_passed_over(chunk: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, but other software wrote its rows: an older one serves, or the whole log."""
    office = Office(MemoryStore(partitions=1), defaults=FAST)
    office.open()
    office.submit("t1")
    office.close()
    log = MemoryLog(office.store)
    end = log.end(Topic.EVENTS, 0)
    log.keep_snapshot(0, Snapshot(end, "newer", 1, [chunk]))
    known = load(log, 0, end, 0, lambda: None)
    assert (list(known.pools[POOL].tasks), known.position) == (["t1"], end)
    assert "cannot be read" in caplog.text


class SlowLog:
    """Keeps a snapshot when it is told to, or fails."""

    def __init__(self, fault: LogUnavailable | None = None) -> None:
        self.may, self.fault = threading.Event(), fault
        self.kept: list[Snapshot] = []

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """As a log that takes its time."""
        if len(snapshot.chunks) > 1:
            assert self.may.wait(60)
        if self.fault is not None:
            raise self.fault
        self.kept.append(snapshot)


def test_a_large_snapshot_is_kept_beside_the_owner() -> None:
    """One chunk is kept when `keep` returns; more of them by a thread that nobody waits for."""
    log: Any = SlowLog()
    keeper = Keeper(log, 0)
    small, large = Snapshot(1, "a", 1, [b"x"]), Snapshot(2, "a", 1, [b"x", b"y"])
    keeper.keep(small)
    assert (log.kept, keeper.busy) == ([small], False)
    keeper.keep(large)
    assert (log.kept, keeper.busy) == ([small], True)
    log.may.set()
    keeper.join()
    assert (log.kept, keeper.busy) == ([small, large], False)


def test_a_snapshot_that_cannot_be_kept_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The owner goes on; the next one is tried when it is due."""
    log: Any = SlowLog(LogUnavailable("Kafka does not answer."))
    keeper = Keeper(log, 3)
    log.may.set()
    keeper.keep(Snapshot(1, "a", 1, [b"x", b"y"]))
    keeper.join()
    assert "no snapshot of partition 3 was kept: Kafka does not answer." in caplog.text
