"""A transaction that nothing ends, as Kafka 4.3 and 4.4 leave it where a partition had no leader (decision 0021).

Records and positions are written with the producer id of a transactional id, but the coordinator hears nothing of it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka.record import MemoryRecordsBuilder

from tests.support.kafka_owners import wait_until
from tests.support.kafka_settings import BROKER, change_settings

VERIFICATION = "transaction.partition.verification.enable"
Offsets = Mapping[tuple[str, int], int]
"""Positions by topic and partition."""


class Hanging:
    """Takes the transactional id over, as a new producer does, and leaves open what it writes."""

    def __init__(self, address: str, transactional_id: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._transactional_id = transactional_id
        self.take_over()

    def take_over(self) -> None:
        """Fences every other producer of the transactional id, as their new one does."""
        request = InitProducerIdRequest(
            version=0, transactional_id=self._transactional_id, transaction_timeout_ms=10_000
        )
        made = self._ask(request, InitProducerIdResponse)
        while made.error_code:
            time.sleep(0.05)
            made = self._ask(request, InitProducerIdResponse)
        self._producer = made.producer_id, made.producer_epoch

    def write(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Records that are neither committed nor aborted."""
        batch = MemoryRecordsBuilder(2, 0, 1_000_000)
        batch.set_producer_state(*self._producer, 0, is_transactional=True)
        for value in values:
            batch.append(timestamp=None, key=b"pool", value=value)
        batch.close()
        topics = [
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=batch.buffer())
                ],
            )
        ]
        request = ProduceRequest(
            version=3, transactional_id=self._transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics
        )
        self._insist(lambda: self._ask(request, ProduceResponse).responses[0].partition_responses[0].error_code)

    def commit(self, group: str, offsets: Offsets) -> None:
        """Positions that are neither committed nor aborted."""
        topics = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ]
        producer_id, epoch = self._producer
        request = TxnOffsetCommitRequest(
            version=0,
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=topics,
        )
        self._insist(lambda: self._ask(request, TxnOffsetCommitResponse).topics[0].partitions[0].error_code)

    def close(self) -> None:
        self._socket.close()

    @staticmethod
    def _insist(ask: Callable[[], int]) -> None:
        """The broker hears with a delay that it checks nothing now."""
        wait_until(lambda: ask() == 0, "the broker to take what belongs to no transaction")

    def _ask(self, request: Any, answer: Any) -> Any:
        request.with_header(correlation_id=1)
        self._socket.sendall(request.encode(header=True, framed=True))
        size = int.from_bytes(self._receive(4), "big")
        return answer.decode(self._receive(size), version=request.API_VERSION, header=True)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data)) or _ended()
        return data


def _ended() -> bytes:
    raise AssertionError("the broker ended the connection")


@contextlib.contextmanager
def checks_of_transactions_off(admin: AdminClient, broker: str = "1") -> Iterator[None]:
    """The broker takes records of transactions of which their coordinator knows nothing."""
    change_settings(admin, BROKER, broker, {VERIFICATION: "false"})
    try:
        yield
    finally:
        change_settings(admin, BROKER, broker, {VERIFICATION: "true"})
