"""Appending single records: one idempotent producer and the thread that hears its delivery reports."""

import threading
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.kafka_log_clients import LOGGER, Clients, error_of, fault, require_fitting
from streams.port import Appended, Headers, LogBusy, LogFault, Topic, partition_of

POLL_S: Final = 0.1
CLOSE_S: Final = 5.0
LEADERS_S: Final = 1.0
POOLS_REMEMBERED: Final = 65_536


class Watch(Protocol):
    """Whether the topics are still those that were opened: `kafka_log_watch.TopicWatch`."""

    generation: int


class Appender:
    """Queues records for the log; see `port.Log.append`. Used by any thread."""

    def __init__(self, clients: Clients, partitions: int, watch: Watch) -> None:
        self._clients = clients
        self._watch = watch
        self._generation = watch.generation
        self._partitions = partitions
        self._names = {topic: clients.topic(topic) for topic in Topic}
        self._places: dict[str, int] = {}
        self._producer = self._new_producer()
        self._failed: Producer | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"appends to {clients.prefix}", daemon=True)
        self._thread.start()

    def _new_producer(self) -> Producer:
        """One that knows the leaders of both inputs: else the first record to each waits up to a second for them."""
        producer = self._clients.appender()
        for topic in (Topic.COMMANDS, Topic.REPORTS):
            with suppress(KafkaException):
                producer.list_topics(self._names[topic], LEADERS_S)
        return producer

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """See `port.Log.append`."""
        require_fitting(pool, value, headers)
        if self._closing.is_set():
            raise LogFault("This log is closed: open it anew.")
        producer = self._producer
        try:
            producer.produce(
                self._names[topic],
                value,
                pool,
                self._place(pool),
                on_delivery=partial(self._delivered, producer, done),
                headers=list(headers),
            )
        except BufferError:
            raise LogBusy("Too much waits to be appended: send later.") from None
        except KafkaException as failed:
            error = error_of(failed)
            self._note_fatal(producer, error)
            raise fault(error, f"appending to {topic}") from None

    def _place(self, pool: str) -> int:
        """The pool's partition, remembered: a gateway sees few pools and many records."""
        place = self._places.get(pool)
        if place is None:
            if len(self._places) >= POOLS_REMEMBERED:
                self._places.clear()
            place = self._places[pool] = partition_of(pool, self._partitions)
        return place

    def _delivered(self, producer: Producer, done: Appended, error: KafkaError | None, message: Message) -> None:
        if error is None:
            done(None, message.offset() or 0)
        else:
            self._note_fatal(producer, error)
            done(fault(error, f"appending to {message.topic()}"), -1)

    def _note_fatal(self, producer: Producer, error: KafkaError) -> None:
        """An idempotent producer that lost its numbering never writes again: the thread makes another."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._failed = producer

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(POLL_S)
                if self._failed is self._producer:
                    LOGGER.warning("Kafka took away this producer's numbering; appending goes on with a new one.")
                    self._replace()
                elif self._watch.generation != self._generation:
                    self._replace()  # it remembers topics that were made anew
            except Exception:
                LOGGER.exception("An answer to an appended record failed.")
        self._finish(self._producer, CLOSE_S)

    def _replace(self) -> None:
        self._generation = self._watch.generation
        former, self._producer = self._producer, self._new_producer()
        self._failed = None
        self._finish(former, 0.0)

    @staticmethod
    def _finish(producer: Producer, wait_s: float) -> None:
        """Every record is answered: written within the time, or not."""
        for wait in (wait_s, 1.0):
            try:
                producer.flush(wait)
            except Exception:
                LOGGER.exception("An answer to an appended record failed.")
            producer.purge()

    def close(self) -> None:
        """Waits up to 5 s for what is queued; the rest is answered as not written. Twice is allowed."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
