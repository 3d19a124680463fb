"""Snapshots of a partition, made in slices between batches and kept by a thread of their own, so dispatch goes on.

All pools are cut at one committed position; what they were then is written slice by slice. A small snapshot is made in
one slice and kept at once.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from commands.cut import Cut
from commands.state import PoolState
from streams.port import CHUNK_BYTES_MAX, Log, LogFault, Snapshot

logger = logging.getLogger("fleetlog.owner")

LINES_AT_ONCE: Final = 2_000
"""Lines written between two batches: some 10 ms."""


class Making:
    """A snapshot on its way: pools as of a committed `position`. Used by the owner's thread alone."""

    def __init__(self, pools: Iterable[PoolState], position: int, incarnation: str, made_at: int) -> None:
        self._position, self._incarnation, self._made_at = position, incarnation, made_at
        self._cuts = [Cut(state) for state in pools]
        self._lines = self._all_lines()
        self._chunks: list[bytes] = []
        self._open: list[bytes] = []
        self._size = 0

    def _all_lines(self) -> Iterator[bytes]:
        for cut in self._cuts:
            yield from cut.lines()

    def go_on(self, lines: int) -> Snapshot | None:
        """Writes so many lines more; the snapshot when there are none left."""
        for _ in range(lines):
            line = next(self._lines, None)
            if line is None:
                self.end()
                self._close_chunk()
                return Snapshot(self._position, self._incarnation, self._made_at, self._chunks)
            if self._size + len(line) + 1 > CHUNK_BYTES_MAX:
                self._close_chunk()
            self._open.append(line)
            self._size += len(line) + 1
        return None

    def _close_chunk(self) -> None:
        """Chunks hold whole lines."""
        if self._open:
            self._chunks.append(b"\n".join(self._open))
            self._open, self._size = [], 0

    def end(self) -> None:
        """The pools need keep nothing for it any more."""
        for cut in self._cuts:
            cut.end()


class Keeper:
    """Hands finished snapshots of one partition to the log: one chunk at once, more in a thread, one at a time."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log, self._partition = log, partition
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._thread is not None and self._thread.is_alive()

    def keep(self, snapshot: Snapshot) -> None:
        """Keeps it, or says in the log why it could not be."""
        if len(snapshot.chunks) <= 1:
            self._keep(snapshot)
            return
        self._thread = threading.Thread(
            target=self._keep, args=(snapshot,), name=f"snapshot-{self._partition}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Waits until nothing is being written."""
        if self._thread is not None:
            self._thread.join()

    def _keep(self, snapshot: Snapshot) -> None:
        try:
            self._log.keep_snapshot(self._partition, snapshot)
        except LogFault as fault:
            logger.warning("no snapshot of partition %s was kept: %s", self._partition, fault)
