"""The floor under latency: the same broker or disk, the same small transactions at the same pace, with no logic."""

import queue
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from fleetlog.bench.product import settings_of
from fleetlog.composition import open_log
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import Log, Output, Seat, Topic

WARM: Final = 20
"""Transactions that are not counted: the first ones also find the coordinator."""
EVENT: Final = bytes(600)
OUTCOME: Final = bytes(400)


def measure_bare(log: str, kafka: str | None, per_s: int, seconds: float) -> dict[str, Any]:
    """Commits two events and two outcomes with both input positions, `per_s` times a second; percentiles in ms."""
    with tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as folder:
        opened = _opened(log, kafka, Path(folder))
        try:
            took = _commits(opened, per_s, int(seconds * per_s) + WARM)[WARM:]
        finally:
            opened.close()
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return {"bare_p50_ms": round(cuts[49], 2), "bare_p99_ms": round(cuts[98], 2)}


def _opened(log: str, kafka: str | None, folder: Path) -> Log:
    if log == "memory":
        return MemoryLog(MemoryStore(1))
    settings = settings_of(log, kafka, folder, partitions=1)
    if log == "kafka":
        from streams.kafka_log import init_log

        init_log(settings.bootstrap, settings.log.prefix, 1)
    return open_log(settings)


def _commits(log: Log, per_s: int, count: int) -> list[float]:
    seats: queue.Queue[Seat] = queue.Queue()
    ownership = log.own("bare", seats.put, lambda seat: None)
    try:
        seat = seats.get(timeout=60)
        taken = seat.take_over()
        seat.start()
        outputs = [Output(Topic.EVENTS, "bare", EVENT), Output(Topic.OUTCOMES, "bare", OUTCOME)] * 2
        took, began = [], time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, began + number / per_s - time.perf_counter()))
            at = time.perf_counter()
            seat.commit(outputs, taken.reports_next, taken.commands_next)
            took.append(1_000 * (time.perf_counter() - at))
        return took
    finally:
        ownership.close()
