"""What verbs print: tables to a terminal, tab-separated lines to a pipe, one JSON object a line with `--json`.

Results go to standard output; notes, questions and progress to standard error. rich is loaded for a terminal alone.
"""

import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

Item = Mapping[str, Any]
ROWS_AT_ONCE: Final = 500
INSTANT_ENDS: Final = ("_at", "_by", "_until", "not_before")
STYLES: Final = {
    "WAITING": "yellow",
    "ASSIGNED": "cyan",
    "RUNNING": "blue",
    "LOST": "magenta",
    "COMPLETED": "green",
    "CANCELLED": "dim",
    "DEAD": "bold red",
    "DISCARDED": "dim",
    "IDLE": "green",
    "BUSY": "blue",
    "ERROR": "bold red",
    "OFFLINE": "dim",
}
"""State of a task or robot -> its colour."""


class Output:
    """The two streams of one verb. `as_json`: objects instead of tables. `quiet`: no notes and no progress."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.terminal = sys.stdout.isatty()
        self._consoles: dict[bool, Console] = {}

    def console(self, to_stderr: bool = False) -> "Console":
        """rich's console for one of the streams; it heeds NO_COLOR."""
        from rich.console import Console

        if to_stderr not in self._consoles:
            self._consoles[to_stderr] = Console(stderr=to_stderr, highlight=False, soft_wrap=not self.terminal)
        return self._consoles[to_stderr]

    # ---- results ----

    def text(self, text: str) -> None:
        """A line of the result, as it is."""
        print(text, flush=True)

    def json(self, value: Any) -> None:
        """A line of JSON."""
        print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)

    def say(self, value: Item, text: str) -> None:
        """What a verb came to: the object for scripts, a sentence for people."""
        if self.as_json:
            self.json(value)
        elif not self.quiet:
            self.text(text)

    def rows(self, items: Iterable[Item], columns: Sequence[str], choosable: bool = False) -> int:
        """Items as lines with these columns (dotted names of fields); how many there were. On a terminal a last line
        names the columns that found no room; `choosable`: the verb has --columns.
        """
        count = 0
        if self.as_json:
            for count, item in enumerate(items, 1):  # noqa: B007
                self.json(item)
        elif self.terminal:
            count = self._tables(items, columns, choosable)
        else:
            for count, item in enumerate(items, 1):  # noqa: B007
                print("\t".join(_plain(field(item, name)) for name in columns), flush=True)
        return count

    def _tables(self, items: Iterable[Item], columns: Sequence[str], choosable: bool) -> int:
        from fleetlog.tables import left_out, table_of

        count, no_room = 0, dict[str, None]()
        for part in _parts(items):
            table, names = table_of(part, columns, self.console().width)
            self.console().print(table, crop=False)
            count += len(part)
            no_room |= dict.fromkeys(names)
        if no_room:
            self.console().print(left_out(list(no_room), columns[0], choosable), style="dim", markup=False)
        return count

    def card(self, item: Item, skip: Iterable[str] = ()) -> None:
        """One item whole, a line for each field."""
        if self.as_json:
            self.json(item)
            return
        shown = [(name, value) for name, value in flat(item) if name not in skip and value not in (None, [], {}, "")]
        if not self.terminal:
            for name, value in shown:
                print(f"{name}\t{_plain(value)}")
            return
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in shown:
            grid.add_row(Text(name, style="dim"), styled(name, value))
        self.console().print(grid)

    def stop_if_nobody_reads(self) -> None:
        """Raises BrokenPipeError where whoever read our output has gone, though there is nothing to print just now."""
        try:
            poll = select.poll()
            poll.register(sys.stdout.fileno(), 0)
            gone = any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))
        except (AttributeError, OSError, ValueError):
            return  # no descriptor behind it, or no poll on this system
        if gone:
            raise BrokenPipeError

    # ---- beside the results ----

    def note(self, text: str) -> None:
        """Something worth knowing that nobody asked for."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar on a terminal's standard error (none for a total of 0); the function given advances it."""
        if self.quiet or total == 0 or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # What is printed meanwhile stands above the bar on a terminal, and goes to its file or pipe where it has one.
        console = self.console(to_stderr=True)
        with Progress(*columns, console=console, transient=True, redirect_stdout=self.terminal) as bar:
            task = bar.add_task(what, total=total)
            yield lambda n: bar.advance(task, n)


# ---- values ----


def field(item: Item, name: str) -> Any:
    """The value of a dotted name (`labels.line`); None where there is none."""
    if name in item:
        return item[name]
    head, dot, rest = name.partition(".")
    inner = item.get(head)
    return field(inner, rest) if dot and isinstance(inner, Mapping) else None


def flat(item: Item, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of every field; those of inner objects under dotted names."""
    for name, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def shown(name: str, value: Any, now: datetime | None = None) -> str:
    """A value for people: instants as ages, seconds as durations."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and name.endswith(INSTANT_ENDS):
        return age(value, now)
    if isinstance(value, int | float) and name.endswith("_s") and not name.endswith("_per_s"):
        return duration(value)
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def age(text: str, now: datetime | None = None) -> str:
    """An instant, seen from now: `12 s ago`, `in 3 m`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    away = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{duration(away)} ago" if away >= 0 else f"in {duration(-away)}"


def duration(seconds: float) -> str:
    """Seconds in at most two units: `0.2 s`, `4 m 10 s`, `3 h 5 m`, `12 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    whole = int(seconds)
    for (unit, size), (small, part) in pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def styled(name: str, value: Any, now: datetime | None = None) -> Any:
    """A value as coloured text for a terminal."""
    from rich.text import Text

    style = STYLES.get(value, "") if isinstance(value, str) else ""
    return Text(shown(name, value, now), style=style)


def title(name: str) -> str:
    """The heading of a column."""
    name = name.removeprefix("events.").removeprefix("counts.")
    for end in ("_at", "_s"):
        name = name if name.endswith("_per_s") else name.removesuffix(end)
    return name.replace("_", " ").replace(".", " ")


def _plain(value: Any) -> str:
    """A value as one cell of a tab-separated line."""
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = ",".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return " ".join(text.split("\t")).replace("\r", " ").replace("\n", " ")


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while part := list(islice(iterator, ROWS_AT_ONCE)):
        yield part


def no_color() -> bool:
    """Whether the user wants no colours (any value but an empty one)."""
    return bool(os.environ.get("NO_COLOR"))
