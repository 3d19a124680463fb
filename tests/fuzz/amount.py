"""How much is fuzzed: `FLEETLOG_FUZZ=50` makes fifty times as many examples, drawn anew each time.

Without it the examples are few and always the same, so that a change is judged by what it changed.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

FUZZ = int(os.environ.get("FLEETLOG_FUZZ", "0"))


def examples(few: int) -> settings:
    """The settings of a property: `few` examples, or so many times FLEETLOG_FUZZ. No example has a time limit."""
    return settings(
        max_examples=few * max(1, FUZZ),
        derandomize=not FUZZ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink) if FUZZ else (Phase.explicit, Phase.generate),
    )
