"""The table of (fault, step, state): what was played is added up over runs, and an empty cell is a failure."""

from pathlib import Path

import pytest
from pydantic_core import from_json, to_json

from fleetlog.sim.coverage import Coverage, cells
from tests.fleetlog.conftest import program

SMALL = ["sim", "--hours", "0.001", "--robots", "3", "--rate", "1", "--fault-every", "1"]
CELL = ("storm", 4, "LOST")


def test_counts_of_several_runs_add_up_in_the_file(tmp_path: Path) -> None:
    """What is in the file and what is new; a fault of which the program knows nothing any more falls out."""
    path = tmp_path / "counts.json"
    first, second = Coverage(), Coverage()
    first.counts[CELL] = 2
    second.counts.update({CELL: 3, ("garbage", 1, "DEAD"): 1})
    first.add_to(path)
    rows = from_json(path.read_bytes())
    path.write_bytes(to_json([*rows, ["flood", 1, "LOST", 9]]))
    both = second.add_to(path)
    assert both.counts[CELL] == 5
    assert Coverage().add_to(path).counts == both.counts
    assert len(from_json(path.read_bytes())) == len(list(cells()))
    assert len(both.empty()) == len(list(cells())) - 2


@pytest.mark.parametrize("empty", [CELL, None])
def test_a_cell_that_is_empty_fails(tmp_path: Path, empty: tuple[str, int, str] | None) -> None:
    """Where every rule held, but a fault never came after a step with a task in a state, the verb says so: exit 1."""
    path = tmp_path / "counts.json"
    played = Coverage()
    played.counts.update(cell for cell in cells() if cell != empty)
    played.add_to(path)
    done = program(*SMALL, "--counts", str(path), cwd=tmp_path, timeout=300)
    if empty is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert "1 cells of" in done.stderr
