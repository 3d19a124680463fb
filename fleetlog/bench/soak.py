"""Whether it stays as it is: lives at a steady rate for long; memory, latency and disk looked at each minute.

Latency is from the submission's append to the completion's, from the log; memory is of all processes of the product.
"""

import multiprocessing
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from fleetlog.bench.lives import be_robot, submit_at, until_connected
from fleetlog.bench.percentiles import percentile
from fleetlog.bench.product import ProductProcess
from streams.port import Record, Topic

ROBOTS: Final = 2
RETRY_FOR_S: Final = 60.0
MIB: Final = 2**20
SETTLED_MINUTES: Final = 10
"""From when on memory and latency have to be flat."""


def measure_soak(
    product: ProductProcess, rate_per_s: float, minutes: float, every_s: float
) -> Iterator[dict[str, Any]]:
    """A row for each `every_s`; then how the last one is beside the first that counts."""
    context = multiprocessing.get_context("spawn")
    crew = [context.Process(target=be_robot, args=(product.url, f"soak-{n}"), daemon=True) for n in range(ROBOTS)]
    for robot in crew:
        robot.start()
    until_connected(product, ROBOTS)
    crew.append(context.Process(target=submit_at, args=(product.url, rate_per_s, RETRY_FOR_S), daemon=True))
    crew[-1].start()
    rows: list[dict[str, Any]] = []
    try:
        for row in _rows(product, ceil(60 * minutes / every_s), every_s):
            rows.append(row)
            yield row
    finally:
        for process in crew:
            process.kill()
            process.join(10)
    first = next((row for row in rows if row["minute"] >= SETTLED_MINUTES), rows[0])
    last = rows[-1]
    yield {
        "minutes": minutes,
        "lives_per_s": round(sum(row["lives_per_s"] for row in rows) / len(rows), 1),
        "memory_ratio": round(last["memory_mib"] / first["memory_mib"], 2),
        "p99_ratio": round(last["p99_ms"] / max(first["p99_ms"], 1), 2),
        "disk_mib": last["disk_mib"],
    }


def _rows(product: ProductProcess, count: int, every_s: float) -> Iterator[dict[str, Any]]:
    log = product.reader()
    follower = log.follow(Topic.EVENTS, {p: log.end(Topic.EVENTS, p) for p in range(log.partitions)})
    submitted: dict[bytes, int] = {}
    try:
        for number in range(1, count + 1):
            took_ms: list[float] = []
            end = time.monotonic() + every_s
            while time.monotonic() < end:
                for record in follower.poll(10_000, 0.5):
                    _note(record, submitted, took_ms)
            yield {
                "minute": round(number * every_s / 60, 2),
                "lives_per_s": round(len(took_ms) / every_s, 1),
                "p50_ms": percentile(took_ms or [0.0], 0.5),
                "p99_ms": percentile(took_ms or [0.0], 0.99),
                "memory_mib": round(product.memory_bytes() / MIB, 1),
                "disk_mib": round(_disk_bytes(product.folder) / MIB, 1),
            }
    finally:
        follower.close()
        log.close()


def _note(record: Record, submitted: dict[bytes, int], took_ms: list[float]) -> None:
    kind = record.header("type")
    if kind not in (b"TaskSubmitted.v1", b"TaskCompleted.v1"):
        return
    task = from_json(record.value)["task"].encode()
    if kind == b"TaskSubmitted.v1":
        submitted[task] = record.appended_at
    elif task in submitted:
        took_ms.append(record.appended_at - submitted.pop(task))


def _disk_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # compaction took it away meanwhile
    return total
