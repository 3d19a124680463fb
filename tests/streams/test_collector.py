"""What lives is set apart from the collector while there are many rows, and only then."""

import gc
from collections.abc import Iterator

import pytest

from streams import collector


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No owner holds anything; afterwards nothing is set apart by this test."""
    monkeypatch.setattr(collector, "_rows", {})
    monkeypatch.setattr(collector, "_apart", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_many_rows_are_set_apart_until_they_have_gone() -> None:
    """The rows of all partitions of the process count together; what came since is looked at by the collector."""
    collector.note_rows(0, collector.ROWS_MANY)
    assert gc.get_freeze_count() == 0
    collector.note_rows(1, 1)
    assert gc.get_freeze_count() > 0
    came_later: list[object] = []
    came_later.append(came_later)
    assert any(one is came_later for one in gc.get_objects())
    collector.note_rows(0, 5)
    assert gc.get_freeze_count() == 0
