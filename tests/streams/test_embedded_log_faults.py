"""Everybody at once on an embedded log whose disk fails now and then: nothing is lost, doubled or out of order."""

import random
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from streams.embedded_log import EmbeddedLog
from streams.port import Fenced, LogBusy, LogFault, LogUnavailable, Output, Seat, Snapshot, Topic
from tests.streams.contract import CEILING_S, Members, read

PARTITIONS = 2
FAULTS = 15
EVENTS = 3_000


class World:
    """Appenders, owners, followers and a maker of snapshots, until enough faults were met and events followed."""

    def __init__(self, folder: Path) -> None:
        self.dice = random.Random(7)
        self.faults = 0
        self.followed = 0
        self.errors: list[str] = []
        self.give_up = time.monotonic() + CEILING_S
        self.log = EmbeddedLog.open(folder, partitions=PARTITIONS, sync=False, hook=self.fail_at_times)
        members = Members(self.log)
        works: list[Callable[[], None]] = [self.follow, self.follow, self.make_snapshots]
        works += [partial(self.append, p) for p in range(PARTITIONS)]
        works += [partial(self.decide, members.seat(p)) for p in range(PARTITIONS)]
        self.threads = [threading.Thread(target=self.guarded, args=(work,)) for work in works]

    def fail_at_times(self, step: str) -> None:
        """The hook of the writer: one write in thirty fails, before or after it."""
        if self.dice.random() < 1 / 60:
            self.faults += 1
            raise OSError("Input/output error")

    def over(self) -> bool:
        """Whether all are to stop."""
        enough = self.faults >= FAULTS and self.followed >= EVENTS
        return enough or bool(self.errors) or time.monotonic() > self.give_up

    def guarded(self, work: Callable[[], None]) -> None:
        """Runs `work`; only faults of the log are expected by it."""
        try:
            work()
        except BaseException:
            self.errors.append(traceback.format_exc())

    def append(self, partition: int) -> None:
        """Appends commands, at most a hundred unanswered."""
        room = threading.Semaphore(100)

        def done(fault: LogFault | None, offset: int) -> None:
            room.release()

        while not self.over():
            if room.acquire(timeout=0.1):
                try:
                    self.log.append(Topic.COMMANDS, f"_log-{partition}", b"c", (), done)
                except LogBusy:
                    room.release()

    def decide(self, seat: Seat) -> None:
        """Writes one event for each command, which tells its offset; takes over again whenever it must."""
        while not self.over():
            try:
                taken = seat.take_over()
                seat.start()
                commands_next = taken.commands_next
                while not self.over():
                    commands = seat.fetch(50, 0.1).commands
                    if commands:
                        assert commands[0].offset == commands_next
                        commands_next = commands[-1].offset + 1
                        outputs = [Output(Topic.EVENTS, "p", str(command.offset).encode()) for command in commands]
                        seat.commit(outputs, taken.reports_next, commands_next)
            except (Fenced, LogUnavailable):
                time.sleep(0.01)

    def follow(self) -> None:
        """Sees every event once, in order."""
        follower = self.log.follow(Topic.EVENTS, dict.fromkeys(range(PARTITIONS), 0))
        seen = dict.fromkeys(range(PARTITIONS), 0)
        while not self.over():
            try:
                for event in follower.poll(100, 0.1):
                    assert event.offset == int(event.value) == seen[event.partition]
                    seen[event.partition] += 1
                self.followed = sum(seen.values())
            except LogUnavailable:
                time.sleep(0.01)

    def make_snapshots(self) -> None:
        """Keeps and finds snapshots all the time."""
        number = 0
        while not self.over():
            number += 1
            try:
                self.log.keep_snapshot(0, Snapshot(number, "a", 1, (bytes(100_000), str(number).encode())))
                assert self.log.find_snapshots(0)[0].position == number
            except LogUnavailable:
                time.sleep(0.01)


def test_nothing_is_lost_doubled_or_out_of_order_while_writes_fail(tmp_path: Path) -> None:
    """Each command that was decided has its one event, in order, before and after opening anew."""
    world = World(tmp_path / "log")
    for thread in world.threads:
        thread.start()
    for thread in world.threads:
        thread.join(2 * CEILING_S)
        assert not thread.is_alive()
    assert world.errors == []
    assert world.faults >= FAULTS
    assert world.followed >= EVENTS
    assert world.log.bad_snapshots() == 0
    world.log.close()
    log = EmbeddedLog.open(tmp_path / "log")
    for partition in range(PARTITIONS):
        events = read(log, Topic.EVENTS, partition)
        assert [int(event.value) for event in events] == list(range(len(events)))
        seat = Members(log, f"checker of {partition}").seat(partition)
        assert seat.take_over().commands_next == len(events)
    log.close()
