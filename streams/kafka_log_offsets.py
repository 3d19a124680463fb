"""Questions to the broker about offsets: beginnings, ends, committed input positions.

They are asked by consumers that never join or fetch, not by librdkafka's admin client: that one waits for ever for a
coordinator after a lost connection (librdkafka issues 5456 and 5511), believes what it knew of leaders before a broker
restarted, and ends the whole process when it is dropped with a question open (all seen).
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka_log_clients import Clients, error_of, fault
from streams.port import Topic

NOTHING_COMMITTED: Final = -1
MOMENT_S: Final = 5.0
QUESTION_S: Final = 3.0
"""How long one question may take; calls of one consumer wait for each other, so this is short."""
IN_A_MOMENT: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
    }
)
"""Said for a moment when a topic is new, a broker has just started, a leader moves, or a commit ends."""
COMMITTED: Final = "read_committed"
WRITTEN: Final = "read_uncommitted"
Answer = TypeVar("Answer")


class Offsets:
    """Every answer is of now. Raises LogUnavailable and LogMisconfigured. Used by any thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._askers = {isolation: clients.asker(isolation) for isolation in (COMMITTED, WRITTEN)}

    def beginning(self, topic: Topic, partition: int) -> int:
        """The smallest offset that is kept."""
        return self._kept(COMMITTED, self._clients.at(topic, partition))[0]

    def end(self, topic: Topic, partition: int) -> int:
        """The read-committed end: nothing at or beyond it can be read now."""
        return self._kept(COMMITTED, self._clients.at(topic, partition))[1]

    def written_end(self, topic: Topic, partition: int) -> int:
        """The end with what is written but not committed yet."""
        return self._kept(WRITTEN, self._clients.at(topic, partition))[1]

    def snapshots(self, partition: int) -> tuple[TopicPartition, int]:
        """Where one partition of snapshots begins, and its end."""
        at = TopicPartition(self._clients.snapshots, partition)
        at.offset, end = self._kept(COMMITTED, at)
        return at, end

    def committed(self, topics: Sequence[Topic], partition: int) -> list[int]:
        """The owners' committed positions, NOTHING_COMMITTED where there is none; never those of an open commit."""
        doing = f"reading the input positions of partition {partition}"
        return _patiently(lambda: self._positions(COMMITTED, topics, partition), doing)

    def former(self, topics: Sequence[Topic], partition: int) -> list[int]:
        """The same, told also while a commit is open: as they were before it."""
        doing = f"reading the former input positions of partition {partition}"
        return _patiently(lambda: self._positions(WRITTEN, topics, partition), doing)

    def _positions(self, isolation: str, topics: Sequence[Topic], partition: int) -> list[int]:
        at = [self._clients.at(topic, partition) for topic in topics]
        # A new consumer: one that nobody polls does not look for a coordinator that it lost.
        found = self._clients.asker(isolation).committed(at, timeout=QUESTION_S)
        for answer in found:
            if answer.error is not None:
                raise KafkaException(answer.error)
        by_name = {answer.topic: answer.offset for answer in found}
        return [max(by_name[one.topic], NOTHING_COMMITTED) for one in at]

    def _kept(self, isolation: str, at: TopicPartition) -> tuple[int, int]:
        def ask() -> tuple[int, int]:
            try:
                kept: tuple[int, int] | None = self._askers[isolation].get_watermark_offsets(at, timeout=QUESTION_S)
                if kept is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                if min(kept) < 0:
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            except KafkaException:
                # It believes for minutes what it knew of leaders; a new one asks.
                self._askers[isolation] = self._clients.asker(isolation)
                raise
            return kept

        return _patiently(ask, f"asking for an offset of {at.topic} {at.partition}")


def _patiently(ask: Callable[[], Answer], doing: str) -> Answer:
    """The answer, asked for again where the broker says that it will have one in a moment."""
    give_up = time.monotonic() + MOMENT_S
    while True:
        try:
            return ask()
        except KafkaException as failed:
            error = error_of(failed)
            if error.code() not in IN_A_MOMENT or time.monotonic() > give_up:
                raise fault(error, doing) from None
        time.sleep(0.05)
