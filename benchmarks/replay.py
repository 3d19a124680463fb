"""Replays real work through the dispatcher at speed, and draws who waited how long, beside first in first out.

    python -m benchmarks.replay --inputs FOLDER [--out FOLDER] [--jobs N] [grid] [images] [warehouse]

FOLDER holds traces/ and warehouse/ (see benchmarks/replay_inputs.py for what they are and where they come from);
without the option it is FLEETLOG_INPUTS. Nothing of the inputs is written, only figures about them.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.chart import Row, chart
from benchmarks.replay_inputs import WORKS, Work
from benchmarks.replay_pool import Job, Replay, Served, first_in_first_out

Label = Callable[[Job], str]


@dataclass(slots=True)
class Compared:
    """One work, served twice. `seconds`: how long the dispatcher took for all of it."""

    work: Work
    jobs: list[Job]
    ours: Served
    fifo: Served
    seconds: float

    def rows(self, label: Label) -> list[Row]:
        """Waiting times of both, by what `label` says, in its order."""
        groups: dict[str, list[Job]] = defaultdict(list)
        for job in self.jobs:
            groups[label(job)].append(job)
        return [Row(name, _middle(jobs, self.ours), _middle(jobs, self.fifo)) for name, jobs in sorted(groups.items())]


def compare(work: Work, every: list[Job]) -> Compared:
    """Serves the work by the dispatcher, then first in first out. `every`: all jobs, also those that come later."""
    began = time.perf_counter()
    ours = Replay(work.helpers, *(work.begin() if work.begin else ())).run(work.jobs)
    seconds = time.perf_counter() - began
    fifo = first_in_first_out(work.jobs, work.helpers, *(work.begin() if work.begin else ()))
    jobs = [job for job in every if job.id in ours.at_ms]
    if len(ours.at_ms) != len(fifo.at_ms):
        raise RuntimeError(f"{work.name}: {len(ours.at_ms)} jobs were served, first in first out {len(fifo.at_ms)}")
    return Compared(work, jobs, ours, fifo, seconds)


def by_priority(job: Job) -> str:
    """Highest first."""
    return f"priority {job.priority}"


def by_user(compared: Compared) -> Label:
    """Users by how many jobs they have."""
    counts = Counter(job.user for job in compared.jobs)
    edges = ((10, "1 to 10"), (100, "11 to 100"), (1_000, "101 to 1,000"), (1 << 62, "over 1,000"))
    ranks = {user: next(k for k, (most, _) in enumerate(edges) if count <= most) for user, count in counts.items()}
    users = Counter(ranks.values())

    def label(job: Job) -> str:
        rank = ranks[job.user]
        return f"{'abcd'[rank]}) {edges[rank][1]} jobs ({users[rank]:,} user{'s' if users[rank] > 1 else ''})"

    return label


def shares(compared: Compared) -> dict[str, int]:
    """How many jobs the robots had: the least and the most."""
    counts = Counter(compared.ours.by.values())
    return {"least": min(counts.values()), "most": max(counts.values())}


def figures(compared: Compared, rows: dict[str, list[Row]]) -> dict[str, Any]:
    """What the charts show, as data."""
    return {
        "work": compared.work.name,
        "origin": compared.work.origin,
        "jobs": len(compared.jobs),
        "robots": len(compared.work.helpers),
        "jobs_of_a_robot": shares(compared),
        "events": compared.ours.events,
        "jobs_per_second": round(len(compared.jobs) / compared.seconds),
        "waiting_s": {
            name: {
                row.label: {
                    "p50": row.ours[0],
                    "p95": row.ours[1],
                    "fifo_p50": row.fifo[0],
                    "fifo_p95": row.fifo[1],
                }
                for row in group
            }
            for name, group in rows.items()
        },
    }


def _middle(jobs: list[Job], served: Served) -> tuple[float, float]:
    """Median and 95th percentile of the waiting time in seconds."""
    waits = sorted(served.at_ms[job.id] - served.shown_ms[job.id] for job in jobs)
    return waits[len(waits) // 2] / 1_000, waits[min(len(waits) - 1, len(waits) * 95 // 100)] / 1_000


def _every(work: Work) -> list[Job]:
    """All jobs of a work, also those that are shown when others have ended."""
    jobs = list(work.jobs)
    if work.begin is not None:
        _, later = work.begin()
        while (job := later()) is not None:
            jobs.append(job)
    return jobs


def replay(work: Work, out: Path | None) -> dict[str, Any]:
    """Both services of a work; charts into `out` if there is one. Returns the figures."""
    compared = compare(work, _every(work))
    rows = {"priority": compared.rows(by_priority)[::-1]}
    if len({job.user for job in compared.jobs}) > 1:
        rows["user"] = compared.rows(by_user(compared))
    subtitle = f"Waiting time: the bar is the median, the line ends at 95 %. Origin: {work.origin}"
    for name, group in rows.items():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{work.name}-by-{name}.svg").write_text(chart(f"{work.title}, by {name}", subtitle, group))
    return figures(compared, rows)


PROGRAM: Final = "python -m benchmarks.replay"


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Replays real work through the dispatcher.")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(WORKS)} (all)")
    parser.add_argument("--inputs", default=os.environ.get("FLEETLOG_INPUTS"), help="the folder of the inputs")
    parser.add_argument("--out", type=Path, help="where charts and figures.json go")
    parser.add_argument("--jobs", type=int, help="only so many jobs of each")
    asked = parser.parse_args(arguments)
    if asked.inputs is None or not Path(asked.inputs).is_dir():
        print(f"{PROGRAM}: say where the inputs are: --inputs FOLDER, or FLEETLOG_INPUTS.", file=sys.stderr)
        return 2
    unknown = [name for name in asked.works if name not in WORKS]
    if unknown:
        print(f"{PROGRAM}: there is no {', '.join(unknown)}; there are {', '.join(WORKS)}.", file=sys.stderr)
        return 2
    found = []
    for name in asked.works or WORKS:
        found.append(replay(WORKS[name](Path(asked.inputs), asked.jobs), asked.out))
        print(json.dumps(found[-1], indent=2), flush=True)
    if asked.out is not None:
        (asked.out / "figures.json").write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
