"""A seat on Kafka: the lanes of its two inputs, take-over, fetch, commit."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, TopicPartition

from streams.kafka_log_clients import Clients
from streams.kafka_log_commit import INPUTS, Batch, Transactions
from streams.kafka_log_offsets import Offsets
from streams.port import (
    Fenced,
    Fetched,
    LogFault,
    LogMisconfigured,
    LogReplaced,
    LogUnavailable,
    Output,
    Record,
    SeatLost,
    TakenOver,
    Topic,
)

LANE_RECORDS_MAX: Final = 10_000
LANE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What one input may have waiting in memory before its partition is paused; it goes on at half of it."""
REPORTS_MAX: Final = 5_000
"""How many reports one `fetch` gives at most."""
POLLED_S: Final = 1.0


class Lane:
    """One input partition on its way to the seat. Filled by the member's thread, emptied by the seat's, both under
    the seat's `changed`; opened, closed, paused and resumed by the member's thread alone.

    `next` is the offset that may come next: what is below it was delivered already.
    """

    __slots__ = ("at", "fault", "is_open", "next", "paused", "queued_bytes", "seat", "topic", "waiting")

    def __init__(self, seat: "KafkaSeat", topic: Topic, at: TopicPartition) -> None:
        self.seat = seat
        self.topic = topic
        self.at = at
        self.waiting: deque[Record] = deque()
        self.queued_bytes = 0
        self.next = 0
        self.is_open = False
        self.paused = True
        self.fault: LogFault | None = None

    def put(self, records: Sequence[Record]) -> None:
        """Takes each record once: what is below `next` came before."""
        for record in records:
            if record.offset >= self.next:
                self.next = record.offset + 1
                self.queued_bytes += len(record.value)
                self.waiting.append(record)

    def take(self, records_max: int) -> list[Record]:
        """At most so many, in order."""
        waiting = self.waiting
        if not waiting:
            return []
        records = [waiting.popleft() for _ in range(min(records_max, len(waiting)))]
        self.queued_bytes -= sum(len(record.value) for record in records)
        return records

    def is_full(self) -> bool:
        """Whether the partition is to be paused."""
        return len(self.waiting) >= LANE_RECORDS_MAX or self.queued_bytes >= LANE_BYTES_MAX

    def is_low(self) -> bool:
        """Whether a paused partition may go on."""
        return len(self.waiting) <= LANE_RECORDS_MAX // 2 and self.queued_bytes <= LANE_BYTES_MAX // 2

    def close(self) -> None:
        """Takes nothing more, forgets what waits."""
        self.is_open = False
        self.waiting.clear()
        self.queued_bytes = 0
        self.fault = None

    def open_at(self, offset: int) -> None:
        """Takes records from `offset` on."""
        self.next = offset
        self.is_open = True


class Watch(Protocol):
    """Whether the topics are still those that were opened: `kafka_log_watch.TopicWatch`."""

    generation: int

    def require(self) -> None:
        """Returns while all is there. Raises LogReplaced, LogUnavailable."""

    def meaning(self, met: LogFault) -> LogFault:
        """What a fault is that was met while reading."""


class Membership(Protocol):
    """The member's thread, as its seats see it."""

    def ask(self, step: Callable[[Consumer], None]) -> threading.Event:
        """Does `step` between two polls of the group, again after a poll where the consumer is not ready; sets the
        event when it is done."""


