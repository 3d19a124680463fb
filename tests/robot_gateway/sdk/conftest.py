"""What the SDK's tests share: the product for submitters, a gateway by script for robots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from robot_gateway.conformance.fake_gateway import FakeGateway
from tests.support.fleet import Fleet

POOLS = itertools.count(1)


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The whole product; each test uses a pool of its own."""
    folder = tmp_path_factory.mktemp("fleet") / "data"
    with Fleet(folder, pool={"backoff_first_s": 0.1, "failures_max": 2}) as running:
        yield running


@pytest.fixture
def pool() -> str:
    """A pool that no other test uses."""
    return f"sdk-{next(POOLS)}"


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    """A gateway by script; it must have seen no violation of the protocol."""
    with FakeGateway() as running:
        yield running
