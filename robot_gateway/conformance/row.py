"""A row of the suite: a name, the rule in words, and how it is played. Tables of rows are filled by decorators."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import getdoc
from typing import Any, Generic, TypeVar

Stage = TypeVar("Stage")
Play = Callable[..., None]


@dataclass(frozen=True)
class Row(Generic[Stage]):
    """`rule`: what must happen, from the docstring. `marks`: what those who play it may have to know."""

    name: str
    rule: str
    play: Callable[[Stage], None]
    marks: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


class Table(Generic[Stage]):
    """Rows of one subject, in the order in which they are written."""

    def __init__(self) -> None:
        self._rows: list[Row[Stage]] = []

    def __iter__(self) -> Iterator[Row[Stage]]:
        return iter(self._rows)

    def row(self, name: str, *marks: str) -> Callable[[Play], Play]:
        """One row, `play(stage)`."""
        return self.rows(name, {"": ()}, *marks)

    def rows(self, name: str, cases: Mapping[str, Iterable[Any]], *marks: str) -> Callable[[Play], Play]:
        """One row for each case, `play(stage, *values)`; `{}` in the name stands for the name of the case."""

        def decorate(play: Play) -> Play:
            rule = " ".join((getdoc(play) or "").split("\n\n")[0].split())
            for case, values in cases.items():
                played = partial(_with_case, play, tuple(values))
                self._rows.append(Row(name.format(case), rule, played, frozenset(marks)))
            return play

        return decorate


def _with_case(play: Play, values: tuple[Any, ...], stage: Any) -> None:
    play(stage, *values)
