"""R8: a fleet says hello, half of it reconnects at once, nobody's lease is lost by it.

2,000 robots here (`FLEETLOG_ROBOTS`); `python -m benchmarks.reconnect` plays it with 10,000 against a gateway.
"""

import os
from pathlib import Path

from benchmarks.reconnect import storm
from tests.support.fleet import Fleet

ROBOTS = int(os.environ.get("FLEETLOG_ROBOTS", "2000"))


def test_r8_half_of_the_fleet_reconnects_at_once(tmp_path: Path) -> None:
    """All served; every robot holds a task meanwhile, and completes it afterwards."""
    with Fleet(tmp_path, pool={"window_s": 10, "lease_s": 30}) as fleet:
        result = storm(fleet.url, "default", ROBOTS, within_s=ROBOTS / 200, stay_s=45)
    assert result.robots == result.completed == ROBOTS
    assert result.reconnected == ROBOTS // 2
    assert (result.leases_expired, result.stopped) == (0, 0)
