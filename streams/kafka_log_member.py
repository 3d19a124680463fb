"""Membership among the owners: one consumer of the group, one thread that polls it, and the seats that it gives.

Only `reports` is subscribed to; `commands` of the same partition is assigned and unassigned together with it, so both
inputs of a partition always have the same owner. All calls of the consumer are made by this thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.kafka_log_clients import LOGGER, Clients, error_of
from streams.kafka_log_commit import INPUTS
from streams.kafka_log_follower import SLICE_S, reading_fault, record_of
from streams.kafka_log_offsets import Offsets
from streams.kafka_log_seat import KafkaSeat, Lane, Watch
from streams.port import Record, Seat, Topic

HAND_OUT_RECORDS: Final = 2_000
LAST_COMMIT_S: Final = 5.0
"""How long a partition that is given away waits for its running commit."""
JOIN_AGAIN_S: Final = 1.0

Step = Callable[[Consumer], None]
NOT_READY: Final = frozenset({KafkaError._STATE, KafkaError._IN_PROGRESS})


class Member:
    """See `port.Ownership`. `taken` and `lost` are called from the member's thread and must not block."""

    def __init__(
        self,
        clients: Clients,
        offsets: Offsets,
        watch: Watch,
        partitions: int,
        name: str,
        taken: Callable[[Seat], None],
        lost: Callable[[Seat], None],
        patience_s: float,
    ) -> None:
        self._clients = clients
        self._offsets = offsets
        self._watch = watch
        self._partitions = partitions
        self._name = name
        self._taken = taken
        self._lost = lost
        self._patience_s = patience_s
        self._steps: deque[tuple[Step, threading.Event]] = deque()
        self._seats: dict[int, KafkaSeat] = {}
        self._lanes: dict[tuple[str | None, int | None], Lane] = {}
        self._closing = threading.Event()
        first = clients.member(name)  # settings that cannot be are said to the caller, not to the thread
        self._thread = threading.Thread(
            target=self._run, args=(first,), name=f"owners of {clients.prefix}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """See `port.Ownership`; twice is allowed."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def ask(self, step: Step) -> threading.Event:
        """See `kafka_log_seat.Membership`."""
        done = threading.Event()
        self._steps.append((step, done))
        return done

    # ---- the member's thread ----

    def _run(self, consumer: Consumer) -> None:
        while True:
            try:
                self._live(consumer)
            except Exception:
                LOGGER.exception("The membership among the owners failed; this process joins again.")
            finally:
                self._drop(list(self._seats), LAST_COMMIT_S)
                consumer.close()
            if self._closing.wait(JOIN_AGAIN_S):
                return
            consumer = self._clients.member(self._name)

    def _live(self, consumer: Consumer) -> None:
        """Is a member until `close`, or until topics were made anew, of which this consumer remembers the former ones:
        all its calls and all rebalances happen in here."""
        generation = self._watch.generation
        self._join(consumer)
        while not self._closing.is_set() and self._watch.generation == generation:
            self._do_steps(consumer)
            first = consumer.poll(SLICE_S)
            if first is not None:
                # Waiting for more would wait the whole time with fewer there: take what is there.
                self._hand_out(consumer, [first, *consumer.consume(HAND_OUT_RECORDS - 1, 0)])

    def _join(self, consumer: Consumer) -> None:
        consumer.subscribe(
            [self._clients.topic(Topic.REPORTS)],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _do_steps(self, consumer: Consumer) -> None:
        """Each step that was asked for once; those that the consumer is not ready for come again after a poll."""
        for _ in range(len(self._steps)):
            step, done = self._steps.popleft()
            try:
                step(consumer)
            except KafkaException as failed:
                if error_of(failed).code() not in NOT_READY:
                    raise
                self._steps.append((step, done))
            else:
                done.set()

    def _hand_out(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Puts each record into its lane, then tells the seats concerned: one lock a lane, none a record."""
        lanes = self._lanes
        arrived: dict[Lane, list[Record]] = {}
        for message in messages:
            lane = lanes.get((message.topic(), message.partition()))
            error = message.error()
            if lane is None:
                if error is not None:
                    LOGGER.warning("Kafka: %s", error.str())
            elif not lane.is_open:
                continue
            elif error is None:
                arrived.setdefault(lane, []).append(record_of(lane.topic, message))
            else:
                fault = reading_fault(message, error)
                if fault:
                    # What follows damaged records must not be decided before them.
                    lane.is_open, lane.fault = False, fault
                    arrived.setdefault(lane, [])
        for lane, records in arrived.items():
            with lane.seat.changed:
                lane.put(records)
                lane.seat.changed.notify_all()
        full = [lane for lane in arrived if lane.is_full() and not lane.paused]
        if full:
            consumer.pause([lane.at for lane in full])
            for lane in full:
                lane.paused = True

    # ---- rebalances, called within poll ----

    def _on_assign(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        """Assigns both inputs, paused; every seat that stays learns the new generation (also for an empty list)."""
        ours = [one.partition for one in given if one.partition < self._partitions]  # a topic may have been given more
        inputs = self._inputs(ours)
        consumer.incremental_assign(inputs)
        if inputs:
            consumer.pause(inputs)
        new = [KafkaSeat(self._clients, self._offsets, self._watch, self, p, self._patience_s) for p in ours]
        for seat in new:
            self._seats[seat.partition] = seat
            self._lanes |= {(lane.at.topic, lane.at.partition): lane for lane in seat.lanes}
        metadata = consumer.consumer_group_metadata()
        for seat in self._seats.values():
            seat.joined(metadata)
        for seat in new:
            self._say(self._taken, seat)

    def _on_revoke(self, consumer: Consumer, gone: Sequence[TopicPartition]) -> None:
        """Gives partitions away, each after its running commit."""
        self._give_away(consumer, gone, LAST_COMMIT_S)

    def _on_lost(self, consumer: Consumer, gone: Sequence[TopicPartition]) -> None:
        """They are another's already."""
        self._give_away(consumer, gone, 0.0)

    def _give_away(self, consumer: Consumer, gone: Sequence[TopicPartition], wait_s: float) -> None:
        partitions = [one.partition for one in gone]
        self._drop(partitions, wait_s)
        assigned = {(one.topic, one.partition) for one in consumer.assignment()}
        consumer.incremental_unassign(
            [one for one in self._inputs(partitions) if (one.topic, one.partition) in assigned]
        )

    def _drop(self, partitions: Sequence[int], wait_s: float) -> None:
        seats = [self._seats.pop(partition) for partition in partitions if partition in self._seats]
        for seat in seats:
            seat.leave()
            for lane in seat.lanes:
                del self._lanes[lane.at.topic, lane.at.partition]
        give_up = time.monotonic() + wait_s
        for seat in seats:
            seat.wait_idle(max(0.0, give_up - time.monotonic()))
            self._say(self._lost, seat)

    def _inputs(self, partitions: Sequence[int]) -> list[TopicPartition]:
        """Both inputs of each partition. The offset is never read from: they are paused until they are sought."""
        return [self._clients.at(topic, partition) for topic in INPUTS for partition in partitions]

    @staticmethod
    def _say(listener: Callable[[Seat], None], seat: KafkaSeat) -> None:
        try:
            listener(seat)
        except Exception:
            LOGGER.exception("A listener for partition %d failed.", seat.partition)
