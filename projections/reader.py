"""The tables as one process reads them: opened when first asked, caught up before each answer, opened anew when the
projector began a new generation."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from projections.store import Folder, Store, StoreCorrupt, StoreUnavailable, open_reader
from streams.port import partition_of
from streams.position import Position

T = TypeVar("T")
TRIES: Final = 5
"""How often a reader opens the tables anew before it believes that they are damaged: the projector deletes files."""
AGAIN_S: Final = 0.01
"""How long it waits before the second try; twice as long before each further one."""


class TablesReader:
    """Reads one folder of projections; safe for several threads, which take turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._generation: int | None = None
        self._opened: tuple[int, int] | None = None
        self.log_id = ""
        self.partitions = 0

    def read(self, work: Callable[[Store], T]) -> T:
        """What `work` finds in tables that do not change meanwhile. Raises StoreFault.

        Damage that is still there after opening the tables anew is reported to the projector.
        """
        with self._lock:
            for tried in range(1, TRIES + 1):
                try:
                    return work(self._current())
                except (StoreCorrupt, StoreUnavailable) as error:
                    damaged = None if self._store is None else self._store.path
                    self._drop()
                    if tried == TRIES:
                        if isinstance(error, StoreCorrupt) and damaged is not None:
                            self._folder.report_corrupt(damaged, str(error))
                        raise
                    time.sleep(AGAIN_S * 2 ** (tried - 1))
        raise AssertionError("unreachable")

    def position(self, store: Store, pool: str | None = None) -> Position:
        """How far the tables are true: in the pool's partition, or in all."""
        ats = store.positions(self.partitions)
        wanted = range(self.partitions) if pool is None else (partition_of(pool, self.partitions),)
        return Position(self.log_id, {p: ats[p].next if p in ats else 0 for p in wanted})

    def close(self) -> None:
        """Frees the tables; a later `read` opens them again."""
        with self._lock:
            self._drop()

    def _current(self) -> Store:
        generation = self._folder.generation()
        opened = self._folder.opened(generation)
        if self._store is None or (generation, opened) != (self._generation, self._opened):
            self._drop()
            store = self._store = open_reader(self._folder)
            self._generation, self._opened = generation, opened
            identity = store.format() or {}
            self.log_id, self.partitions = identity["log_id"], identity["partitions"]
        self._store.catch_up()
        if self._folder.opened(generation) != opened:
            return self._current()
        return self._store

    def _drop(self) -> None:
        store, self._store, self._generation = self._store, None, None
        if store is not None:
            store.close()
