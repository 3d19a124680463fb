"""The owner of a partition: it turns inputs into events, in batches that happen once.

A batch, step by step, and what a crash after each step leaves behind:

1. Fetch: all reports that are there, then commands. (Nothing was written: the inputs come again.)
2. Draw `now` for each pool, after the last record was fetched.
3. Decide and record each input in order, reports first. (As 1: the state in memory dies with the process.)
4. Ask the log for the end of the reports; where all before it is applied, let time act.
5. Dispatch.
6. Encode events and outcomes, with payloads from the body store.
7. Commit outputs and both input positions in one transaction. (Before it: as 1. After it: the batch has happened; its
   outcomes are read by the gateways, whoever owns the partition next.)
8. Learn where the events lie; keep a snapshot if one is due. (A snapshot that was not finished is not found.)

The state is dropped only when the partition is fenced or lost; then everything is folded from the log again.
"""

import gc
import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from commands import events as e
from commands.decide import Context
from commands.evolve import locate
from commands.inputs import AcceptClock, Heartbeats, RaiseFormat, decode_command, decode_report
from commands.pool import SYSTEM_ACTOR, Cause, Pool, PoolFault, Written, WrittenOutcome
from commands.vocabulary import is_name
from streams.body_store import BodyStore
from streams.collector import note_rows
from streams.outputs import event_output, forget_bodies, keep_bodies, outcome_output
from streams.owner_status import OwnerStatus
from streams.partition_wide import accept_clock, raise_format
from streams.pool_clock import PoolClock
from streams.port import (
    Fenced,
    Log,
    LogCorrupt,
    LogMisconfigured,
    LogReplaced,
    LogUnavailable,
    NoSuchPartition,
    Record,
    Seat,
    SeatLost,
    partition_of,
)
from streams.set_aside import first_line, quarantined_answer, quarantined_event
from streams.snapshots import LINES_AT_ONCE, Keeper, Making
from streams.takeover import FormatTooNew, load

logger = logging.getLogger("fleetlog.owner")

IDLE_WAIT_S: Final = 5.0
RETRY_S: Final = 0.5
DISPATCH_MAX: Final = 2_000
"""Assignments made in one batch at most, so that a batch stays short."""


@dataclass(slots=True, frozen=True)
class OwnerSettings:
    """How an owner works: `batch_max` commands a batch, a snapshot after so many events or seconds."""

    name: str
    software: str
    batch_max: int = 500
    snapshot_events: int = 100_000
    snapshot_s: float = 300.0
    clock_step_ms: int = 60_000
    defaults: dict[str, Any] = field(default_factory=dict)


