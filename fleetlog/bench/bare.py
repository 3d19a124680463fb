"""Floors: the same broker or disk and records of the same sizes, with no logic.

Under latency: small transactions at the same pace. Under lives: what a run wrote is written once more, its inputs
appended by one program, fetched and answered by the owners of as many partitions, outputs in the same proportion.
"""

import queue
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fleetlog.bench.product import settings_of
from fleetlog.composition import open_log
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import Log, LogBusy, LogFault, LogReader, Output, Seat, Topic, partition_of
from streams.reading import read_range

WARM: Final = 20
"""Transactions that are not counted: the first ones also find the coordinator."""
EVENT: Final = bytes(600)
OUTCOME: Final = bytes(400)
UNANSWERED: Final = 4_096
"""Inputs that wait for their place in the log, as many as a submitter's and its robots' messages together."""
FETCH: Final = 5_000


def measure_bare(log: str, kafka: str | None, per_s: int, seconds: float) -> dict[str, Any]:
    """Commits two events and two outcomes with both input positions, `per_s` times a second; percentiles in ms."""
    with tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as folder:
        opened = _opened(log, kafka, Path(folder), 1)
        try:
            took = _commits(opened, per_s, int(seconds * per_s) + WARM)[WARM:]
        finally:
            opened.close()
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return {"bare_p50_ms": round(cuts[49], 2), "bare_p99_ms": round(cuts[98], 2)}


def _opened(log: str, kafka: str | None, folder: Path, partitions: int) -> Log:
    if log == "memory":
        return MemoryLog(MemoryStore(partitions))
    settings = settings_of(log, kafka, folder, partitions)
    if log == "kafka":
        from streams.kafka_log import init_log

        init_log(settings.bootstrap, settings.log.prefix, partitions)
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


# ---- lives ----


@dataclass(slots=True)
class Moved:
    """The sizes of what a run wrote: inputs in the order of their appends, outputs of each partition in order."""

    inputs: list[tuple[Topic, int, int]] = field(default_factory=list)
    outputs: dict[int, list[tuple[Topic, int]]] = field(default_factory=lambda: defaultdict(list))


def moved_by(log: LogReader) -> Moved:
    """What stands in all topics of a log that nobody writes to any more."""
    moved, inputs = Moved(), []
    for topic in (Topic.COMMANDS, Topic.REPORTS, Topic.EVENTS, Topic.OUTCOMES):
        for partition in range(log.partitions):
            for record in read_range(log, topic, partition, log.beginning(topic, partition), log.end(topic, partition)):
                if topic in (Topic.COMMANDS, Topic.REPORTS):
                    inputs.append((record.appended_at, topic, partition, len(record.value)))
                else:
                    moved.outputs[partition].append((topic, len(record.value)))
    moved.inputs = [(topic, partition, size) for _, topic, partition, size in sorted(inputs)]
    return moved


def measure_bare_lives(log: str, kafka: str | None, moved: Moved, partitions: int) -> float:
    """Seconds in which the same records move with no logic."""
    with tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as folder:
        opened = _opened(log, kafka, Path(folder), partitions)
        try:
            return _move(opened, moved)
        finally:
            opened.close()


def _move(log: Log, moved: Moved) -> float:
    total = defaultdict[int, int](int)
    for _, partition, _ in moved.inputs:
        total[partition] += 1
    answering: list[threading.Thread] = []

    def answer(seat: Seat) -> None:
        if total[seat.partition]:
            thread = threading.Thread(target=_answer, args=(seat, total[seat.partition], moved.outputs[seat.partition]))
            answering.append(thread)
            thread.start()

    ownership = log.own("bare", answer, lambda seat: None)
    try:
        while len(answering) < sum(1 for count in total.values() if count):
            time.sleep(0.05)
        began = time.perf_counter()
        _feed(log, moved)
        for thread in answering:
            thread.join()
        return time.perf_counter() - began
    finally:
        ownership.close()


def _feed(log: Log, moved: Moved) -> None:
    """Appends every input, so many unanswered at most."""
    free = threading.Semaphore(UNANSWERED)
    names = {partition_of(name, log.partitions): name for name in map(str, range(100 * log.partitions))}
    faults: list[LogFault] = []

    def done(fault: LogFault | None, offset: int) -> None:
        if fault is not None:
            faults.append(fault)
        free.release()

    for topic, partition, size in moved.inputs:
        free.acquire()
        while True:
            try:
                log.append(topic, names[partition], bytes(size), (), done)
                break
            except LogBusy:
                time.sleep(0.001)
    for _ in range(UNANSWERED):
        free.acquire()
    if faults:
        raise faults[0]


def _answer(seat: Seat, inputs: int, sizes: list[tuple[Topic, int]]) -> None:
    """Fetches all inputs of a partition; each fetch commits its share of the outputs."""
    taken = seat.take_over()
    seat.start()
    outputs = [Output(topic, "bare", bytes(size)) for topic, size in sizes]
    reports_next, commands_next = taken.reports_next, taken.commands_next
    seen = written = 0
    while seen < inputs:
        fetched = seat.fetch(FETCH, 0.5)
        if not (fetched.reports or fetched.commands):
            continue
        seen += len(fetched.reports) + len(fetched.commands)
        if fetched.reports:
            reports_next = fetched.reports[-1].offset + 1
        if fetched.commands:
            commands_next = fetched.commands[-1].offset + 1
        upto = len(outputs) * seen // inputs
        seat.commit(outputs[written:upto], reports_next, commands_next)
        written = upto
