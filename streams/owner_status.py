"""What an owner tells of itself while it works; other threads read it for `/readyz` and `/metrics` and never wait."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

COMMIT_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0)
BATCH_INPUTS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)


class Distribution:
    """How often which values were seen: `counts[i]` of them up to `bounds[i]`, the last beyond all; and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def note(self, value: float) -> None:
        """One value more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class OwnerStatus:
    """What is to be said of a partition: `phase` is taking_over, deciding, waiting_for_log or stopped (with `why`).

    Counts are of this life of the owner. `clock_offset_ms`: how far the wall clock is ahead of the log's time, where it
    is farthest off; `clock_distrusted`: it is not followed until an operator accepts it. `reports_next`,
    `commands_next`: the next offsets to decide.
    """

    partition: int
    phase: str = "taking_over"
    why: str = ""
    pools: int = 0
    frozen: tuple[str, ...] = ()
    events_written: int = 0
    batches: int = 0
    quarantined: int = 0
    clock_offset_ms: int = 0
    clock_distrusted: bool = False
    reports_next: int = 0
    commands_next: int = 0
    commit_seconds: Distribution = field(default_factory=lambda: Distribution(COMMIT_SECONDS))
    batch_inputs: Distribution = field(default_factory=lambda: Distribution(BATCH_INPUTS))
