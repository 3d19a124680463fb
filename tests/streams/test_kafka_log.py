"""The contract of the log port, on a genuine Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streams.contract import LogContract
from tests.support.broker import Broker
from tests.support.kafka_site import KafkaSite
from tests.support.proxy import KafkaProxy


class TestKafkaLog(LogContract):
    """Every test of the contract."""

    @pytest.fixture
    def site(self, request: pytest.FixtureRequest, broker: Broker, proxy: KafkaProxy) -> Iterator[KafkaSite]:
        # Kafka's checksum covers a batch: where one record is to be damaged alone, each is a batch of its own.
        alone = {"batch.num.messages": "1"} if "corrupt_record" in request.node.name else {}
        site = KafkaSite(broker, proxy, settings=alone)
        yield site
        site.close()
