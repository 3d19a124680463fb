"""Follows the events of all partitions and keeps the tables: one process a host, beside any number of readers.

1. Take the folder's lock; open the tables, or begin new ones when they are damaged, of another format or log, or
   stand where the log does not (F23).
2. Follow every partition from the position that lies with the rows.
3. Fold what is there, at most `records_max` events.
4. Write the changed rows and the new positions in one WriteBatch.

A crash before 4 leaves nothing behind: the same events are folded again. A crash after 4 loses nothing. Tables can
always be built anew from the log, so whatever is found wrong with them is mended by a rebuild.
"""

import gc
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from projections.fold import Fold, ProjectionFault
from projections.hot_cards import CARDS_MAX, HotCards
from projections.store import FORMAT, Folder, Store, StoreCorrupt, StoreMissing
from streams.port import Follower, LogCorrupt, LogReader, LogUnavailable, Record, Topic

RECORDS_MAX: Final = 16_384
"""Events of one batch at most: the more, the fewer writes a task (5,000 open tasks: 36,000 events/s with 4,096, 55,000
with this). What waits is far less unless the tables are rebuilt."""
BATCH_BYTES_MAX: Final = 16 << 20
"""Bytes of events folded before they are written, so that large payloads do not fill the memory."""
GATHER_S: Final = 0.005
"""How long a batch that was not full waits for company: fewer writes, and readers see events that much later."""
POLL_S: Final = 0.5
RETRY_S: Final = 0.5
DAY_MS: Final = 86_400_000

logger = logging.getLogger("fleetlog")


@dataclass(slots=True)
class ProjectorStatus:
    """What the projector did since its start. `behind_ms`: how old the newest folded event was when it was folded,
    0 when the end was reached. `rebuilt`: why the tables were built anew last."""

    events: int = 0
    batches: int = 0
    repeated: int = 0
    rebuilds: int = 0
    rebuilt: str | None = None
    behind_ms: int = 0
    log_away: bool = False


