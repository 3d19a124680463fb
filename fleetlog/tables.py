"""Tables for a terminal: ids and states stand whole on one line; columns that find no room are left out, and named.

Room is made in this order: headings take their short form or several lines, texts wrap, columns without any value go,
then those furthest to the right. The first column and `state` always stay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Final

from fleetlog.output import Item, field, styled, title

GAP: Final = 2
"""Blanks between two columns."""
TEXT_MIN: Final = 20
WORD_MAX: Final = 40
"""A column of text wraps at TEXT_MIN at the narrowest, and between its words where these are no longer than this."""
TEXTS: Final = frozenset(
    {"what", "capabilities", "attempts", "message", "text", "reason", "value", "source", "requirement", "pools"}
)
"""Columns, by the last part of their names, whose values are read as text and may wrap."""
SHORT: Final = {"priority": "prio", "attempt": "att", "progress": "prog"}
"""Headings of numbers that may be shorter."""


@dataclass(slots=True)
class _Column:
    """One column: its cells, whether they may wrap, and the widths that it wants and needs."""

    name: str
    cells: list[Any]
    number: bool
    wanted: int
    needed: int
    text: bool
    empty: bool
    always: bool


def table_of(items: Sequence[Item], columns: Sequence[str], width: int) -> tuple[Any, list[str]]:
    """A table for a terminal of `width` signs, and the names of the columns that found no room."""
    from rich import box
    from rich.table import Table

    now = datetime.now(UTC)
    found = [_column(items, name, index == 0, now) for index, name in enumerate(columns)]
    kept = _fitting(found, width)
    widths = _widths(kept, width)
    all_of_it = sum(widths) + GAP * (len(kept) - 1)
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
        width=all_of_it if all_of_it > width else None,
    )  # fmt: skip
    for column, wide in zip(kept, widths, strict=True):
        justify: Any = "right" if column.number else "left"
        table.add_column(_heading(column, wide), justify=justify, width=wide, no_wrap=not column.text, overflow="fold")
    for row in range(len(items)):
        table.add_row(*(column.cells[row] for column in kept))
    return table, [column.name for column in found if column not in kept]


def left_out(names: Sequence[str], first: str, choosable: bool) -> str:
    """The sentence about columns that found no room."""
    how = f"--columns {first},{names[0]} shows what you name, --json everything" if choosable else "--json shows all"
    return f"no room for {', '.join(names)}: {how}."


def _column(items: Sequence[Item], name: str, first: bool, now: datetime) -> _Column:
    values = [field(item, name) for item in items]
    cells = [styled(name, value, now) for value in values]
    inside = max((cell.cell_len for cell in cells), default=0)
    text = not first and name.rpartition(".")[2] in TEXTS
    longest_word = max((len(word) for cell in cells for word in cell.plain.split()), default=0) if text else 0
    heading = title(name)
    shortest = max(len(word) for word in SHORT.get(heading, heading).split() or [""])
    return _Column(
        name=name,
        cells=cells,
        number=all(isinstance(value, int | float | None) for value in values),
        wanted=max(inside, len(heading)),
        needed=max(min(inside, max(TEXT_MIN, min(longest_word, WORD_MAX))) if text else inside, shortest),
        text=text,
        empty=all(value in (None, "", [], {}) for value in values),
        always=first or name == "state",
    )


def _fitting(columns: list[_Column], width: int) -> list[_Column]:
    """The columns that have room: those without any value go first, then from the right."""
    kept = list(columns)
    goes: tuple[Callable[[_Column], bool], ...] = (lambda column: column.empty, lambda _: True)
    for may_go in goes:
        for column in reversed(columns):
            if sum(one.needed for one in kept) + GAP * (len(kept) - 1) <= width:
                return kept
            if column in kept and not column.always and may_go(column):
                kept.remove(column)
    return kept


def _widths(columns: list[_Column], width: int) -> list[int]:
    """What each column needs, and what is left over for those that want more, texts before headings."""
    widths = [column.needed for column in columns]
    left = width - sum(widths) - GAP * (len(columns) - 1)
    for index in sorted(range(len(columns)), key=lambda index: not columns[index].text):
        more = max(0, min(left, columns[index].wanted - widths[index]))
        widths[index] += more
        left -= more
    return widths


def _heading(column: _Column, width: int) -> str:
    heading = title(column.name)
    if len(SHORT.get(heading, heading)) < len(heading) > width:
        heading = SHORT[heading]
    return "\n".join(wrap(heading, max(1, width), break_long_words=False))
