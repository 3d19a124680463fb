"""Reading: Kafka's messages as records, followers of whole partitions, single records, and bounded scans."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.kafka_log_clients import ANSWER_S, Clients, error_of, fault
from streams.port import LogCorrupt, LogFault, LogMisconfigured, LogUnavailable, MadeAnew, Record, Topic

SLICE_S: Final = 0.05
"""librdkafka's poll cannot be woken: who waits longer looks up this often."""
SCAN_RECORDS: Final = 5_000
DAMAGED: Final = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._UNDERFLOW})
OUTSIDE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})


def record_of(topic: Topic, message: Message) -> Record:
    """The message as a record; a key that is missing or no text becomes one that no pool has."""
    key, value, headers = message.key(), message.value(), message.headers()
    return Record(
        topic,
        message.partition() or 0,
        message.offset() or 0,
        key.decode(errors="backslashreplace") if key else "",
        value if value is not None else b"",
        tuple(headers) if headers else (),
        message.timestamp()[1],
    )


def reading_fault(message: Message, error: KafkaError) -> LogFault | None:
    """What an error among the messages means; None where librdkafka mends it by itself."""
    where = f"{message.topic()} partition {message.partition()}"
    if error.code() in DAMAGED:
        return LogCorrupt(
            f"Records of {where} do not match their checksum, from offset {message.offset()} on ({error.str()}): "
            "restore this partition from a replica or a backup."
        )
    if error.code() in OUTSIDE:
        return LogFault(f"Offset outside what is kept of {where} ({error.str()}): read beginning and end, then follow.")
    meaning = fault(error, f"reading {where}")
    return meaning if isinstance(meaning, LogMisconfigured) else None


class Watch(Protocol):
    """Whether the topics are still those that were opened: `kafka_log_watch.TopicWatch`."""

    def require(self, topic: Topic) -> None:
        """Returns while the topic may be read. Raises LogReplaced, LogUnavailable."""

    def times_made(self, topic: Topic) -> int:
        """How often the topic was made anew while this process ran."""

    def meaning(self, met: LogFault) -> LogFault:
        """What a fault is that was met while reading."""


class KafkaFollower:
    """Follows partitions of one topic for ever; read_committed, checksums verified. See `port.Follower`.

    While the topic is missing `poll` raises LogUnavailable; where it was made anew it raises MadeAnew.
    """

    def __init__(self, clients: Clients, topic: Topic, starts: Mapping[int, int], watch: Watch | None = None) -> None:
        self._topic = topic
        self._watch = watch
        self._made = 0 if watch is None else watch.times_made(topic)
        self._positions = dict(starts)
        self._consumer = clients.follower()
        self._using = threading.Lock()
        self._woken = threading.Event()
        self._closed = False
        self._fault: LogFault | None = None
        self._consumer.assign([clients.at(topic, partition, offset) for partition, offset in starts.items()])

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """See `port.Follower`. Returns early without records where only a position moved, to the end of a partition.

        A fault stays: every later poll raises it again.
        """
        give_up = time.monotonic() + timeout_s
        with self._using:
            while True:
                if self._watch is not None:
                    self._require_same(self._watch)
                if self._fault:
                    raise self._fault if self._watch is None else self._watch.meaning(self._fault)
                if self._closed:
                    raise LogFault("This follower is closed: follow anew.")
                remaining = give_up - time.monotonic()
                records, moved = self._taken(self._next(records_max, max(0.0, min(remaining, SLICE_S))))
                if records or moved:
                    return records
                if self._woken.is_set() or remaining <= 0:
                    self._woken.clear()
                    if self._fault is None:
                        return []

    def _require_same(self, watch: Watch) -> None:
        watch.require(self._topic)
        if watch.times_made(self._topic) != self._made:
            raise MadeAnew(f"Topic {self._topic} was made anew: follow it from its beginning.")

    def _next(self, records_max: int, timeout_s: float) -> list[Message]:
        """What is there, after waiting for the first: waiting for all would wait the whole time with fewer there."""
        try:
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            return [first, *self._consumer.consume(records_max - 1, 0)] if records_max > 1 else [first]
        except KafkaException as failed:
            raise fault(error_of(failed), f"reading {self._topic}") from None

    def _taken(self, messages: Sequence[Message]) -> tuple[list[Record], bool]:
        """The records among the messages, and whether a position moved across what no reader sees."""
        records: list[Record] = []
        moved = False
        for message in messages:
            error = message.error()
            if error is None:
                record = record_of(self._topic, message)
                records.append(record)
                self._positions[record.partition] = record.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, end = message.partition() or 0, message.offset() or 0
                moved = moved or end > self._positions[partition]
                self._positions[partition] = end
            else:
                self._fault = reading_fault(message, error)
                if self._fault:
                    # librdkafka goes on behind damaged records; whoever folds them may not.
                    break
        return records, moved

    def positions(self) -> dict[int, int]:
        """See `port.Follower`; the end of a partition is known up to 0.1 s after its last record."""
        return dict(self._positions)

    def wake(self) -> None:
        """Ends a waiting `poll` within 50 ms, from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Ends a waiting `poll` and frees the consumer; twice is allowed."""
        self._woken.set()
        with self._using:
            if not self._closed:
                self._closed = True
                self._consumer.close()


