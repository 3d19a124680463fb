"""How a picture of a fleet is drawn on a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fleetlog.output import STYLES, Item, age
from fleetlog.telling import kind_of, subject, tell
from fleetlog.watching.fleet import Picture
from fleetlog.when import clock

BAR_CELLS: Final = 20
TASKS_SHOWN: Final = ("WAITING", "ASSIGNED", "RUNNING", "LOST", "COMPLETED", "DEAD", "CANCELLED")
ALARMING: Final = frozenset(
    {
        "LeaseExpired",
        "WindowMissed",
        "OwnershipTaken",
        "AttemptFailed",
        "RobotFaulted",
        "PoolFrozen",
        "ExpiryHeld",
        "ReportedLate",
    }
)
FRAME_LINES: Final = 9
"""Lines of the view beside robots and events: frames, headings, figures."""
EVENTS_MIN: Final = 4


def draw(picture: Picture, height: int, address: str = "", above: Sequence[RenderableType] = ()) -> RenderableType:
    """The view, as high as the terminal at most."""
    room = max(height - FRAME_LINES - len(above) - (picture.trouble is not None), EVENTS_MIN + 2)
    rows = _robot_rows(picture)
    shown = rows
    if len(rows) > room - EVENTS_MIN:
        shown = rows[: max(room - EVENTS_MIN - 1, 1)]
        room -= 1  # for the line that counts the others
    events = picture.events[-max(room - len(shown), EVENTS_MIN) :]
    return Group(*above, _figures(picture, address), _robots(shown, len(rows) - len(shown)), _events(events))


def _figures(picture: Picture, address: str) -> RenderableType:
    line = Text()
    for state in TASKS_SHOWN:
        count = picture.tasks.get(state, 0)
        if count or state in ("WAITING", "RUNNING", "COMPLETED"):
            line.append(f"{state} ", style=STYLES.get(state, ""))
            line.append(f"{count:,}   ", style="bold")
    line.append(f"{picture.rate:.0f} done/s", style="green" if picture.rate else "dim")
    if picture.oldest_waiting_at:
        line.append(f"   the oldest came {age(picture.oldest_waiting_at)}", style="dim")
    title = Text(f"pool {picture.pool}")
    if address:
        title.append(f"  {address}", style="dim")
    if picture.trouble:
        return Panel(
            Group(line, Text(picture.trouble, style="bold red")), title=title, title_align="left", box=box.ROUNDED
        )
    return Panel(line, title=title, title_align="left", box=box.ROUNDED)


def _robot_rows(picture: Picture) -> list[tuple[Text, Text, Text, Text]]:
    """A row for each task that a robot holds, and one for each robot that holds none."""
    rows = []
    now = datetime.now(UTC)
    for robot in picture.robots:
        name, state = str(robot["id"]), str(robot["state"])
        head = (
            Text(name, style="bold"),
            Text(state, style=STYLES.get(state, "")),
            Text(f"{robot.get('used', 0)}/{robot.get('slots', 0)}" + (" draining" if robot.get("draining") else "")),
        )
        held = picture.held.get(name, ())
        if not held:
            rows.append(
                (*head, Text(f"for {age(str(robot.get('since_at', '')), now).removesuffix(' ago')}", style="dim"))
            )
        for number, task in enumerate(held):
            rows.append((*(head if number == 0 else (Text(), Text(), Text())), _work(task)))
    return rows


def _work(task: Item) -> Text:
    """A task that a robot holds: its bar where progress is known, its name, what its robot notes."""
    text = Text(no_wrap=True, overflow="ellipsis")
    progress = task.get("progress")
    if isinstance(progress, int):
        done = round(BAR_CELLS * progress / 100)
        text.append("━" * done, style="blue").append("━" * (BAR_CELLS - done), style="dim")
        text.append(f" {progress:3} %  ")
    else:
        state = str(task["state"])
        text.append(f"{state.lower():{BAR_CELLS + 7}}", style=STYLES.get(state, "dim"))
    text.append(str(task["id"]))
    if int(task.get("attempt", 1)) > 1:
        text.append(f"  attempt {task['attempt']}", style="yellow")
    if task.get("note"):
        text.append(f"  {task['note']}", style="dim")
    return text


def _robots(rows: Sequence[tuple[Text, Text, Text, Text]], more: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    table.add_column("robot", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("slots", no_wrap=True)
    table.add_column("work", ratio=1, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if more > 0:
        table.add_row("", "", "", Text(f"... and {more} more", style="dim"))
    if not rows:
        table.add_row("", "", "", Text("no robot has said hello yet", style="dim"))
    return table


def _events(events: Sequence[Item]) -> RenderableType:
    lines = [event_line(event) for event in events] or [Text("nothing has happened yet", style="dim")]
    return Panel(Group(*lines), title="events", title_align="left", box=box.ROUNDED)


def event_line(event: Item) -> Text:
    """An event on one line: time, what it is about, what happened."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{clock(event['occurred_at'])}  ", style="dim")
    line.append(f"{subject(event):<28.60} ")
    line.append(tell(event), style=_style(event))
    return line


def _style(event: Item) -> Any:
    if kind_of(event) in ALARMING:
        return "bold magenta"
    return STYLES.get(str(event.get("to")), "")
