"""The format of the rows: what the page says is what the code writes, and a change of rows needs a new number."""

from pathlib import Path

from projections.index_rows import CHECKPOINT, DELAYED_CODE, ERROR_DETAIL, PAYLOAD, RESULT
from projections.rows import STATE_CODES, Entity, Index, Table
from projections.store import FORMAT
from tests.projections.world import replayed
from tests.support.stored_events import ListLog, write_lives

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "projections.md"
ROWS_OF_FORMAT = {6: "4e66b4105fe5c40e71f554359074aecf62316e822fa6131cccc5a85deef3414f"}
"""Format -> digest of the rows of a fixed log."""


def test_the_page_names_all_that_is_written() -> None:
    """Column families, entities, indexes, codes of states, letters of bodies."""
    page = PAGE.read_text("utf-8")
    for table in Table:
        assert f"`{table.value}`" in page or table is Table.META
    for entity in Entity:
        assert f"`{entity.value}` " in page, entity
    for index in Index:
        assert f"| `{index.value}` |" in page, index
    for state, code in STATE_CODES.items():
        assert f"`{code}` {state}" in page
    for letter in (PAYLOAD, RESULT, ERROR_DETAIL, CHECKPOINT, DELAYED_CODE):
        assert f"`{letter}`" in page


def test_other_rows_need_another_number(tmp_path: Path) -> None:
    """If this fails, rows are written differently than before: raise FORMAT, so that old tables are built anew."""
    log = ListLog()
    write_lives(log, seed=100, tasks=200)
    assert ROWS_OF_FORMAT[FORMAT] == replayed(log, tmp_path)
