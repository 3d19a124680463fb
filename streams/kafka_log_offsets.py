"""Questions to the broker about offsets: beginnings, ends, committed input positions."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # it is public by its documentation

from streams.kafka_log_clients import ANSWER_S, Clients, error_of, fault
from streams.port import Topic

NOTHING_COMMITTED: Final = -1
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
MOMENT_S: Final = 5.0
COORDINATOR_S: Final = 3.0
IN_A_MOMENT: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
    }
)
"""Said for a moment after a topic was made, when a leader moves, while a commit ends; librdkafka does not ask again."""
Answer = TypeVar("Answer")
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Offsets:
    """Asks one broker; every answer is of now. Raises LogUnavailable and LogMisconfigured. Used by any thread."""

    def __init__(self, clients: Clients, admin: AdminClient) -> None:
        self._clients = clients
        self._admin = admin

    def beginning(self, topic: Topic, partition: int) -> int:
        """The smallest offset that is kept."""
        return self._listed(self._clients.at(topic, partition), EARLIEST, IsolationLevel.READ_COMMITTED)

    def end(self, topic: Topic, partition: int) -> int:
        """The read-committed end: nothing at or beyond it can be read now."""
        return self._listed(self._clients.at(topic, partition), LATEST, IsolationLevel.READ_COMMITTED)

    def written_end(self, topic: Topic, partition: int) -> int:
        """The end with what is written but not committed yet."""
        return self._listed(self._clients.at(topic, partition), LATEST, IsolationLevel.READ_UNCOMMITTED)

    def snapshots(self, partition: int) -> tuple[TopicPartition, int]:
        """Where one partition of snapshots begins, and its end."""
        at = TopicPartition(self._clients.snapshots, partition)
        end = self._listed(at, LATEST, IsolationLevel.READ_COMMITTED)
        at.offset = self._listed(at, EARLIEST, IsolationLevel.READ_COMMITTED)
        return at, end

    def committed(self, topics: Sequence[Topic], partition: int) -> list[int]:
        """The owners' committed positions, NOTHING_COMMITTED where there is none; never those of an open commit."""
        at = [TopicPartition(self._clients.topic(topic), partition) for topic in topics]
        asked = [ConsumerGroupTopicPartitions(self._clients.owners, at)]

        def ask() -> list[int]:
            # A new client: one that met a lost connection may wait for its coordinator for ever (issue 5511).
            admin = self._clients.admin()
            answers = admin.list_consumer_group_offsets(asked, require_stable=True, request_timeout=COORDINATOR_S)
            found = {answer.topic: answer for answer in answers[self._clients.owners].result().topic_partitions}
            for answer in found.values():
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return [max(found[one.topic].offset, NOTHING_COMMITTED) for one in at]

        return self._patiently(ask, f"reading the input positions of partition {partition}")

    def _listed(self, at: TopicPartition, spec: OffsetSpec, isolation: IsolationLevel) -> int:
        def ask() -> int:
            admin = self._admin
            answers = admin.list_offsets({at: spec}, isolation_level=isolation, request_timeout=ANSWER_S)
            offset = int(answers[at].result().offset)
            if offset < 0:
                # This is how librdkafka says that the partition has no leader now.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return offset

        return self._patiently(ask, f"asking for an offset of {at.topic} {at.partition}")

    def _patiently(self, ask: Callable[[], Answer], doing: str) -> Answer:
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
            # The client believes what it knew of leaders before; a new one asks.
            self._admin = self._clients.admin()
