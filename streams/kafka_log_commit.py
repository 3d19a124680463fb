"""One partition's transactions: fencing, the batch that is kept until committed, and what each error asks for.

A batch is sent in four calls: begin, produce all, send_offsets, commit. A crash before `commit` leaves nothing: the
next owner's `init_transactions` aborts it. A crash after it leaves the whole batch. In between nobody knows, and only
`init_transactions` of a new producer followed by a look at the end of the partition tells (looking first decides
twice: a delayed commit arrives later).
"""

import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.kafka_log_clients import (
    ANSWER_S,
    LOGGER,
    NOT_ALLOWED,
    TOO_LARGE,
    Clients,
    error_of,
    fault,
    in_time,
    passes,
)
from streams.kafka_log_follower import record_of, scan
from streams.kafka_log_hanging import end_hanging
from streams.kafka_log_offsets import Offsets
from streams.port import (
    Fenced,
    LogFault,
    LogUnavailable,
    Output,
    Record,
    RecordTooLarge,
    TakenOver,
    Topic,
)

INPUTS: Final = (Topic.REPORTS, Topic.COMMANDS)
CALL_S: Final = 2.0
"""How long one call waits before it is made again; a lost partition is noticed in between."""
FIRST_TRY_S: Final = 0.125
CONNECTING_S: Final = 0.06
TAKE_OVER_S: Final = 20.0
SEND_AGAIN_S: Final = 0.1
OFFSETS_S: Final = 5.0


class Verdict(Enum):
    """What an error of a transaction asks for."""

    SAME_CALL = auto()
    ABORT = auto()
    REJOIN = auto()
    TOO_LARGE = auto()
    ANEW = auto()
    FENCED = auto()
    STOP = auto()


# `produce` says only `_FATAL` where the call before it would have said `_FENCED`.
FENCING: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL}
)
OLD_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


def verdict(error: KafkaError) -> Verdict:
    """The flags decide; codes only tell apart what follows an abort or a fatal error."""
    code = error.code()
    if code in NOT_ALLOWED:
        return Verdict.STOP
    if error.fatal() or code == KafkaError._FATAL:
        return Verdict.FENCED if code in FENCING else Verdict.ANEW
    if code in TOO_LARGE:
        return Verdict.TOO_LARGE
    if error.txn_requires_abort():
        return Verdict.REJOIN if code in OLD_GENERATION else Verdict.ABORT
    return Verdict.SAME_CALL if error.retriable() else Verdict.ANEW


class Standing(Protocol):
    """What a seat knows of its membership; all but `membership` raise SeatLost when the partition is lost."""

    def require_ours(self) -> None:
        """Returns while the partition is ours."""

    def membership(self) -> tuple[int, Any]:
        """How many assignments came so far, and the group metadata of the last one."""

    def wait_for_assignment(self, after: int) -> None:
        """Returns when more than `after` assignments came."""

    def wait_polled(self) -> None:
        """Returns after a second in which the group was polled."""

    def pause(self, seconds: float) -> None:
        """Waits so long."""


@dataclass(slots=True, frozen=True)
class Batch:
    """What is written together: kept, byte for byte, until it is known to be in the log."""

    outputs: list[Output]
    positions: list[int]

    def of(self, topic: Topic) -> list[Output]:
        """The outputs to `topic`, in order."""
        return [output for output in self.outputs if output.topic is topic]


