"""What all lists share: `--where`, `--limit`, `--all`, `--sort`, `--columns`, `--watch`."""

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer

from fleetlog.output import Item, field
from fleetlog.problems import wrong_usage
from fleetlog.verb import Call

WATCH_EVERY_S: Final = 2.0
LIMIT: Final = 50

Where = Annotated[
    str,
    typer.Option("--where", metavar="FILTER", help="Parts joined by and: state=DEAD kind=weld* older=2h priority>=7."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
All = Annotated[bool, typer.Option("--all", help="Without a limit.")]
Sort = Annotated[str | None, typer.Option("--sort", metavar="FIELD", help="A leading - for descending.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAME,...", help="Fields to show: id,state,labels.line,error.message."),
]
Watch = Annotated[bool, typer.Option("--watch", help=f"Again every {WATCH_EVERY_S:g} s, until Ctrl-C.")]


def limit_of(limit: int, everything: bool) -> int | None:
    """How many items; None for all of them."""
    return None if everything else limit


def show(
    call: Call,
    what: str,
    fetch: Callable[[], Iterable[Item]],
    columns: tuple[str, ...],
    chosen: str | None,
    watch: bool,
) -> None:
    """Prints the items of `what` (task, robot ...) that `fetch` gives; with `watch` again and again, on a terminal in
    place. Raises Problem where `chosen` names a field that there is not.
    """
    names = columns if chosen is None else tuple(name.strip() for name in chosen.split(",") if name.strip())
    if not names:
        raise wrong_usage("--columns names no field: give for example id,state.")
    if chosen is not None:
        from fleetlog.fields import refuse_unknown

        refuse_unknown(names, what, columns)
    if call.out.as_json and chosen is not None:
        original = fetch
        fetch = lambda: ({name: field(item, name) for name in names} for item in original())  # noqa: E731
    if watch and call.out.terminal and not call.out.as_json:
        _watch_in_place(call, fetch, names)
        return
    while True:
        count = call.out.rows(fetch(), names, choosable=True)
        if not count and call.out.terminal and not call.out.as_json:
            call.out.note("nothing matches.")
        if not watch:
            return
        time.sleep(WATCH_EVERY_S)


def _watch_in_place(call: Call, fetch: Callable[[], Iterable[Item]], names: tuple[str, ...]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from fleetlog.tables import left_out, table_of

    console = call.out.console()
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            table, no_room = table_of(list(fetch()), names, console.width)
            below = [Text(left_out(no_room, names[0], True), style="dim")] if no_room else []
            live.update(Group(table, *below), refresh=True)
            time.sleep(WATCH_EVERY_S)


def sorted_by(items: Iterable[Item], sort: str | None, limit: int | None) -> list[Item]:
    """Items by a field, for lists that the gateway does not sort."""
    found = list(items)
    if sort is not None:
        name = sort.removeprefix("-")
        present = [item for item in found if field(item, name) is not None]
        missing = [item for item in found if field(item, name) is None]
        try:
            present.sort(key=lambda item: field(item, name), reverse=sort.startswith("-"))
        except TypeError:
            raise wrong_usage(f"--sort {name} is no field that can be sorted by.") from None
        found = present + missing
    return found if limit is None else found[:limit]
