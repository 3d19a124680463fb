"""What all tests share: the genuine broker, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import Broker
from tests.support.proxy import KafkaProxy


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for the whole session; tests use topics and groups of their own and leave it running."""
    with Broker(proxies=2) as running:
        yield running


@pytest.fixture
def proxies(broker: Broker) -> Iterator[tuple[KafkaProxy, KafkaProxy]]:
    """Two proxies that lead to the shared broker, restored after the test."""
    first, second = broker.proxies
    try:
        yield first, second
    finally:
        first.restore()
        second.restore()


@pytest.fixture
def proxy(proxies: tuple[KafkaProxy, KafkaProxy]) -> KafkaProxy:
    """A proxy that leads to the shared broker, restored after the test."""
    return proxies[0]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker for the tests of one file, which may kill, pause and restart it, and leave it running; with a proxy."""
    with Broker(proxies=1) as running:
        yield running


LONG = ("system", "sim", "model", "fuzz", "streams", "support", "docs", "fleetlog")
"""Folders whose files take long, mostly waiting: they begin first, so that none is left over at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of LONG folders come first."""

    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)
