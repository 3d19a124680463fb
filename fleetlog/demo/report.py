"""What stands at the end of the demonstration: figures of the referee as a table, and what to try next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fleetlog.demo.referee import Verdict
from fleetlog.output import Output, duration

Row = tuple[str, str]
KIB: Final = 1024


def summary(verdict: Verdict, seconds: float) -> dict[str, Any]:
    """The object of `--json`."""
    return {
        "tasks": verdict.tasks,
        "completed": verdict.completed,
        "wrong_results": verdict.wrong_results,
        "completed_twice": verdict.completed_twice,
        "leases_lost": verdict.leases_lost,
        "restarts": verdict.restarts,
        "verified": verdict.verified,
        "seconds": round(seconds, 1),
    }


def figures(verdict: Verdict, seconds: float) -> list[Row]:
    """The figures as rows."""
    waits = verdict.waits_ms
    return [
        ("tasks", f"{verdict.tasks:,}, completed {verdict.completed:,}"),
        ("completed twice", str(verdict.completed_twice)),
        ("results other than hashlib's", str(verdict.wrong_results)),
        ("attempts", f"{verdict.attempts:,}, of which {verdict.resumed} went on from a checkpoint"),
        ("waiting", f"median {_wait(waits, 0.5)}, 95 % under {_wait(waits, 0.95)}, longest {_wait(waits, 1.0)}"),
        ("leases lost", f"{verdict.leases_lost}, of the killed robot {verdict.lost_after_kill}"),
        ("late reports", str(verdict.late_reports)),
        ("restarts of Fleetlog", f"{verdict.restarts}, longest gap {duration(verdict.gap_ms / 1000)}"),
        ("events in the log", f"{verdict.events:,}, {'verified' if verdict.verified else 'NOT VERIFIED'}"),
        (
            "time",
            f"{seconds:.1f} s, {verdict.completed / max(verdict.span_ms / 1000, 0.001):.0f} tasks a second by the log",
        ),
    ]


def _wait(waits: Sequence[int], share: float) -> str:
    if not waits:
        return "-"
    return duration(waits[min(len(waits) - 1, int(share * len(waits)))] / 1000)


def robot_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Robot, attempts, completed, leases lost."""
    return [(name, f"{r.attempts:,}", f"{r.completed:,}", str(r.lost)) for name, r in verdict.robots.items()]


def size_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Class of sizes, files, KiB before and after, share that is left."""
    return [
        (name, f"{s.files:,}", f"{s.bytes / KIB:,.0f}", f"{s.compressed / KIB:,.0f}", f"{s.compressed / s.bytes:.0%}")
        for name, s in verdict.sizes.items()
        if s.bytes
    ]


ROBOT_HEADS: Final = ("robot", "attempts", "completed", "leases lost")
SIZE_HEADS: Final = ("files", "number", "KiB", "compressed", "left")


def show(out: Output, verdict: Verdict, seconds: float) -> None:
    """Prints the tables; plain lines where there is no terminal."""
    if not out.terminal:
        for name, text in figures(verdict, seconds):
            out.text(f"{name}: {text}")
        for row in (ROBOT_HEADS, *robot_rows(verdict), SIZE_HEADS, *size_rows(verdict)):
            out.text("  ".join(f"{cell:>14}" for cell in row))
        return
    from rich import box
    from rich.columns import Columns
    from rich.table import Table

    table = Table(title="What the referee found in the exported log and the files", box=box.ROUNDED, show_header=False)
    for name, text in figures(verdict, seconds):
        table.add_row(name, text)
    out.console().print(table)
    out.console().print(
        Columns([_table(ROBOT_HEADS, robot_rows(verdict)), _table(SIZE_HEADS, size_rows(verdict))], padding=(0, 4))
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def next_steps(program: str, url: str, task: str, export: Path | None, serving: bool) -> list[str]:
    """The exact commands to explore with; `export` is None where it does not stay."""
    where = "" if url.endswith(":8780") else f" --gateway {url}"
    offline = [f"{program} audit history {task} --export {export}", f"{program} audit verify --export {export}"]
    if not serving:
        return [f"{program} demo --data demo --serve"] if export is None else offline
    return [
        f"{program} history {task}{where}",
        f"{program} task {task}{where}",
        f"{program} why {task}{where}",
        f"{program} robots{where}",
        f"{program} watch{where}",
        f"{program} submit compress --payload /etc/hosts --wait{where}",
        *(() if export is None else offline),
        f"{url}/docs",
    ]
