"""What is wrong with the fleet as a whole although the gateway works: looked at in a thread of its own, told at once.

A look reads the tables, the ends of the log, and the owners of this process where there are some. What an owner in
another process knows is learnt from the log: PoolFrozen, RecordQuarantined, and how far the newest event of a partition
lies from the log's own time of appending.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic_core import from_json

from projections.figures import Overview
from projections.queries import Tables
from projections.store import StoreFault
from robot_gateway.wire import instant_text
from streams.owner_status import OwnerStatus
from streams.pool_clock import STEP_MS
from streams.port import LogFault, LogReader, Topic

logger = logging.getLogger("fleetlog.gateway")

LOOK_EVERY_S: Final = 2.0
STOP_S: Final = 5.0
LOOK_SHARE: Final = 20
"""A look takes at most this part of the processor's time, so that a host with very many pools is not kept busy by it.
Waiting for a log that is away does not count: what is seen when it is back must be new."""
BEHIND_S: Final = 10.0
"""How long the tables may lag before that is said."""
QUARANTINE_SAID_MS: Final = 24 * 3_600_000
"""How long a record that was set aside is said; the pool counts it for ever."""
NAMED_MAX: Final = 3

Owners = Callable[[], Sequence[OwnerStatus]]


@dataclass(slots=True, frozen=True)
class Seen:
    """One look. `behind_s`: how long ago the tables were at the end of the log. `lag`: partition -> events between the
    tables and the end, `backlog`: (topic, partition) -> inputs before the end; both count markers of the log, too.
    `off_ms`: partition -> how far the wall clock is ahead of the time of its pools."""

    pools: Sequence[Overview] = ()
    owners: Sequence[OwnerStatus] = ()
    behind_s: float = 0.0
    lag: Mapping[int, int] = field(default_factory=dict)
    backlog: Mapping[tuple[Topic, int], int] = field(default_factory=dict)
    off_ms: Mapping[int, int] = field(default_factory=dict)
    disk: str | None = None
    load: str | None = None
    log: str | None = None
    at: int = 0

    @property
    def frozen(self) -> list[str]:
        """The pools that assign nothing because of a fault, by name."""
        known = {str(pool["progress"]["pool"]) for pool in self.pools if "frozen" in pool["card"]}
        return sorted(known.union(*(status.frozen for status in self.owners)))


class Health:
    """Looks until `stop`. `seen` is the newest look."""

    def __init__(
        self,
        log: LogReader,
        tables: Tables,
        disk: Callable[[], str | None],
        load: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.seen = Seen()
        self.owners: Owners = tuple
        self._log, self._tables, self._disk, self._load = log, tables, disk, load
        self._began_at = time.time_ns() // 1_000_000
        self._caught_up = time.monotonic()
        self._newest: dict[int, tuple[int, int]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="health", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the running look; one that waits for a log that is away is not waited for."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _look_until_stopped(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            began = time.thread_time()
            try:
                self.seen = self.look()
            except Exception:
                if self._stopping.is_set():
                    return
                logger.exception("the fleet could not be looked at; the next look comes by itself")
            wait_s = max(LOOK_EVERY_S, LOOK_SHARE * (time.thread_time() - began))

    def look(self) -> Seen:
        """One look; what does not answer is left out, other parts of readiness say so."""
        owners = list(self.owners())
        looked = time.monotonic()
        pools, here, last = self._tables_now()
        ends = self._ends(Topic.EVENTS, range(self._log.partitions))
        lag = {p: max(0, end - here[p]) for p, end in ends.items() if p in here}
        if not any(lag.values()):
            self._caught_up = looked
        backlog: dict[tuple[Topic, int], int] = {}
        for topic, done in ((Topic.REPORTS, "reports_next"), (Topic.COMMANDS, "commands_next")):
            nexts = {status.partition: getattr(status, done) for status in owners if status.phase == "deciding"}
            backlog |= {(topic, p): max(0, end - nexts[p]) for p, end in self._ends(topic, nexts).items()}
        off_ms = {status.partition: status.clock_offset_ms for status in owners if status.clock_distrusted}
        elsewhere = {p: offset for p, offset in last.items() if p not in {status.partition for status in owners}}
        off_ms |= self._off_by_events(elsewhere, pools)
        behind_s = time.monotonic() - self._caught_up
        now = time.time_ns() // 1_000_000
        whole = self._disk(), self._load(), self._log.state().warning
        return Seen(pools, owners, behind_s, lag, backlog, off_ms, *whole, now)

    def _tables_now(self) -> tuple[Sequence[Overview], Mapping[int, int], Mapping[int, int]]:
        """The pools, and for each partition the next offset to fold and that of the last event folded."""
        try:
            return self._tables.pools().value, self._tables.positions().offsets, self._tables.last_offsets()
        except (StoreFault, LogFault):
            return (), {}, {}

    def _ends(self, topic: Topic, partitions: Sequence[int] | Mapping[int, int]) -> dict[int, int]:
        try:
            return {partition: self._log.end(topic, partition) for partition in partitions}
        except LogFault:
            return {}

    def _off_by_events(self, last: Mapping[int, int], pools: Sequence[Overview]) -> dict[int, int]:
        """How far off the clock of owners elsewhere is, by the newest event of each partition since we began."""
        accepted = {str(pool["progress"]["pool"]): pool["card"].get("clock_accepted") for pool in pools}
        for partition, offset in last.items():
            if self._newest.get(partition, (-1, 0))[0] != offset:
                off = self._off_at(partition, offset, accepted)
                if off is not None:
                    self._newest[partition] = (offset, off)
        return {p: off for p, (_, off) in self._newest.items() if p in last and abs(off) > STEP_MS}

    def _off_at(self, partition: int, offset: int, accepted: Mapping[str, Mapping[str, int] | None]) -> int | None:
        """The same for one event; a clock that went back and was accepted counts from where it is waited for."""
        try:
            record = self._log.read_at(Topic.EVENTS, partition, offset)
        except LogFault:
            return None
        if record is None or record.appended_at < self._began_at:
            return 0
        event = from_json(record.value)
        at = event.get("to_at", event["occurred_at"])
        off = int(record.appended_at - at)
        step = accepted.get(record.key) or {}
        owed = max(0, step.get("from_at", 0) - step.get("to_at", 0))
        return 0 if -STEP_MS - owed <= off < 0 else off


# ---- in words ----


def degraded(seen: Seen, *, with_names: bool) -> Iterator[tuple[str, str]]:
    """Each part that is not as it should be: what, and what to do. `with_names`: whether pools may be named."""
    for part, sentence in (
        ("tables", _tables_behind(seen)),
        ("clock", _clock_off(seen)),
        ("pools", _pools_frozen(seen, with_names)),
        ("records", _records_set_aside(seen)),
        ("disk", _disk_low(seen)),
        ("load", seen.load),
        ("log", seen.log),
    ):
        if sentence is not None:
            yield part, sentence


PARTS: Final = ("clock", "pools", "records", "disk", "load")
"""Parts that never make a gateway unready."""


def _tables_behind(seen: Seen) -> str | None:
    if seen.behind_s < BEHIND_S:
        return None
    return (
        f"they are {seen.behind_s:.0f} s behind the log, and so are answers: see whether the projector of this host "
        "runs and has enough of the processor"
    )


def _clock_off(seen: Seen) -> str | None:
    if not seen.off_ms:
        return None
    off_s = max(seen.off_ms.values(), key=abs) / 1_000
    way = "ahead of" if off_s > 0 else "behind"
    where = ", ".join(map(str, sorted(seen.off_ms)))
    return (
        f"the wall clock is {abs(off_s):.0f} s {way} the log's time and is not followed (partitions {where}): mend the "
        "clock, or follow it with `fleetlog clock accept --reason ...`"
    )


def _pools_frozen(seen: Seen, with_names: bool) -> str | None:
    names = seen.frozen
    if not names:
        return None
    some = ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")
    what = f"frozen: {some}" if with_names else f"frozen: {len(names)}"
    return (
        f"{what}: after a fault of Fleetlog nothing is assigned there; install a mended version, then "
        "`fleetlog unfreeze --pool POOL --reason ...`"
    )


def _records_set_aside(seen: Seen) -> str | None:
    marks = [mark for pool in seen.pools if (mark := pool["card"].get("quarantined_last")) is not None]
    fresh = [mark for mark in marks if seen.at - mark["at"] < QUARANTINE_SAID_MS]
    if not fresh:
        return None
    count = sum(pool["card"].get("quarantined", 0) for pool in seen.pools)
    last = max(fresh, key=lambda mark: int(mark["at"]))
    return (
        f"{count} set aside in all, the last at {instant_text(last['at'])} ({last['topic']}, partition "
        f"{last['partition']}, offset {last['offset']}): see `fleetlog log tail --topic {last['topic']}` and "
        "`fleetlog events --types RecordQuarantined --pool '*'`"
    )


def _disk_low(seen: Seen) -> str | None:
    return None if seen.disk is None else f"{seen.disk}; no submissions are taken: make room"
