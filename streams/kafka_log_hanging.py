"""Transactions that nothing ends, and how the next owner of the partition ends them.

Kafka 4.3 and 4.4 complete a transaction without ending it in partitions that have no leader at that moment, as after
the restart of a lone broker (decision 0021). Its records then hold back all readers, and its positions everybody who
takes the partition over, for ever. Only a later transaction of the same producer id that touches the same partitions
ends it there, in the way in which it ends itself.
"""

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streams.kafka_log_clients import ANSWER_S, LOGGER, Clients, error_of, fault, in_time
from streams.port import LogMisconfigured, LogUnavailable, Topic

NOBODY: Final = b"nobody"


def end_hanging(clients: Clients, producer: Producer, partition: int, metadata: Any, topics: Sequence[Topic]) -> None:
    """Aborts what hangs of this producer's partition: the input positions, and the records of `topics`.

    `producer` is initialised, `metadata` that of the owners' group. Where records of events hang with the positions,
    nobody has seen anything of that transaction, and all of it goes (outcomes that ended before were seen: that is
    said). Where only the positions hang, their events are decided: the same inputs come a second time, and are
    refused by their ids. Raises LogMisconfigured, and LogUnavailable, after which the next try needs a new producer.
    """
    LOGGER.error("Kafka left a transaction of partition %d open: %s.", partition, _what_follows(topics))
    # The group never reads this topic; its offset is aborted like all else.
    at = [TopicPartition(clients.snapshots, partition, 0)]
    try:
        producer.begin_transaction()
        for topic in topics:
            producer.produce(clients.topic(topic), b"", NOBODY, partition)
        if producer.flush(ANSWER_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        # The call is left behind with its producer: librdkafka may hang in it for ever (issue 5456).
        if not in_time(lambda: producer.send_offsets_to_transaction(at, metadata, ANSWER_S), ANSWER_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        producer.abort_transaction(ANSWER_S)
    except KafkaException as failed:
        met = fault(error_of(failed), f"ending an open transaction of partition {partition}")
        if isinstance(met, LogMisconfigured):
            raise met from None
        # Anything else passes, a rebalance or another owner in between, too: the next try begins with a new producer.
        raise LogUnavailable(str(met)) from None


def _what_follows(open_topics: Sequence[Topic]) -> str:
    if Topic.EVENTS not in open_topics:
        return "its inputs come a second time"
    if Topic.OUTCOMES in open_topics:
        return "it is aborted, its inputs are decided anew"
    return "it is aborted, its inputs are decided anew; what it told robots and submitters, if anything, does not hold"
