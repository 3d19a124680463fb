"""Which fault came after which step of an owner, and in what state tasks were then."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from pydantic_core import from_json, to_json

from fleetlog.sim.faults import FAULTS, STEPS

STATES: Final = ("WAITING", "ASSIGNED", "RUNNING", "LOST", "DEAD")
Cell = tuple[str, int, str]


class Coverage:
    """Counts of (fault, step, state)."""

    def __init__(self) -> None:
        self.counts: Counter[Cell] = Counter()

    def rarest(self, step: int, states: Iterable[str], random: Random) -> str:
        """The fault that came least after this step with tasks in these states; it is counted."""
        seen = [state for state in STATES if state in states]

        def often(fault: str) -> tuple[int, int]:
            counts = [self.counts[fault, step, state] for state in seen]
            return min(counts, default=0), sum(counts)

        fault = min(random.sample(list(FAULTS), len(FAULTS)), key=often)
        self.counts.update((fault, step, state) for state in seen)
        return fault

    def __iadd__(self, other: "Coverage") -> "Coverage":
        self.counts.update(other.counts)
        return self

    def add_to(self, path: Path) -> "Coverage":
        """All counts together, here and in the file at `path`, which is made if need be; cells of old fall out."""
        if path.exists():
            known = set(cells())
            rows = [(tuple(cell), count) for *cell, count in from_json(path.read_bytes())]
            self.counts.update({cell: count for cell, count in rows if cell in known})
        path.write_bytes(b"[" + b",\n".join(to_json([*cell, self.counts[cell]]) for cell in cells()) + b"]\n")
        return self

    def empty(self) -> list[Cell]:
        """Cells that nothing has fallen into."""
        return [cell for cell in cells() if not self.counts[cell]]

    def table(self) -> list[str]:
        """A line a fault: the smallest count over the states, for each step."""
        head = f"{'fault':<22}" + "".join(f"{step:>8}" for step in range(1, STEPS + 1))
        rows = [
            f"{fault:<22}"
            + "".join(f"{min(self.counts[fault, step, s] for s in STATES):>8}" for step in range(1, STEPS + 1))
            for fault in FAULTS
        ]
        return [head, *rows]


def cells() -> Iterator[Cell]:
    """All of them."""
    return ((fault, step, state) for fault in FAULTS for step in range(1, STEPS + 1) for state in STATES)