class Transactions:
    """Commits for one partition. Used by the seat's thread only. `patience_s`: when a commit counts as unanswered."""

    def __init__(
        self, clients: Clients, offsets: Offsets, partition: int, standing: Standing, patience_s: float
    ) -> None:
        self._clients = clients
        self._offsets = offsets
        self._partition = partition
        self._standing = standing
        self._patience_s = patience_s
        self._producer: Producer | None = None
        # What we know to be committed: both input positions, and per output topic the offset after our last record.
        self._positions: list[int] = []
        self._ends: dict[Topic, int] = {}
        self._last_event: int | None = None

    # ---- taking over ----

    def take_over(self) -> TakenOver:
        """Steps (2) and (3): fence, then read. Raises SeatLost, LogUnavailable, LogMisconfigured."""
        self._fence(time.monotonic() + TAKE_OVER_S)
        self._last_event = None
        self._positions = self._committed()
        self._ends = {topic: self._settled_end(topic) for topic in (Topic.EVENTS, Topic.OUTCOMES)}
        reports_next, commands_next = (
            self._valid(topic, position) for topic, position in zip(INPUTS, self._positions, strict=True)
        )
        return TakenOver(reports_next, commands_next, self._ends[Topic.EVENTS])

    def _fence(self, give_up: float | None) -> None:
        """A new producer object, initialised: what was open is aborted, whoever wrote before writes no more."""
        self.drop()
        doing = f"taking over partition {self._partition}"
        wait_s = FIRST_TRY_S
        while True:
            self._standing.require_ours()
            # librdkafka sleeps for half a second where it is not connected yet, hence the question and the pause, and
            # while the former owner's transaction is being aborted: there a new object asks again sooner.
            producer = self._clients.transactional(f"owner-{self._partition}")
            try:
                producer.list_topics(self._clients.topic(Topic.EVENTS), wait_s)
                self._standing.pause(CONNECTING_S)
                producer.init_transactions(wait_s)
            except KafkaException as failed:
                error = error_of(failed)
                if verdict(error) is Verdict.FENCED:
                    raise LogUnavailable(f"Another process took partition {self._partition} over just now.") from None
                if not passes(error) or (give_up is not None and time.monotonic() > give_up):
                    raise fault(error, doing) from None
                wait_s = min(2 * wait_s, ANSWER_S)
                continue
            self._producer = producer
            return

    def _committed(self) -> list[int]:
        """Both committed input positions, after ending what holds them back. Raises LogUnavailable, SeatLost."""
        try:
            return self._asked_twice()
        except LogUnavailable:
            if self._producer is None:
                raise
            self._end_hanging(self._producer)
            return self._offsets.committed(INPUTS, self._partition)

    def _asked_twice(self) -> list[int]:
        """A coordinator that answers the second question only was loading: nothing hangs."""
        try:
            return self._offsets.committed(INPUTS, self._partition)
        except LogUnavailable:
            # Raises where the broker does not answer at all: then nothing is known to hang.
            self._offsets.former(INPUTS, self._partition)
            return self._offsets.committed(INPUTS, self._partition)

    def _end_hanging(self, producer: Producer) -> None:
        """After a new producer of ours is initialised nothing of ours is open, unless it hangs."""
        still_open = [topic for topic in (Topic.EVENTS, Topic.OUTCOMES) if self._is_open(topic)]
        _, metadata = self._standing.membership()
        end_hanging(self._clients, producer, self._partition, metadata, still_open)

    def _is_open(self, topic: Topic) -> bool:
        """Whether something is written that is neither committed nor aborted."""
        return self._offsets.written_end(topic, self._partition) != self._offsets.end(topic, self._partition)

    def _valid(self, topic: Topic, position: int) -> int:
        """The committed position, or the beginning where there is none. Raises LogFault where the input is gone."""
        beginning = self._offsets.beginning(topic, self._partition)
        if position < 0:
            return beginning
        end = self._offsets.end(topic, self._partition)
        if beginning <= position <= end:
            return position
        raise LogFault(
            f"The committed position {position} of {topic} {self._partition} is outside what is kept "
            f"({beginning} to {end}): the topic was made anew or its retention ran out. "
            f"Set the position in group {self._clients.owners} to what may be decided next, then start again."
        )

    def _settled_end(self, topic: Topic) -> int:
        """The read-committed end, once nothing is open beyond it: else records of ours could hide behind it."""
        give_up = time.monotonic() + TAKE_OVER_S
        while True:
            end = self._offsets.end(topic, self._partition)
            if self._offsets.written_end(topic, self._partition) == end:
                return end
            if time.monotonic() > give_up:
                raise LogUnavailable(
                    f"A foreign open transaction holds back {topic} {self._partition} at offset {end}: "
                    "end it (kafka-transactions.sh), or wait until the broker does."
                )
            self._standing.pause(SEND_AGAIN_S)

    def drop(self) -> None:
        """Lets the producer go; nothing can be committed before the next `take_over`."""
        self._producer = None

    def poll(self) -> None:
        """Serves librdkafka's own lines."""
        if self._producer is not None:
            self._producer.poll(0)

    # ---- committing ----

    def commit(self, batch: Batch) -> list[int]:
        """See `port.Seat.commit`."""
        while True:
            self._standing.require_ours()
            offsets = self._send(batch)
            if offsets is not None:
                return offsets

    def _send(self, batch: Batch) -> list[int] | None:
        """One try of the whole batch; None: nothing of it is in the log, send the same bytes again."""
        producer = self._producer
        if producer is None:
            raise Fenced(f"Partition {self._partition} must be taken over before anything is committed.")
        assignments, metadata = self._standing.membership()
        written: dict[Topic, list[int]] = {Topic.EVENTS: [], Topic.OUTCOMES: []}
        try:
            producer.begin_transaction()
            self._produce(producer, batch.outputs, written)
            at = [
                self._clients.at(topic, self._partition, position)
                for topic, position in zip(INPUTS, batch.positions, strict=True)
            ]
            if not in_time(lambda: producer.send_offsets_to_transaction(at, metadata, OFFSETS_S), OFFSETS_S):
                # The call is left behind with its producer: librdkafka may hang in it for ever (issue 5456).
                return self._resolve(batch)
        except BufferError:
            return self._give_up(batch, Verdict.TOO_LARGE, KafkaError(KafkaError._QUEUE_FULL), assignments)
        except KafkaException as failed:
            error = error_of(failed)
            return self._give_up(batch, verdict(error), error, assignments)
        give_up = time.monotonic() + self._patience_s
        while True:
            try:
                producer.commit_transaction(CALL_S)
                break
            except KafkaException as failed:
                error = error_of(failed)
                what = verdict(error)
                if what is not Verdict.SAME_CALL:
                    return self._give_up(batch, what, error, assignments)
            self._standing.require_ours()
            if time.monotonic() > give_up:
                return self._resolve(batch)
        return self._noted(batch, written)

    def _produce(self, producer: Producer, outputs: list[Output], written: dict[Topic, list[int]]) -> None:
        """Queues all outputs; the offsets of events come with the delivery reports, in order."""
        names = {topic: self._clients.topic(topic) for topic in written}
        note = {topic: _noting(offsets) for topic, offsets in written.items()}
        partition, produce = self._partition, producer.produce
        for output in outputs:
            topic = output.topic
            produce(
                names[topic],
                output.value,
                output.key,
                partition,
                on_delivery=note[topic],
                headers=list(output.headers),
            )

    def _noted(self, batch: Batch, written: dict[Topic, list[int]]) -> list[int]:
        """Remembers where the batch ended; gives the offsets of its events."""
        self._positions = batch.positions
        for topic, offsets in written.items():
            sent = len(batch.of(topic))
            # A produce request that was answered at its second sending may leave offsets unknown: read them back.
            if len(offsets) != sent or (offsets and min(offsets) < 0):
                offsets[:] = [record.offset for record in self._since(topic)]
                if len(offsets) != sent:
                    raise Fenced(f"Somebody else wrote to {topic} {self._partition}.")
            if offsets:
                self._ends[topic] = offsets[-1] + 1
        events = written[Topic.EVENTS]
        self._last_event = events[-1] if events else self._last_event
        return events

    def _give_up(self, batch: Batch, what: Verdict, error: KafkaError, assignments: int) -> list[int] | None:
        """Ends a try that failed with `what`; None: send again."""
        doing = f"committing partition {self._partition}"
        LOGGER.info("Kafka, %s: %s (%s).", doing, error.str(), what.name)
        if what is Verdict.FENCED:
            self.drop()
            raise Fenced(f"Partition {self._partition} was taken over by another process ({error.str()}).")
        if what is Verdict.STOP:
            self._abort()
            self.drop()
            raise fault(error, doing)
        if what is Verdict.ANEW or not self._abort():
            return self._resolve(batch)
        self._require_former_batch()
        if what is Verdict.TOO_LARGE:
            raise RecordTooLarge(f"A record of the batch is larger than the topic takes ({doing}: {error.str()}).")
        if what is Verdict.REJOIN:
            self._standing.wait_for_assignment(assignments)
        else:
            self._standing.pause(SEND_AGAIN_S)
        return None

    def _abort(self) -> bool:
        """Whether the broker says that the transaction is aborted; only then nothing of it is in the log."""
        producer = self._producer
        if producer is None:
            return False
        give_up = time.monotonic() + self._patience_s
        while True:
            try:
                producer.abort_transaction(CALL_S)
                return True
            except KafkaException as failed:
                if not error_of(failed).retriable() or time.monotonic() > give_up:
                    return False
            self._standing.require_ours()

    def _require_former_batch(self) -> None:
        """An abort also ends what hangs (`kafka_log_hanging`): it may be the batch before, which counts as committed.

        Raises Fenced where that is gone, SeatLost.
        """
        last = self._last_event
        while last is not None:
            try:
                there = any(record.offset == last for record in self._from(Topic.EVENTS, last))
            except LogUnavailable:
                self._standing.pause(SEND_AGAIN_S)
                continue
            if there:
                return
            self.drop()
            raise Fenced(f"Kafka aborted the last committed batch of partition {self._partition}.")

    # ---- an outcome that nobody told ----

    def _resolve(self, batch: Batch) -> list[int] | None:
        """Fences our own former self, then looks whether the batch is in the log; None: it is not, send again."""
        LOGGER.warning("Kafka did not say whether a batch of partition %d is committed: looking.", self._partition)
        self._standing.wait_polled()
        while True:
            try:
                self._fence(None)
                return self._look(batch)
            except LogUnavailable:
                self._standing.pause(SEND_AGAIN_S)

    def _look(self, batch: Batch) -> list[int] | None:
        """What is behind our last record is nothing, or exactly our batch, or somebody else's."""
        positions = self._committed()
        topics = [topic for topic in self._ends if batch.of(topic)]
        found = {topic: self._since(topic) for topic in topics}
        ours = all(_same(found[topic], batch.of(topic)) for topic in topics)
        if ours and positions == batch.positions and (topics or positions != self._positions):
            return self._noted(batch, {topic: [r.offset for r in found.get(topic, [])] for topic in self._ends})
        if not any(found.values()) and positions == self._positions:
            return None
        self.drop()
        raise Fenced(f"Partition {self._partition} was taken over by another process, which wrote to it.")

    def _since(self, topic: Topic) -> list[Record]:
        """The records behind the last one that we know of."""
        return self._from(topic, self._ends[topic])

    def _from(self, topic: Topic, start: int) -> list[Record]:
        """The records at `start` and behind it."""
        end = self._settled_end(topic)
        if start >= end:
            return []
        at = self._clients.at(topic, self._partition, start)
        messages = [message for some in scan(self._clients, at, end) for message in some]
        return [record_of(topic, message) for message in messages]


def _noting(offsets: list[int]) -> Any:
    """A delivery report that collects offsets."""

    def note(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        offsets.append(offset if error is None and offset is not None else -1)

    return note


def _same(records: list[Record], outputs: list[Output]) -> bool:
    """Whether `records` are exactly `outputs`."""
    return [(r.key, r.value, r.headers) for r in records] == [(o.key, o.value, o.headers) for o in outputs]