class KafkaSeat:
    """See `port.Seat`. Made by the member's thread, which also says when it is lost."""

    def __init__(
        self,
        clients: Clients,
        offsets: Offsets,
        watch: Watch,
        member: Membership,
        partition: int,
        patience_s: float,
    ) -> None:
        self.partition = partition
        self.lanes = tuple(Lane(self, topic, clients.at(topic, partition)) for topic in INPUTS)
        self.changed = threading.Condition()
        self._offsets = offsets
        self._watch = watch
        self._generation = watch.generation
        self._member = member
        self._transactions = Transactions(clients, offsets, partition, self, patience_s)
        self._lost = False
        self._woken = False
        self._fenced = False
        self._taken: TakenOver | None = None
        self._assignments = 0
        self._metadata: Any = None
        self._idle = threading.Event()
        self._idle.set()

    # ---- what the member's thread says ----

    def joined(self, metadata: Any) -> None:
        """An assignment left, or gave, the partition to us; `metadata` is the group's of that assignment."""
        with self.changed:
            self._assignments += 1
            self._metadata = metadata
            self.changed.notify_all()

    def leave(self) -> None:
        """The partition is taken from us; a running commit may end."""
        with self.changed:
            self._lost = True
            self.changed.notify_all()

    def wait_idle(self, timeout_s: float) -> None:
        """Returns when no commit is running, or after the time."""
        self._idle.wait(timeout_s)

    # ---- port.Seat ----

    def take_over(self) -> TakenOver:
        """See `port.Seat`. After fencing it first waits for a second in which the group was polled."""
        self._generation = self._watch.generation
        self.require_ours()
        self._wait_for(self._member.ask(self._close_lanes))
        if self._fenced:
            self.wait_polled()
        try:
            self._taken = self._transactions.take_over()
        except (Fenced, SeatLost, LogUnavailable, LogMisconfigured, LogReplaced):
            raise
        except LogFault as met:
            raise self._watch.meaning(met) from None
        self._fenced = False
        return self._taken

    def start(self) -> None:
        """See `port.Seat`."""
        self._wait_for(self._member.ask(self._open_lanes))

    def fetch(self, commands_max: int, timeout_s: float) -> Fetched:
        """See `port.Seat`. Raises LogCorrupt where an input is damaged, once what came before is fetched."""
        self._transactions.poll()
        self.require_ours()
        reports_lane, commands_lane = self.lanes
        with self.changed:
            self.changed.wait_for(self._has_something, timeout_s)
            self._woken = False
            if self._lost:
                raise self._seat_lost()
            met = next((lane.fault for lane in self.lanes if lane.fault and not lane.waiting), None)
            reports = [] if met else reports_lane.take(REPORTS_MAX)
            commands = [] if met else commands_lane.take(commands_max)
        if met is not None:
            raise self._watch.meaning(met)
        if any(lane.paused and lane.is_open and lane.is_low() for lane in self.lanes):
            self._member.ask(self._resume_low)
        return Fetched(reports, commands)

    def reports_end(self) -> int:
        """See `port.Seat`."""
        return self._offsets.end(Topic.REPORTS, self.partition)

    def commit(self, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """See `port.Seat`. While the broker is away it waits, as long as the partition is ours."""
        with self.changed:
            if self._lost:
                raise self._seat_lost()
            self._idle.clear()
        try:
            return self._transactions.commit(Batch(list(outputs), [reports_next, commands_next]))
        except Fenced:
            self._fenced = True
            raise
        finally:
            self._idle.set()

    def lost(self) -> bool:
        """See `port.Seat`."""
        return self._lost

    def wake(self) -> None:
        """See `port.Seat`."""
        with self.changed:
            self._woken = True
            self.changed.notify_all()

    # ---- commit.Standing ----

    def require_ours(self) -> None:
        """Raises SeatLost when the partition is lost; LogUnavailable, LogReplaced, Fenced when the topics are not those
        that were taken over."""
        if self._lost:
            raise self._seat_lost()
        self._watch.require()
        if self._watch.generation != self._generation:
            raise Fenced(f"Topics of partition {self.partition} were made anew.")

    def membership(self) -> tuple[int, Any]:
        """How many assignments came so far, and the group metadata of the last one."""
        with self.changed:
            return self._assignments, self._metadata

    def wait_for_assignment(self, after: int) -> None:
        """Returns when more than `after` assignments came. Raises SeatLost."""
        with self.changed:
            self.changed.wait_for(lambda: self._lost or self._assignments > after)
        self.require_ours()

    def wait_polled(self) -> None:
        """Returns after a second in which the group was polled: had we lost the partition, we would know."""
        began = time.monotonic()
        while time.monotonic() - began < POLLED_S:
            self._wait_for(self._member.ask(_nothing))
            self.pause(POLLED_S / 20)

    def pause(self, seconds: float) -> None:
        """Waits so long. Raises SeatLost."""
        with self.changed:
            self.changed.wait_for(lambda: self._lost, seconds)
        self.require_ours()

    # ---- steps on the member's thread ----

    def _close_lanes(self, consumer: Consumer) -> None:
        if not self._lost:
            consumer.pause([lane.at for lane in self.lanes])
            with self.changed:
                for lane in self.lanes:
                    lane.paused = True
                    lane.close()

    def _open_lanes(self, consumer: Consumer) -> None:
        if self._lost or self._taken is None:
            return
        starts = (self._taken.reports_next, self._taken.commands_next)
        for lane, start in zip(self.lanes, starts, strict=True):
            consumer.seek(TopicPartition(lane.at.topic, lane.at.partition, start))
            lane.open_at(start)
        self._resume(consumer, self.lanes)

    def _resume_low(self, consumer: Consumer) -> None:
        if not self._lost:
            self._resume(consumer, [lane for lane in self.lanes if lane.paused and lane.is_open and lane.is_low()])

    @staticmethod
    def _resume(consumer: Consumer, lanes: Sequence[Lane]) -> None:
        if lanes:
            consumer.resume([lane.at for lane in lanes])
            for lane in lanes:
                lane.paused = False

    # ---- small things ----

    def _has_something(self) -> bool:
        return self._lost or self._woken or any(lane.waiting or lane.fault for lane in self.lanes)

    def _wait_for(self, done: threading.Event) -> None:
        while not done.wait(0.2):
            self.require_ours()
        self.require_ours()

    def _seat_lost(self) -> SeatLost:
        return SeatLost(f"Partition {self.partition} is no longer this process's.")


def _nothing(consumer: Consumer) -> None:
    """A step that only proves that the group was polled."""