class PartitionOwner:
    """Decides for one partition in a thread of its own, until the seat is lost or `stop` is called."""

    def __init__(
        self, log: Log, seat: Seat, bodies: BodyStore, settings: OwnerSettings, clock: PoolClock | None = None
    ) -> None:
        self._log, self._seat, self._bodies, self._settings = log, seat, bodies, settings
        self._clock = clock or PoolClock(step_ms=settings.clock_step_ms)
        self._stopping = threading.Event()
        self._pools: dict[str, Pool] = {}
        self._written = Written()
        self._reports_next = self._commands_next = self._events_next = 0
        self._barrier: tuple[dict[str, int], int] | None = None
        self._since_snapshot = 0
        self._snapshot_boot = 0.0
        self._drawn_s = 0.0  # when the instants of the running batch were drawn
        self._making: Making | None = None
        self._keeper = Keeper(log, seat.partition)
        self._lives = 0
        self.status = OwnerStatus(seat.partition)
        self._thread = threading.Thread(target=self._run, name=f"owner-{seat.partition}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the running batch; `join` waits for that."""
        self._stopping.set()
        self._seat.wake()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the thread has ended."""
        self._thread.join(timeout_s)

    # ---- lives of the owner ----

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = self.step()
            if pause_s is None:
                break
            if pause_s:
                self._stopping.wait(pause_s)
        note_rows(self._seat.partition, 0)
        self._keeper.join()

    def step(self) -> float | None:
        """Takes over, or decides one batch. Returns the seconds to wait before the next step, None after the last.

        `start` does this in a thread of its own; a simulation calls it instead.
        """
        try:
            if self.status.phase == "deciding":
                self._batch()
            else:
                self._take_over()
        except SeatLost:
            return None
        except Fenced:
            logger.info("partition %s was fenced and is taken over anew", self._seat.partition)
            self._phase("taking_over")
        except (LogUnavailable, LogMisconfigured) as fault:
            # Also a topic that is missing or not allowed: it goes on by itself once somebody mended that.
            self._phase("waiting_for_log", str(fault))
            return RETRY_S
        except (PoolFault, FormatTooNew, LogCorrupt, LogReplaced) as fault:
            self._stopped(str(fault))
            return None
        except Exception as fault:
            logger.error("%s", traceback.format_exc())
            self._stopped(f"a fault of Fleetlog stopped partition {self._seat.partition}: {fault!r}")
            return None
        return 0.0

    def _phase(self, phase: str, why: str = "") -> None:
        self.status.phase, self.status.why = phase, why

    def _stopped(self, why: str) -> None:
        logger.error("partition %s stopped: %s", self._seat.partition, why)
        self._phase("stopped", why)

    def _take_over(self) -> None:
        """Fence, read positions, fold to the end, say so in the log, begin."""
        self._phase("taking_over")
        self._lives += 1
        self._clock.forget()
        taken = self._seat.take_over()
        known = load(self._log, self._seat.partition, taken.events_end, self._clock.wall(), self._check_seat)
        forget_bodies(self._bodies, self._written)
        self._written = Written()
        self._pools = {}
        for name, state in known.pools.items():
            now = self._clock.now(name, max(state.last_at, known.last_appended_at))
            self._pools[name] = Pool(state, self._written, now)
        self._reports_next, self._commands_next = taken.reports_next, taken.commands_next
        self._events_next = taken.events_end
        self._barrier = self._making = None
        gc.freeze()
        for name in self._pools:
            self._note_ownership(name, "hand_over")
        if self._written.events:
            self._commit()
        self._seat.start()
        self._snapshot_boot = self._clock.boot_s()
        self._phase("deciding")

    def _check_seat(self) -> None:
        if self._seat.lost() or self._stopping.is_set():
            raise SeatLost

    def _note_ownership(self, name: str, reason: Any) -> None:
        """On record where it matters: counts of running attempts and online robots begin anew."""
        pool = self._pools[name]
        state = pool.state
        if not state.running and not any(robot.online for robot in state.robots.values()):
            return
        now = self._clock.now(name, state.last_at)
        event = e.OwnershipTaken(
            reason=reason,
            owner=self._settings.name,
            partition=self._seat.partition,
            software=self._settings.software,
            gap_ms=now - state.last_at,
        )
        pool.note(event, Cause(f"owner:{self._settings.name}", SYSTEM_ACTOR), now)

    # ---- one batch ----

    def _batch(self) -> None:
        fetched = self._seat.fetch(self._settings.batch_max, self._wait_s())
        self._drawn_s = self._clock.boot_s()
        nows = {name: self._clock.now(name, pool.state.last_at) for name, pool in self._pools.items()}
        self._look_at_clock()
        inputs = len(fetched.reports) + len(fetched.commands)
        if inputs:
            self.status.batch_inputs.note(inputs)
        touched = dict.fromkeys(record.key for record in (*fetched.reports, *fetched.commands))
        for record in fetched.reports:
            self._take(record, decode_report, nows)
        for record in fetched.commands:
            self._take(record, decode_command, nows)
        self._reports_next = _next(fetched.reports, self._reports_next)
        self._commands_next = _next(fetched.commands, self._commands_next)
        touched |= self._let_time_act(nows)
        left = self._dispatch(touched, nows)
        if self._written.events or self._written.outcomes or touched:
            self._commit()
            self._snapshot_if_due()
        elif self._making is not None:
            self._make_snapshot()
        if left:
            self._seat.wake()

    def _wait_s(self) -> float:
        """How long to wait for input: until time may act next."""
        if self._making is not None:
            return 0.0
        wait_ms = IDLE_WAIT_S * 1_000
        if self._barrier is not None:
            wait_ms = min(wait_ms, 20.0)
        for name, pool in self._pools.items():
            at = pool.next_at()
            if at is not None:
                wait_ms = min(wait_ms, at - self._clock.now(name, pool.state.last_at))
        return max(0.0, wait_ms / 1_000)

    def _take(self, record: Record, decode: Callable[[bytes], Any], nows: dict[str, int]) -> None:
        """Decode and decide one input; what cannot be, again when alone, is set aside and the partition goes on."""
        try:
            asked = decode(record.value)
        except ValidationError as fault:
            self._quarantine(record, f"it cannot be decoded: {first_line(fault)}", None, nows)
            return
        if asked.pool != record.key or not self._belongs(record.key):
            self._quarantine(record, f"its key {record.key!r} does not belong here", asked, nows)
            return
        pool = self._pool(asked.pool, nows)
        context = self._context(pool, nows)
        for last in (False, True):
            try:
                if isinstance(asked, Heartbeats):
                    pool.take_heartbeats(asked, context)
                else:
                    pool.take(asked, context)
            except (MemoryError, OSError, PoolFault):
                raise
            except Exception as fault:
                if last:
                    logger.error("%s", traceback.format_exc())
                    self._quarantine(record, f"deciding it failed: {fault!r}", asked, nows)
                continue
            break
        if not pool.state.exists:
            del self._pools[asked.pool], nows[asked.pool]
            self._clock.forget(asked.pool)
        if asked.pool == _reserved(self._seat.partition):
            self._in_every_pool(asked, nows)

    def _belongs(self, key: str) -> bool:
        try:
            if partition_of(key, self._log.partitions) != self._seat.partition:
                return False
        except NoSuchPartition:
            return False
        return key in self._pools or is_name(key) or key == _reserved(self._seat.partition)

    def _pool(self, name: str, nows: dict[str, int]) -> Pool:
        pool = self._pools.get(name)
        if pool is None:
            nows[name] = self._clock.now(name, 0)
            pool = self._pools[name] = Pool.new(name, self._written, nows[name])
            if name == _reserved(self._seat.partition):
                pool.create(self._context(pool, nows))
        return pool

    def _context(self, pool: Pool, nows: dict[str, int]) -> Context:
        return Context(
            now=pool.instant(nows[pool.state.pool]),
            log_id=self._log.log_id,
            format=self._format(),
            owner=self._settings.name,
            partition=self._seat.partition,
            software=self._settings.software,
            defaults=self._settings.defaults,
            wall_at=self._clock.distrusted(),
        )

    def _format(self) -> int:
        """In which format new pools are written: the log's, which may have been raised since it was opened here."""
        reserved = self._pools.get(_reserved(self._seat.partition))
        return max(self._log.format, reserved.state.format if reserved is not None else 0)

    def _quarantine(self, record: Record, error: str, asked: Any, nows: dict[str, int]) -> None:
        """An event names what was set aside; who asked is told where that can be read."""
        self.status.quarantined += 1
        known = self._pools.get(record.key) if self._belongs(record.key) else None
        pool = known if known is not None and known.state.exists else self._pool(_reserved(self._seat.partition), nows)
        event = quarantined_event(record, error, asked)
        now = pool.instant(nows[pool.state.pool])
        pool.note(event, Cause(f"owner:{self._settings.name}", SYSTEM_ACTOR), now)
        draft = quarantined_answer(record, error)
        if draft is not None:
            self._written.outcomes.append(WrittenOutcome(pool.state.pool, draft, pool.state.sequence))

    def _in_every_pool(self, asked: Any, nows: dict[str, int]) -> None:
        """What was asked of the partition as a whole."""
        wall = self._clock.distrusted()
        if isinstance(asked, AcceptClock) and wall is not None:
            accept_clock(asked, self._pools, nows, wall)
            self._clock.follow_wall()
            self._look_at_clock()
        elif isinstance(asked, RaiseFormat):
            raise_format(asked, self._pools, nows)

    # ---- time ----

    def _let_time_act(self, nows: dict[str, int]) -> dict[str, None]:
        """Time never overtakes input: it acts up to an instant only when all reports before it are applied."""
        due = {name: now for name, now in nows.items() if _is_due(self._pools[name], now)}
        if not due:
            return {}
        if self._barrier is None:
            try:
                self._barrier = (due, self._seat.reports_end())
            except LogUnavailable:
                return {}
        settled, end = self._barrier
        if self._reports_next < end:
            return {}
        self._barrier = None
        for name, instant in settled.items():
            self._pools[name].advance(self._pools[name].instant(nows[name]), instant)
        return dict.fromkeys(settled)

    def _dispatch(self, touched: dict[str, None], nows: dict[str, int]) -> bool:
        """Assigns in every pool that something happened in; says whether more is left for the next batch."""
        left = False
        for name in touched:
            pool = self._pools.get(name)
            if pool is not None and pool.state.exists:
                count = pool.dispatch(pool.instant(nows[name]), DISPATCH_MAX)
                left |= count == DISPATCH_MAX
        return left

    # ---- commit ----

    def _commit(self) -> None:
        """Everything the batch produced and both input positions, once."""
        written = self._written
        keep_bodies(self._bodies, written)
        outputs = [event_output(row) for row in written.events]
        outputs += [outcome_output(row, self._bodies) for row in written.outcomes]
        began = self._clock.boot_s()
        offsets = self._seat.commit(outputs, self._reports_next, self._commands_next)
        took_s = self._clock.boot_s() - began
        for row, offset in zip(written.events, offsets, strict=True):
            if isinstance(row.event, e.TaskSubmitted | e.CheckpointSaved):
                locate(self._pools[row.event.pool].state, row.event, offset)
        if offsets:
            self._events_next = offsets[-1] + 1
        self._count(took_s)
        written.events.clear()
        written.outcomes.clear()
        since_drawn_ms = (self._clock.boot_s() - self._drawn_s) * 1_000
        for name, pool in self._pools.items():
            if since_drawn_ms > pool.state.settings.window_ms:
                self._note_ownership(name, "outage")

    def _count(self, took_s: float) -> None:
        status, events = self.status, self._written.events
        status.batches += 1
        status.events_written += len(events)
        status.commit_seconds.note(took_s)
        status.reports_next, status.commands_next = self._reports_next, self._commands_next
        status.pools = len(self._pools)
        status.frozen = tuple(name for name, pool in self._pools.items() if pool.state.frozen)
        self._since_snapshot += len(events)

    def _look_at_clock(self) -> None:
        self.status.clock_offset_ms = self._clock.offset_ms
        self.status.clock_distrusted = self._clock.distrusted() is not None

    def _snapshot_if_due(self) -> None:
        due = self._since_snapshot >= self._settings.snapshot_events
        due |= self._since_snapshot > 0 and self._clock.boot_s() - self._snapshot_boot >= self._settings.snapshot_s
        # The state must be that of a committed position: not so where the commit took so long that it noted an outage.
        if due and self._making is None and not self._keeper.busy and not self._written.events:
            states = [pool.state for pool in self._pools.values() if pool.state.exists]
            incarnation = f"{self._settings.name}.{self._lives}"
            note_rows(self._seat.partition, sum(len(state.tasks) + len(state.ended) for state in states))
            self._making = Making(states, self._events_next, incarnation, self._clock.wall())
            self._since_snapshot, self._snapshot_boot = 0, self._clock.boot_s()
        if self._making is not None:
            self._make_snapshot()

    def _make_snapshot(self) -> None:
        """One slice of the snapshot on its way."""
        snapshot = None if self._making is None else self._making.go_on(LINES_AT_ONCE)
        if snapshot is not None:
            self._making = None
            self._keeper.keep(snapshot)


def _is_due(pool: Pool, now: int) -> bool:
    at = pool.next_at()
    return at is not None and at <= now


def _next(records: Sequence[Record], before: int) -> int:
    return records[-1].offset + 1 if records else before


def _reserved(partition: int) -> str:
    return f"_log-{partition}"
