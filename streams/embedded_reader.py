"""Reading an embedded log: what its writer and other processes share, and the reader for other processes."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from streams.embedded_faults import fault_of
from streams.embedded_snapshots import find_snapshots
from streams.embedded_store import LogHead, Store, Track, Tracks, open_secondary
from streams.local_log import Bells, LocalFollower
from streams.log_format import check_known
from streams.port import LogMisconfigured, LogState, LogUnavailable, Record, Snapshot, Topic

LOOK_EVERY_S: Final = 0.02
"""How often a waiting reader in another process looks for what is new."""
TRIES: Final = 6
"""How often a reader opens the log anew before it believes that something is damaged or missing."""

Found = TypeVar("Found")


class EmbeddedReading:
    """The reading half, whoever opened the folder: `LogReader` and the `Source` of followers."""

    look_every_s: float

    def __init__(self, folder: Path, head: LogHead) -> None:
        self.folder = folder
        self.log_id = head.log_id
        self.format = head.format
        self.partitions = head.partitions
        self.bells = Bells()
        self.tracks: Tracks = {topic: [Track(topic, p) for p in range(head.partitions)] for topic in Topic}
        self._bad_snapshots = 0

    def refresh(self) -> None:
        """As in `Source`."""
        raise NotImplementedError

    def ask(self, question: Callable[[Store], Found]) -> Found:
        """The answer of the opened store, with every fault as ours. Raises LogFault."""
        raise NotImplementedError

    def follow(self, topic: Topic, starts: Mapping[int, int]) -> LocalFollower:
        """As in `LogReader`."""
        return LocalFollower(self, topic, starts)

    def beginning(self, topic: Topic, partition: int) -> int:
        """As in `LogReader`."""
        self.refresh()
        return self.kept(topic, partition)[0]

    def end(self, topic: Topic, partition: int) -> int:
        """As in `LogReader`."""
        self.refresh()
        return self.kept(topic, partition)[1]

    def kept(self, topic: Topic, partition: int) -> tuple[int, int]:
        """As in `Source`."""
        track = self.tracks[topic][partition]
        return track.beginning, track.end

    def read(self, topic: Topic, partition: int, start: int, records_max: int) -> tuple[list[Record], int]:
        """As in `Source`."""
        return self.ask(lambda store: store.read(self.tracks[topic][partition], start, records_max))

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """As in `LogReader`."""
        self.refresh()
        beginning, end = self.kept(topic, partition)
        if not beginning <= offset < end:
            return None
        return self.ask(lambda store: store.read(self.tracks[topic][partition], offset, 1))[0][0]

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """As in `LogReader`."""
        self.refresh()
        good, bad = self.ask(lambda store: find_snapshots(store, partition))
        self._bad_snapshots += bad
        return good

    def state(self) -> LogState:
        """See `port.LogReader`: nobody takes it away."""
        return LogState()

    def bad_snapshots(self) -> int:
        """As in `LogReader`."""
        return self._bad_snapshots

    def close(self) -> None:
        """As in `LogReader`."""
        raise NotImplementedError


class EmbeddedReader(EmbeddedReading):
    """Reads an embedded log beside the process that writes it, or where none does. For several threads.

    A look costs about 30 microseconds while nothing is new. Raises LogMisconfigured where the folder holds no log.
    """

    look_every_s = LOOK_EVERY_S

    def __init__(self, folder: Path | str) -> None:
        folder = Path(folder)
        store = open_secondary(folder)
        try:
            head = store.head()
            if head is None:
                raise LogMisconfigured(f"The log in {folder} was never finished; make it with `fleetlog log init`.")
            check_known(head.format, f"in {folder}")
            super().__init__(folder, head)
            store.bind(self.tracks)
        except Exception as error:
            store.close()
            raise fault_of(error, folder) from None
        self._lock = threading.RLock()
        self._closed = False
        self._store: Store | None = store
        self._sequence = store.db.latest_sequence_number()

    def refresh(self) -> None:
        """Makes visible what the writer wrote since. Raises LogFault."""

        def look(store: Store) -> None:
            store.db.try_catch_up_with_primary()
            self._sequence = store.db.latest_sequence_number()

        self.ask(look)

    def kept(self, topic: Topic, partition: int) -> tuple[int, int]:
        """As in `Source`."""
        track = self.tracks[topic][partition]
        if track.looked != self._sequence:
            self.ask(lambda store: store.look(track))
            track.looked = self._sequence
        return track.beginning, track.end

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """As in `LogReader`. A look may see a manifest before its chunks, so a bad one is looked at again."""
        good: list[Snapshot] = []
        bad, tries = 1, 0
        while bad and tries < TRIES:
            time.sleep(0.02 * tries)
            tries += 1
            self.refresh()
            good, bad = self.ask(lambda store: find_snapshots(store, partition))
        self._bad_snapshots += bad
        return good

    def ask(self, question: Callable[[Store], Found]) -> Found:
        """As in `EmbeddedReading`. The writer may remove a file at a bad moment: then the log is opened anew."""
        with self._lock:
            for attempt in range(1, TRIES + 1):
                try:
                    return question(self._store or self._open_anew())
                except Exception as error:
                    fault = fault_of(error, self.folder)
                    if attempt == TRIES or self._closed:
                        raise fault from None
                    self._close_store()
                    time.sleep(0.02 * attempt)
        raise AssertionError("unreachable")

    def _open_anew(self) -> Store:
        if self._closed:
            raise LogUnavailable("This reader of the log is closed.")
        store = open_secondary(self.folder)
        try:
            store.bind(self.tracks)
        except Exception:
            store.close()
            raise
        self._store = store
        self._sequence = store.db.latest_sequence_number()
        return store

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store:
            store.close()

    def close(self) -> None:
        """As in `LogReader`."""
        with self._lock:
            self._closed = True
            self._close_store()
