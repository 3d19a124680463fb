"""What all tests share: the genuine broker, started when the first test asks for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import Broker
from tests.support.proxy import KafkaProxy
from tests.support.shared_broker import PROXIES, Host, SharedBroker

HOST = pytest.StashKey[tuple[Host, "tempfile.TemporaryDirectory[str]"]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each tester learns where it may ask for the broker that all of them share."""
    stash = node.config.stash
    if HOST not in stash:
        folder = tempfile.TemporaryDirectory(prefix="fleetlog-shared-broker-")
        stash[HOST] = Host(Path(folder.name), len(node.config.option.tx)), folder
    node.workerinput["shared_broker"] = stash[HOST][1].name


def pytest_unconfigure(config: pytest.Config) -> None:
    """The shared broker ends after all testers."""
    if HOST in config.stash:
        host, folder = config.stash[HOST]
        host.close()
        folder.cleanup()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker | SharedBroker]:
    """One broker for the whole run; tests use topics and groups of their own and leave it running."""
    given: dict[str, Any] | None = getattr(request.config, "workerinput", None)
    if given is None:
        with Broker(proxies=PROXIES) as running:
            yield running
    else:
        shared = SharedBroker(Path(given["shared_broker"]), int(given["workerid"].removeprefix("gw")))
        yield shared
        shared.close()


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


LONG = ("mutations", "system", "sim", "model", "fuzz", "streams", "support", "docs", "fleetlog")
"""Folders whose files take long, mostly waiting: they begin first, so that none is left over at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of LONG folders come first."""

    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)