class SingleReader:
    """Reads single records with one consumer, one at a time, from any thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._using = threading.Lock()
        self._consumer: Consumer | None = None

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """See `port.LogReader`."""
        with self._using:
            consumer, self._consumer = self._consumer or self._clients.reader(), None
            at = self._clients.at(topic, partition, offset)
            try:
                consumer.assign([at])
                found = self._first(consumer, topic, at)
                consumer.unassign()
            except BaseException:
                # After damaged records librdkafka asks for offsets that never were: nobody reads on with this one.
                consumer.close()
                raise
            self._consumer = consumer
            return found

    @staticmethod
    def _first(consumer: Consumer, topic: Topic, at: TopicPartition) -> Record | None:
        give_up = time.monotonic() + ANSWER_S
        while time.monotonic() < give_up:
            message = consumer.poll(SLICE_S)
            if message is None or (message.topic(), message.partition()) != (at.topic, at.partition):
                continue
            error = message.error()
            if error is None:
                return record_of(topic, message) if message.offset() == at.offset else None
            if error.code() == KafkaError._PARTITION_EOF or error.code() in OUTSIDE:
                return None
            meaning = reading_fault(message, error)
            if meaning:
                raise meaning
        raise LogUnavailable(f"Kafka does not answer (reading {topic} {at.partition} at {at.offset}): try again.")

    def close(self) -> None:
        """Frees the consumer."""
        with self._using:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


def scan(clients: Clients, at: TopicPartition, end: int) -> Iterator[list[Message]]:
    """All messages of one partition from `at.offset` up to the offset `end`, in lists; damaged records are left out.

    Raises LogUnavailable without progress for 10 s.
    """
    position = at.offset
    while position < end:
        consumer = clients.scanner()
        try:
            consumer.assign([TopicPartition(at.topic, at.partition, position)])
            for found, after in _scanned(consumer, at, position, end):
                position = after
                yield found
        except KafkaException as failed:
            raise fault(error_of(failed), f"reading {at.topic} {at.partition}") from None
        finally:
            consumer.close()


def _scanned(consumer: Consumer, at: TopicPartition, position: int, end: int) -> Iterator[tuple[list[Message], int]]:
    """Messages, and the position after them, until `end` or just behind the first offset of damaged records."""
    give_up = time.monotonic() + ANSWER_S
    while position < end:
        first = consumer.poll(SLICE_S)
        if first is None:
            if time.monotonic() > give_up:
                raise LogUnavailable(f"Kafka does not answer (reading {at.topic} {at.partition}): try again.")
            continue
        give_up = time.monotonic() + ANSWER_S
        found: list[Message] = []
        for message in (first, *consumer.consume(SCAN_RECORDS, 0)):
            error = message.error()
            offset = message.offset() or 0
            if error is None:
                position = offset + 1
                if position <= end:
                    found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                position = offset
            elif error.code() in DAMAGED:
                # Nobody knows how many records this covers: step over them one by one, each time with a new consumer.
                yield found, max(position, offset) + 1
                return
            else:
                meaning = reading_fault(message, error)
                if meaning:
                    raise meaning
        yield found, position
