"""Real work that others recorded, as jobs: read from a folder that is given, never part of this project.

Each function says where its numbers come from and what stands for what.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.replay_pool import Helper, Job, Next, RunMs

MAP_WIDTH: Final = 64


@dataclass(slots=True, frozen=True)
class Work:
    """Jobs with the robots that serve them. `run_ms` and `after_each` are made anew for each replay."""

    name: str
    title: str
    origin: str
    jobs: list[Job]
    helpers: list[Helper]
    begin: Callable[[], tuple[RunMs, Next]] | None = None


def grid_jobs(folder: Path, most: int | None = None) -> Work:
    """Two days of a computing grid: sites are targets, the shorter the time that was asked for, the higher the
    priority. Run times are divided by 600, so that the busiest site, one job at a time, is at work for four fifths of
    the time; four robots do it all."""
    jobs = []
    with (folder / "traces" / "lcg2005_48h.csv").open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            jobs.append(
                Job(
                    id=f"j{number}",
                    at_ms=int(row["submit_s"]) * 1_000,
                    run_ms=max(100, int(row["run_s"]) * 1_000 // 600),
                    kind="job",
                    user=row["user"],
                    target=f"site-{row['site']}",
                    priority=_by_time_asked_for(int(row["requested_s"])),
                )
            )
    return Work(
        "grid",
        "Grid jobs: 162 sites, 114 users, 48 hours",
        "numbers from the Parallel Workloads Archive log LCG-2005-1 (Hui Li; converted by Dror Feitelson)",
        jobs[:most],
        [Helper(f"r{k}") for k in range(4)],
    )


def _by_time_asked_for(seconds: int) -> int:
    for priority, most_s in ((6, 900), (4, 7_200), (2, 43_200)):
        if seconds <= most_s:
            return priority
    return 0


def image_requests(folder: Path, most: int | None = None) -> Work:
    """23 days of image generation: users are targets (one image at a time for each), the type of request and the model
    are requirements, requests for fewer images have a higher priority. Of two robots one makes everything, the other
    turns text into images only."""
    jobs, models = [], set()
    with (folder / "traces" / "genai_requests_23d.csv").open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            models.add(row["model"])
            items = int(row["items"] or 1)
            jobs.append(
                Job(
                    id=f"q{number}",
                    at_ms=round(float(row["submit_s"]) * 1_000),
                    run_ms=max(100, round(float(row["exec_s"] or 0) * 1_000)),
                    kind="image",
                    user=row["user"],
                    target=row["user"],
                    priority=4 if items == 1 else 2 if items <= 4 else 0,
                    requirement=tuple(sorted((row["type"], f"model-{row['model']}"))),
                    fails=row["status"] == "FAILED",
                )
            )
    every = tuple(f"model-{model}" for model in sorted(models))
    return Work(
        "images",
        "Image requests: 4,247 users, 87 models, 23 days",
        "numbers from the Alibaba cluster-trace-v2026-GenAI",
        jobs[:most],
        [
            Helper("any", ("TXT_2_IMG", "IMG_2_IMG", "INPAINTING", *every)),
            Helper("text", ("TXT_2_IMG", *every)),
        ],
    )


def warehouse_errands(folder: Path, most: int | None = None) -> Work:
    """3,200 errands for 400 robots: 600 are shown, one more for each that is done. A robot goes one cell a second from
    where it stands to each cell of the errand in order, as if nothing stood in its way. One errand in eight is urgent,
    which is made up."""
    place = folder / "warehouse"
    starts = [int(line) for line in _rows(place / "random-example_400.agents")]
    errands = [[int(cell) for cell in line.split(",")] for line in _rows(place / "random-example_400.tasks")][:most]
    shown = min(len(errands), len(starts) * 3 // 2)
    helpers = [Helper(f"r{k:03d}") for k in range(len(starts))]
    jobs = [Job(f"e{k}", 0, 0, "errand", "warehouse", None, 9 if k % 8 == 7 else 0) for k in range(len(errands))]

    def begin() -> tuple[RunMs, Next]:
        at = dict(zip((helper.name for helper in helpers), starts, strict=True))
        later = iter(jobs[shown:])

        def run_ms(job: Job, robot: str) -> int:
            cells = [at[robot], *errands[int(job.id[1:])]]
            at[robot] = cells[-1]
            return 1_000 * max(1, sum(_steps(a, b) for a, b in pairwise(cells)))

        return run_ms, lambda: next(later, None)

    return Work(
        "warehouse",
        "Warehouse errands: 400 robots, 3,200 errands",
        "League of Robot Runners start kit (MIT)",
        jobs[:shown],
        helpers,
        begin,
    )


def _steps(one: int, other: int) -> int:
    """Cells between two cells, along rows and columns."""
    return abs(one // MAP_WIDTH - other // MAP_WIDTH) + abs(one % MAP_WIDTH - other % MAP_WIDTH)


def _rows(path: Path) -> list[str]:
    """The lines after the one that counts them, without remarks."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return lines[1:]


WORKS: Final = {"grid": grid_jobs, "images": image_requests, "warehouse": warehouse_errands}
