"""The rows for gateways: what a robot may say, right and wrong, and what the gateway has to answer."""

from typing import Final

from robot_gateway.conformance.gateway_rows import attempts, form, frames, heartbeats, hello, messages
from robot_gateway.conformance.row import Row
from robot_gateway.conformance.scene import Scene

GATEWAY_ROWS: Final[tuple[Row[Scene], ...]] = tuple(
    row for module in (hello, messages, heartbeats, attempts, form, frames) for row in module.TABLE
)
"""Every row, for each transport; those marked with a transport for that one alone."""


def rows_over(transport: str) -> list[Row[Scene]]:
    """The rows that are played over this transport (`websocket` or `polling`)."""
    return [row for row in GATEWAY_ROWS if not row.marks or transport in row.marks]