class Projector:
    """Writes the projections of `log` into `folder`. `open`, `step`, `run` and `close` belong to one thread.

    `ended_days`: how long ended tasks stay, in event time; a larger number holds for what leaves from then on.
    """

    def __init__(
        self,
        log: LogReader,
        folder: Path,
        ended_days: float = 30.0,
        records_max: int = RECORDS_MAX,
        gather_s: float = GATHER_S,
        cards_max: int = CARDS_MAX,
    ) -> None:
        self._log = log
        self._folder = Folder(folder)
        self._ended_ms = int(ended_days * DAY_MS)
        self._records_max = records_max
        self._gather_s = gather_s
        self._cards_max = cards_max
        self._store: Store | None = None
        self._cards: HotCards | None = None
        self._fold: Fold | None = None
        self._follower: Follower | None = None
        self._stopping = threading.Event()
        self._looked_at = 0.0
        self.status = ProjectorStatus()

    def open(self) -> None:
        """Takes the lock and opens the tables. Raises StoreLocked, StoreUnavailable, LogFault."""
        self._folder.lock()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Folds until `stop`. Raises ProjectionFault, StoreFault, and LogFault where waiting does not help."""
        while not self._stopping.is_set():
            try:
                if self._follower is None:
                    self.open()
                folded = self.step(POLL_S)
            except LogUnavailable as error:
                if not self.status.log_away:
                    logger.warning("the projections wait for the log: %s", error)
                self.status.log_away = True
                self._stopping.wait(RETRY_S)
                continue
            self.status.log_away = False
            if 0 < folded < self._records_max:
                self._stopping.wait(self._gather_s)

    def stop(self) -> None:
        """Lets `run` return after the batch that it is at; from any thread or signal handler."""
        self._stopping.set()
        follower = self._follower
        if follower is not None:
            follower.wake()

    def step(self, timeout_s: float) -> int:
        """Folds and writes one batch, waiting up to `timeout_s` for its first event; how many events it had."""
        follower, cards, fold = self._follower, self._cards, self._fold
        if follower is None or cards is None or fold is None:
            raise RuntimeError("the projector is not open")
        try:
            self._look_for_damage()
            return self._batch(follower, cards, fold, timeout_s)
        except StoreCorrupt as error:
            self._rebuild(str(error))
            return 0
        except LogCorrupt as error:
            raise ProjectionFault(
                f"The log is damaged ({error}): restore it from a backup; the projections stop at the last good event."
            ) from error

    def lag(self) -> dict[int, tuple[int, int]]:
        """Partition -> (next offset to fold, end of the log). Offsets have gaps: equal means all is folded."""
        follower = self._follower
        positions = {} if follower is None else follower.positions()
        return {
            partition: (positions.get(partition, 0), self._log.end(Topic.EVENTS, partition))
            for partition in range(self._log.partitions)
        }

    def close(self) -> None:
        """Frees the tables and the lock; calling it twice is allowed. The log stays open."""
        if self._follower is not None:
            self._follower.close()
        if self._store is not None:
            self._store.close()
        self._follower = self._store = self._cards = self._fold = None
        self._folder.unlock()

    # ---- inside ----

    def _start(self) -> None:
        reason = None
        try:
            self._store = self._folder.open_current()
            if self._store is None:
                self._follow(self._folder.begin(self._log.log_id, self._log.partitions))
            else:
                reason = self._why_rebuild(self._store)
                if reason is None:
                    self._follow(self._store)
        except (StoreCorrupt, StoreMissing) as error:
            reason = str(error)
        if reason is not None:
            self._rebuild(reason)

    def _why_rebuild(self, store: Store) -> str | None:
        """Why these tables cannot go on with this log, or None."""
        identity = store.format() or {}
        if identity.get("format") != FORMAT:
            return f"the rows are of format {identity.get('format')}, this version writes {FORMAT}"
        if identity.get("log_id") != self._log.log_id:
            return f"the tables belong to the log {identity.get('log_id')}, this one is {self._log.log_id}"
        if identity.get("partitions") != self._log.partitions:
            return f"the log has {self._log.partitions} partitions, the tables know {identity.get('partitions')}"
        for partition, at in store.positions(self._log.partitions).items():
            end = self._log.end(Topic.EVENTS, partition)
            if at.next > end:
                return f"the tables stand at offset {at.next} of partition {partition}, the log ends at {end}"
            if at.last < 0:
                continue
            record = self._log.read_at(Topic.EVENTS, partition, at.last)
            if record is None or (record.header("hash") or b"").hex() != at.hash:
                return f"the log holds another event at offset {at.last} of partition {partition}"
        return None

    def _rebuild(self, reason: str) -> None:
        """Begins new tables from the start of the log."""
        logger.warning("the projections are built anew: %s", reason)
        if self._follower is not None:
            self._follower.close()
        if self._store is not None:
            self._store.close()
        self._follower = self._store = self._cards = self._fold = None
        self.status.rebuilds += 1
        self.status.rebuilt = reason
        self._follow(self._folder.begin(self._log.log_id, self._log.partitions))

    def _follow(self, store: Store) -> None:
        self._store = store
        self._cards = HotCards(store, self._ended_ms, self._cards_max)
        self._fold = Fold(self._cards)
        positions = store.positions(self._log.partitions)
        self._cards.resume(positions)
        starts = {
            partition: positions[partition].next
            if partition in positions
            else self._log.beginning(Topic.EVENTS, partition)
            for partition in range(self._log.partitions)
        }
        self._follower = self._log.follow(Topic.EVENTS, starts)

    def _batch(self, follower: Follower, cards: HotCards, fold: Fold, timeout_s: float) -> int:
        former = follower.positions()
        with _without_collection():
            records = follower.poll(self._records_max, timeout_s)
            self._fold_all(follower, cards, fold, records, former)
        self._note(records, fold)
        return len(records)

    def _fold_all(
        self,
        follower: Follower,
        cards: HotCards,
        fold: Fold,
        records: Sequence[Record],
        former: Mapping[int, int],
    ) -> None:
        pieces = list(_pieces(records))
        for piece in pieces[:-1]:
            fold.fold(piece)
            cards.commit({})
        if pieces:
            fold.fold(pieces[-1])
        positions = follower.positions()
        if records or positions != former:
            cards.commit(positions)

    def _note(self, records: Sequence[Record], fold: Fold) -> None:
        status = self.status
        status.repeated = fold.repeated
        if records:
            status.events += len(records)
            status.batches += 1
        full = len(records) >= self._records_max
        status.behind_ms = max(0, int(time.time() * 1000) - records[-1].appended_at) if full else 0

    def _look_for_damage(self) -> None:
        """A reader that met a damaged row says so in the folder, looked at once a second."""
        now = time.monotonic()
        if now - self._looked_at < 1.0 or self._store is None:
            return
        self._looked_at = now
        sentence = self._folder.reported_corrupt(self._store.path)
        if sentence is not None:
            raise StoreCorrupt(sentence)


@contextmanager
def _without_collection() -> Iterator[None]:
    """A batch makes many objects and no cycles: looking for cycles meanwhile takes half of the time (seen)."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _pieces(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records in pieces of at most BATCH_BYTES_MAX bytes, or one record."""
    start = size = 0
    for index, record in enumerate(records):
        size += len(record.value)
        if size > BATCH_BYTES_MAX and index > start:
            yield records[start:index]
            start, size = index, len(record.value)
    if start < len(records):
        yield records[start:]
