"""How the demonstration is shown while it runs: live on a terminal, a line for each remark elsewhere."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fleetlog.demo.diary import Diary, Remark
from fleetlog.demo.play import Play
from fleetlog.output import Output

DRAWN_PER_S: Final = 4
REMARKS_SHOWN: Final = 7
BAR_CELLS: Final = 50


def line(remark: Remark) -> str:
    """A remark as a plain line."""
    return f"{remark.at_s:6.1f} s  {remark.text}"


def print_remark(remark: Remark) -> None:
    """Plain lines go to standard error: standard output is for the result."""
    print(line(remark), file=sys.stderr, flush=True)


@contextmanager
def live(out: Output, play: Play, diary: Diary) -> Iterator[None]:
    """While inside, the fleet is drawn over and over; afterwards the remarks stay on the screen."""
    from rich.live import Live

    console = out.console()
    over = threading.Event()

    def draw_until_over(screen: Live) -> None:
        while not over.wait(1 / DRAWN_PER_S):
            screen.update(_screen(play, diary, console.size.height), refresh=True)

    with Live(console=console, screen=True, auto_refresh=False) as screen:
        drawing = threading.Thread(target=draw_until_over, args=(screen,), name="drawing", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()
    for remark in diary.remarks:
        console.print(_remark(remark))


def _screen(play: Play, diary: Diary, height: int) -> Any:
    from rich.text import Text

    from fleetlog.watching.screen import draw

    picture = play.watcher.picture()
    done = picture.tasks.get("COMPLETED", 0)
    filled = round(BAR_CELLS * done / max(play.total, 1))
    bar = Text("every file of Python's standard library, compressed and checked  ", style="bold")
    bar.append("━" * filled, style="green").append("━" * (BAR_CELLS - filled), style="dim")
    bar.append(f"  {done:,} of {play.total:,}")
    remarks = [_remark(remark) for remark in diary.remarks[-REMARKS_SHOWN:]]
    return draw(picture, height, play.url, (bar, *remarks))


def _remark(remark: Remark) -> Any:
    from rich.text import Text

    text = Text(f"{remark.at_s:6.1f} s  ", style="dim", no_wrap=True, overflow="ellipsis")
    return text.append(remark.text, style="bold red" if remark.blow else "default not dim")
