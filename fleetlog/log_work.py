"""What is done to a log as a whole: made, checked, looked at, filled from another one.

Filling goes pool by pool in the order of sequences and can be taken up again: what the target has already is compared
by its chain and passed over.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fleetlog.composition import open_log, open_reader
from fleetlog.layers import Given
from fleetlog.problems import Problem, no_answer
from fleetlog.settings import Settings, settings_of
from projections.audit import Head, read_events, verify
from streams.port import Log, LogBusy, LogFault, LogReader, NoSuchPartition, Record, Topic, partition_of
from streams.reading import read_range

APPENDED_WITHIN_S: Final = 60.0
IN_FLIGHT_MAX: Final = 5_000
TAIL_FACTOR: Final = 4


def at_place(settings: Settings, place: str) -> Settings:
    """The same settings with the log at another place (embedded:FOLDER or kafka:HOST:PORT). Raises SettingsProblem."""
    from fleetlog.settings import problems_of

    other = settings.model_copy(
        update={
            "log": settings_of({"log.at": Given(place, "the command line")}).log.model_copy(
                update={"prefix": settings.log.prefix, "kafka": settings.log.kafka, "sync": settings.log.sync}
            )
        }
    )
    problems = problems_of(other, "reader")
    if problems:
        raise Problem(" ".join(problems), 2)
    return other


# ---- made, checked ----


def make_log(settings: Settings) -> str:
    """Makes a new log, or what is missing of one on Kafka; its id. Raises LogFault."""
    own = settings.log
    if settings.embedded:
        from streams.embedded_log import create_embedded_log

        return create_embedded_log(settings.data_folder / "log", own.partitions).log_id
    from streams.kafka_log import init_log

    return init_log(settings.bootstrap, own.prefix, own.partitions, own.replication, own.kafka)


@dataclass(frozen=True, slots=True)
class Checked:
    """What `log check` found: problems as sentences, and the log's figures where it could be opened."""

    problems: list[str]
    log_id: str | None = None
    format: int | None = None
    partitions: int | None = None
    ends: dict[str, int] = field(default_factory=dict)


def check(settings: Settings) -> Checked:
    """Holds the log against what Fleetlog needs: topics and their settings, or the folder; reads the newest records.

    Raises LogUnavailable where nobody answers.
    """
    if not settings.embedded:
        from streams.kafka_log import check_log

        problems = check_log(settings.bootstrap, settings.log.prefix, settings.log.kafka)
        if problems:
            return Checked(problems)
    log = open_reader(settings)
    try:
        return _look_over(log)
    finally:
        log.close()


def _look_over(log: LogReader) -> Checked:
    problems = []
    ends: dict[str, int] = {}
    for topic in Topic:
        for partition in range(log.partitions):
            end = log.end(topic, partition)
            if end > log.beginning(topic, partition):
                ends[f"{topic.value}[{partition}]"] = end
            try:
                newest(log, topic, [partition], 1)
            except LogFault as fault:
                problems.append(str(fault))
    return Checked(problems, log.log_id, log.format, log.partitions, ends)


# ---- looked at ----


def newest(
    log: LogReader, topic: Topic, partitions: Iterable[int], count: int, pool: str | None = None
) -> list[Record]:
    """The newest records of these partitions, at most `count`, oldest first, by the time of appending."""
    found: list[Record] = []
    for partition in partitions:
        found += _newest_of(log, topic, partition, count, pool)
    found.sort(key=lambda record: (record.appended_at, record.partition, record.offset))
    return found[-count:] if count else []


def _newest_of(log: LogReader, topic: Topic, partition: int, count: int, pool: str | None) -> list[Record]:
    """Reads from ever earlier places until there are enough; where offsets have gaps it takes a round more."""
    beginning, end = log.beginning(topic, partition), log.end(topic, partition)
    span = max(count, 1) * TAIL_FACTOR
    while True:
        start = max(beginning, end - span)
        records = [
            record for record in read_range(log, topic, partition, start, end) if pool is None or record.key == pool
        ]
        if len(records) >= count or start == beginning:
            return records[-count:] if count else []
        span *= TAIL_FACTOR


def follow(log: LogReader, topic: Topic, partitions: Iterable[int], pool: str | None = None) -> Iterator[Record]:
    """Records from now on, for ever."""
    follower = log.follow(topic, {partition: log.end(topic, partition) for partition in partitions})
    try:
        while True:
            yield from (record for record in follower.poll(500, 0.5) if pool is None or record.key == pool)
    finally:
        follower.close()


def partitions_of(log: LogReader, pool: str | None) -> list[int]:
    """Where a pool lies; every partition where none is named."""
    return list(range(log.partitions)) if pool is None else [partition_of(pool, log.partitions)]


# ---- filled ----


@dataclass(slots=True)
class Filled:
    """How many events were written, and how many were there already."""

    written: int = 0
    passed_over: int = 0


def open_target(settings: Settings) -> Log:
    """The log to fill; an embedded one is made where there is none. Raises LogFault."""
    return open_log(settings)


def fill(log: Log, records: Iterable[Record], told: Callable[[int], None] = lambda _: None) -> Filled:
    """Writes events into a log that is empty or holds their beginning. Raises Problem, LogFault."""
    report = verify(read_events(log))
    if not report.verified:
        raise Problem(f"the log to be filled is damaged ({report.problems[0].text}): see `fleetlog audit verify`.")
    writing = _Writing(log)
    filled, reached = Filled(), {pool: Head() for pool in report.heads}
    for record in records:
        there, here = report.heads.get(record.key), reached.setdefault(record.key, Head())
        here.events += 1
        if there is not None and here.events <= there.sequence:
            if here.events == there.sequence and record.header("hash") != there.hash:
                raise Problem(f"pool {record.key} of the log to be filled is another one: fill an empty log.")
            filled.passed_over += 1
        else:
            writing.append(record)
            filled.written += 1
        told(1)
    behind = [pool for pool, head in report.heads.items() if reached[pool].events < head.sequence]
    if behind:
        raise Problem(f"pool {behind[0]} of the log to be filled goes on beyond this one: fill an empty log.")
    writing.finish()
    return filled


class _Writing:
    """Appends with a bounded number of records under way."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._changed = threading.Condition()
        self._under_way = 0
        self._fault: LogFault | None = None

    def append(self, record: Record) -> None:
        self._wait_until(lambda: self._under_way < IN_FLIGHT_MAX)
        with self._changed:
            self._under_way += 1
        give_up = time.monotonic() + APPENDED_WITHIN_S
        while True:
            try:
                self._log.append(Topic.EVENTS, record.key, record.value, record.headers, self._done)
                return
            except NoSuchPartition:
                raise Problem(
                    f"pool {record.key} needs a log with more partitions than {self._log.partitions}: make one."
                ) from None
            except LogBusy:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)

    def finish(self) -> None:
        """Waits until all is durable."""
        self._wait_until(lambda: self._under_way == 0)

    def _done(self, fault: LogFault | None, offset: int) -> None:
        with self._changed:
            self._under_way -= 1
            self._fault = self._fault or fault
            self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._fault is not None or condition(), APPENDED_WITHIN_S):
                raise no_answer("the log to be filled takes nothing: see whether it runs, then fill it again.")
            if self._fault is not None:
                raise self._fault
