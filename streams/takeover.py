"""What an owner knows when it begins: the newest good snapshot, and every event after it folded in order."""

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from commands.evolve import apply_stored, new_pool
from commands.rows import restore
from commands.settings import FORMAT
from commands.state import PoolState
from streams.port import LogCorrupt, LogReader, Snapshot, Topic

logger = logging.getLogger("fleetlog.owner")

POLL_RECORDS: Final = 5_000
POLL_S: Final = 1.0


class FormatTooNew(Exception):
    """A pool is written in a format that this software does not know."""


@dataclass(slots=True)
class Known:
    """The pools of a partition as of `position` (the next event offset), and where their last events lie in time."""

    pools: dict[str, PoolState] = field(default_factory=dict)
    position: int = 0
    last_appended_at: int = 0


def load(log: LogReader, partition: int, events_end: int, now: int, keep_going: Callable[[], None]) -> Known:
    """Snapshot and fold up to `events_end`. `keep_going` is called between batches and may raise to give up.

    Raises FormatTooNew, LogCorrupt, LogUnavailable.
    """
    known = _from_snapshot(log, partition, events_end, now)
    fold(log, partition, known, events_end, keep_going)
    return known


def _from_snapshot(log: LogReader, partition: int, events_end: int, now: int) -> Known:
    for snapshot in log.find_snapshots(partition):
        if snapshot.position > events_end:
            continue
        try:
            pools = restored(snapshot, now)
        except (ValueError, KeyError, TypeError, IndexError) as fault:
            logger.warning("a snapshot of partition %s cannot be read (%s); an older one is used", partition, fault)
            continue
        return Known({pool.pool: pool for pool in pools}, snapshot.position)
    return Known(position=log.beginning(Topic.EVENTS, partition))


def restored(snapshot: Snapshot, now: int) -> list[PoolState]:
    """The pools of a snapshot as of `now`. Raises ValueError and the like where it cannot be read."""
    collecting = gc.isenabled()
    gc.disable()  # nothing of a million new rows is garbage; looking for it would take twice the time
    try:
        return restore(snapshot.chunks, now)
    finally:
        if collecting:
            gc.enable()


def fold(log: LogReader, partition: int, known: Known, events_end: int, keep_going: Callable[[], None]) -> None:
    """Applies every event from `known.position` to `events_end`."""
    if known.position >= events_end:
        return
    follower = log.follow(Topic.EVENTS, {partition: known.position})
    try:
        while follower.positions()[partition] < events_end:
            for record in follower.poll(POLL_RECORDS, POLL_S):
                if record.offset >= events_end:
                    break
                state = known.pools.get(record.key)
                if state is None:
                    state = known.pools[record.key] = new_pool(record.key)
                _apply(state, record.value, record.offset, record.header("hash"), partition)
                known.last_appended_at = record.appended_at
            keep_going()
    finally:
        follower.close()
    known.position = events_end


def _apply(state: PoolState, value: bytes, offset: int, stored_hash: bytes | None, partition: int) -> None:
    sequence = state.sequence
    event = apply_stored(state, value, offset)
    if stored_hash != state.chain or event.sequence != sequence + 1:
        where = f"events, partition {partition}, offset {offset}"
        raise LogCorrupt(
            f"the chain of pool {state.pool} breaks at {where}: the log was altered or damaged, restore a backup"
        )
    if state.format > FORMAT:
        raise FormatTooNew(
            f"pool {state.pool} is written in format {state.format}, this software knows {FORMAT}: install a newer one"
        )
