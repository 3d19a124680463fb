"""All partitions that this process decides for: an owner for each seat that the log gives it."""

import logging
import threading
import time
from pathlib import Path

from streams.body_store import BodyStore
from streams.owner import OwnerSettings, PartitionOwner
from streams.owner_status import OwnerStatus
from streams.port import Log, Ownership, Seat

logger = logging.getLogger("fleetlog.processor")

CACHE_BYTES_PER_PARTITION = 64 * 1024 * 1024


class Processor:
    """Joins the owners of a log and runs a PartitionOwner for every seat, until `close`.

    `cache` is a folder for disposable copies of payloads, or None where the log itself is at hand.
    """

    def __init__(
        self, log: Log, settings: OwnerSettings, cache: Path | None = None, cache_bytes: int = CACHE_BYTES_PER_PARTITION
    ) -> None:
        self._log, self._settings, self._cache, self._cache_bytes = log, settings, cache, cache_bytes
        self._lock = threading.Lock()
        self._owners: dict[int, PartitionOwner] = {}
        self._ownership: Ownership | None = None
        self._closing = False

    def start(self) -> None:
        """Joins."""
        self._ownership = self._log.own(self._settings.name, self._taken, self._lost)

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends after the running batches, then leaves. All owners together have `timeout_s`: one that is still taking
        over, or waits for the log, ends when its seat is lost."""
        with self._lock:
            self._closing = True
            owners = list(self._owners.values())
        for owner in owners:
            owner.stop()
        give_up = time.monotonic() + timeout_s
        for owner in owners:
            owner.join(max(0.0, give_up - time.monotonic()))
        if self._ownership is not None:
            self._ownership.close()

    def statuses(self) -> list[OwnerStatus]:
        """One for each partition held, in order."""
        with self._lock:
            return [owner.status for _, owner in sorted(self._owners.items())]

    def why_not_ready(self) -> str | None:
        """A sentence while some partition is not decided for, else None."""
        statuses = self.statuses()
        stopped = [s for s in statuses if s.phase == "stopped"]
        if stopped:
            return f"partition {stopped[0].partition} stopped: {stopped[0].why}"
        busy = [s for s in statuses if s.phase != "deciding"]
        if busy:
            text = {"taking_over": "is being taken over", "waiting_for_log": "waits for the log"}[busy[0].phase]
            return f"partition {busy[0].partition} {text}" + (f": {busy[0].why}" if busy[0].why else "")
        return None if statuses else "no partition is held here yet"

    def _taken(self, seat: Seat) -> None:
        folder = None if self._cache is None else self._cache / str(seat.partition)
        bodies = BodyStore(self._log, seat.partition, folder, self._cache_bytes)
        owner = PartitionOwner(self._log, seat, bodies, self._settings)
        with self._lock:
            if self._closing:
                return
            former = self._owners.pop(seat.partition, None)
            if former is not None:
                former.stop()
            # Under the lock: `close` joins every owner that it sees, so each of them has begun.
            self._owners[seat.partition] = owner
            owner.start()

    def _lost(self, seat: Seat) -> None:
        with self._lock:
            owner = self._owners.pop(seat.partition, None)
        if owner is not None:
            owner.stop()
        if not self._closing:
            logger.info("partition %s is no longer ours", seat.partition)
