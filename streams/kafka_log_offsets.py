"""Questions to the broker about offsets: beginnings, ends, committed input positions."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # it is public by its documentation

from streams.kafka_log_clients import ANSWER_S, Clients, error_of, fault
from streams.port import Topic

NOTHING_COMMITTED: Final = -1
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LEADER_S: Final = 5.0
LEADER_MOVES: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION}
)
"""Passing for a moment after a topic was made and when its leader moves; librdkafka does not ask again by itself."""
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

    def end_of_snapshots(self, partition: int) -> int:
        """The end of one partition of snapshots."""
        at = TopicPartition(self._clients.snapshots, partition)
        return self._listed(at, LATEST, IsolationLevel.READ_COMMITTED)

    def committed(self, topics: Sequence[Topic], partition: int) -> list[int]:
        """The owners' committed positions, NOTHING_COMMITTED where there is none; never those of an open commit."""
        at = [TopicPartition(self._clients.topic(topic), partition) for topic in topics]
        asked = [ConsumerGroupTopicPartitions(self._clients.owners, at)]
        doing = f"reading the input positions of partition {partition}"
        try:
            answers = self._admin.list_consumer_group_offsets(asked, require_stable=True, request_timeout=ANSWER_S)
            found = {answer.topic: answer for answer in answers[self._clients.owners].result().topic_partitions}
        except KafkaException as failed:
            raise fault(error_of(failed), doing) from None
        for answer in found.values():
            if answer.error is not None:
                raise fault(answer.error, doing)
        return [max(found[one.topic].offset, NOTHING_COMMITTED) for one in at]

    def _listed(self, at: TopicPartition, spec: OffsetSpec, isolation: IsolationLevel) -> int:
        give_up = time.monotonic() + LEADER_S
        while True:
            try:
                answers = self._admin.list_offsets({at: spec}, isolation_level=isolation, request_timeout=ANSWER_S)
                return int(answers[at].result().offset)
            except KafkaException as failed:
                error = error_of(failed)
                if error.code() not in LEADER_MOVES or time.monotonic() > give_up:
                    raise fault(error, f"asking for an offset of {at.topic} {at.partition}") from None
            time.sleep(0.05)
