"""The gateway row by row of the robot protocol, with the whole product behind it, over both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_gateway.conformance.gateway_rows import rows_over
from robot_gateway.conformance.row import Row
from robot_gateway.conformance.scene import TRANSPORTS, GatewayUnderTest, Scene
from tests.support.fleet import Fleet


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayUnderTest]:
    """The product, for all tests here."""
    folder: Path = tmp_path_factory.mktemp("fleet") / "data"
    with Fleet(folder, gateway={"heartbeat_gather_ms": 50}) as fleet:
        under_test = GatewayUnderTest(fleet.url).prepare()
        yield under_test
        under_test.close()


@pytest.mark.parametrize(
    ("transport", "row"),
    [(transport, row) for transport in TRANSPORTS for row in rows_over(transport)],
    ids=str,
)
def test_row(gateway: GatewayUnderTest, transport: str, row: Row[Scene]) -> None:
    """Each row, as its own words say."""
    with Scene(gateway, transport) as scene:
        row.play(scene)
