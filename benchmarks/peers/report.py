"""The page and the charts of a run. The table is the result: rows stand as measured, in the order of the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.chart import Bar, bars
from benchmarks.peers.results import Found, Measured, RowFound

PAGE: Final = "performance-peers"
OURS: Final = "fleetlog"

INTRODUCTION: Final = """\
One machine, one run, the same works, one thing at a time: every row in turn, {times} in all; each cell has a figure a
round. Rows that Fleetlog loses stand as they are."""
BUSY: Final = """\
**Other work kept this machine busy meanwhile (load average {least:.0f} to {most:.0f}), not the same at each
measurement: every figure here is worse than on a quiet one, and even ratios are only hints.**"""
COLUMNS: Final = """\
- **Survives**: what does not lose an acknowledged task; rows are compared with those that promise the same.
- **Tasks a second**: {tasks:,} tasks that do nothing, four workers that wait for them, from the first submission until
  the last is recorded as completed. **Submitted a second**: of that run, the submissions alone.
- **Submit to start**: 50 tasks a second for {seconds:g} s onto four idle workers, from before the call that submits to
  the first line of the handler; all tasks counted.
- **Killed**: two workers; 0.5 s into a task of 3 s the one that runs it is killed with all its processes (SIGKILL) and
  not started again. Seconds until the task starts on the other one; the wait ends after {wait:g} s. A task that has not
  started by then is lost unless somebody looks for it."""
SETTINGS: Final = """\
Those that each peer's own documentation recommends for the work; the words below are what differs from its defaults.
“Best sensible” takes a worker for dead after 5 s of silence wherever a peer can be told so."""
AGAIN: Final = """\
```text
make bench-peers                                                    everything, into docs/
make bench-peers ARGS="--only celery --only fleetlog --out /tmp"    some rows
make bench-peers ARGS="--tasks 500 --seconds 5 --rounds 1 --wait 20 --out /tmp"
```

Each peer is installed into an environment of its own under `.cache/peers/`. What cannot be had is named in the table,
with the reason and the remedy. The same figures as [JSON](performance-peers.json);
[Fleetlog alone](performance.md)."""


def write(found: Found, folder: Path) -> list[Path]:
    """Page, JSON and charts, into `folder`; gives what was written."""
    found.save(folder / f"{PAGE}.json")
    drawn = charts(found)
    for name, text in drawn.items():
        (folder / name).write_text(text)
    page = folder / f"{PAGE}.md"
    page.write_text(markdown(found, list(drawn)))
    return [page, folder / f"{PAGE}.json", *(folder / name for name in drawn)]


def markdown(found: Found, drawn: list[str]) -> str:
    """The whole page."""
    parts = [
        "# Fleetlog beside others",
        "<!-- Written by `make bench-peers`; `python -m benchmarks.peers --report` writes it anew from the JSON. -->",
        INTRODUCTION.format(times=_times(found.rounds)),
        BUSY.format(least=found.loads[0], most=found.loads[-1]) if found.busy else "",
        _table(found),
        COLUMNS.format(tasks=found.tasks, seconds=found.seconds, wait=found.wait_s),
        *(f"![{_alt(name)}]({name})" for name in drawn),
        "## What an acknowledged task survives",
        _durability(found),
        "## Settings",
        SETTINGS,
        _settings(found),
        "## Versions",
        _versions(found),
        "## Conditions",
        _conditions(found),
        "## Again",
        AGAIN,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(found: Found) -> str:
    head = ["", "survives", "tasks a second", "submitted a second", "submit to start p50, ms", "p99, ms"]
    head += ["killed, default settings, s", "killed, best sensible settings, s"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in found.rows:
        if row.missing:
            lines.append(_line([f"**{row.title}**", f"not installed: {row.missing}. Remedy: {row.remedy}", *[""] * 6]))
            continue
        cells = [
            _cell(row.of("throughput"), lambda one: f"{one['per_s']:,.0f}"),
            _cell(row.of("throughput"), lambda one: f"{one['submitted_per_s']:,.0f}"),
            _cell(row.of("latency"), lambda one: f"{one['p50_ms']:.1f}"),
            _cell(row.of("latency"), lambda one: f"{one['p99_ms']:.1f}"),
        ]
        cells += [_crash(row, "crash_default"), _crash(row, "crash_best")]
        lines.append(_line([f"**{row.title}**", row.survives, *cells]))
    return "\n".join(lines)


def _cell(measured: list[Measured], say: Callable[[dict[str, float]], str]) -> str:
    return ", ".join(f"failed: {one.failed}" if one.failed else say(one.found) for one in measured) or "not measured"


def _crash(row: RowFound, work: str) -> str:
    if not row.crashes:
        return "as the row above"
    return _cell(row.of(work), lambda one: _again(one["again_s"], one["waited_s"]))


def _again(again_s: float | None, waited_s: float) -> str:
    return f"not within {waited_s:g} s" if again_s is None else f"{again_s:.1f}"


def _durability(found: Found) -> str:
    head = [_line(["", "an acknowledged task", "“completed” is when"]), _line(["---"] * 3)]
    return "\n".join([*head, *(_line([row.title, row.durability, row.recorded]) for row in found.rows)])


def _settings(found: Found) -> str:
    head = ["", "tasks a second, submit to start", "killed: default", "killed: best sensible"]
    lines = [_line(head), _line(["---"] * 4)]
    for row in found.rows:
        lines.append(_line([row.title, *(row.settings.get(name, "") for name in ("fast", "default", "best"))]))
    return "\n".join(lines)


def _versions(found: Found) -> str:
    said = [
        f"- {row.title}: " + ", ".join(f"{name} {version}" for name, version in row.versions.items())
        for row in found.rows
        if row.versions
    ]
    return "\n".join(said)


def _conditions(found: Found) -> str:
    said = [f"- {name}: {value}" for name, value in found.conditions.items()]
    if found.loads:
        said.append(
            "- load average of the last minute just before each measurement: "
            f"{found.loads[0]:.1f} to {found.loads[-1]:.1f} (what the measurement before left behind is in it; "
            "a quiet machine shows less than its number of cores)"
        )
    return "\n".join(said)


def charts(found: Found) -> dict[str, str]:
    """File name -> SVG, for each figure that at least one row has."""
    wanted = {
        "tasks": ("Tasks a second", "10,000 tasks that do nothing: a bar a round", "throughput", "per_s", 0),
        "start": ("Submit to start, p99", "50 a second onto idle workers, ms", "latency", "p99_ms", 1),
        "killed": ("A killed worker's task runs again", "best sensible settings, s", "crash_best", "again_s", 1),
    }
    drawn: dict[str, str] = {}
    for name, (title, subtitle, work, figure, digits) in wanted.items():
        rows = [(row, row.figures(work, figure)) for row in found.rows]
        shown = [Bar(row.title, tuple(values), ours=row.key.startswith(OURS)) for row, values in rows if values]
        if shown:
            drawn[f"{PAGE}-{name}.svg"] = bars(title, subtitle.replace("10,000", f"{found.tasks:,}"), shown, digits)
    return drawn


def _alt(name: str) -> str:
    return {"tasks": "Tasks a second", "start": "Submit to start", "killed": "A worker is killed"}[
        name.removeprefix(f"{PAGE}-").removesuffix(".svg")
    ]


def _times(rounds: int) -> str:
    return {1: "once", 2: "twice"}.get(rounds, f"{rounds} times")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
