"""The rows for robots: what a gateway may say and do to them, and what they have to do then."""

from typing import Final

from robot_gateway.conformance.act import Act
from robot_gateway.conformance.robot_rows import ends, sessions, work
from robot_gateway.conformance.row import Row

ROBOT_ROWS: Final[tuple[Row[Act], ...]] = tuple(row for module in (work, ends, sessions) for row in module.TABLE)
"""Every row, for a robot over either transport."""
