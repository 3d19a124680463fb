"""How fast the tables are built anew from the log, beside a bare loop of the same run that only reads and decodes."""

import tempfile
import time
from pathlib import Path
from typing import Any

from commands.events import decode_event
from fleetlog.bench.product import Product
from projections.projector import Projector
from streams.port import LogReader, Topic


def measure_rebuild(product: Product) -> dict[str, Any]:
    """Folds every event of the product's log into fresh tables, then reads and decodes the same events."""
    reader = product.reader()
    try:
        events, seconds = _fold(reader)
        bare_events, bare_seconds = _decode(reader)
    finally:
        reader.close()
    per_s, bare_per_s = events / seconds, bare_events / bare_seconds
    return {
        "events": events,
        "events_per_s": round(per_s),
        "bare_events_per_s": round(bare_per_s),
        "ratio_to_bare": round(per_s / bare_per_s, 2),
    }


def _fold(reader: LogReader) -> tuple[int, float]:
    with tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as folder:
        projector = Projector(reader, Path(folder) / "tables")
        projector.open()
        began = ended = time.perf_counter()
        events = 0
        while folded := projector.step(1.0):
            events += folded
            ended = time.perf_counter()
        projector.close()
    return events, ended - began


def _decode(reader: LogReader) -> tuple[int, float]:
    starts = {p: reader.beginning(Topic.EVENTS, p) for p in range(reader.partitions)}
    ends = {p: reader.end(Topic.EVENTS, p) for p in range(reader.partitions)}
    follower = reader.follow(Topic.EVENTS, starts)
    events, began = 0, time.perf_counter()
    try:
        while any(at < ends[p] for p, at in follower.positions().items()):
            for record in follower.poll(4_096, 1.0):
                decode_event(record.value)
                events += 1
    finally:
        follower.close()
    return events, time.perf_counter() - began
