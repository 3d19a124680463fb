"""Heartbeats of all sessions, gathered per pool into one record, and the acks that they may have.

A heartbeat is answered only when its record is in the log and the outcomes have been followed to an end asked for at
most one window ago: an answer lets a robot work on, so nothing that would stop it may be unread.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from commands.inputs import Beat, Heartbeats, HeldByRobot, encode_report
from commands.messages import Heartbeat
from streams.port import Log, LogFault, Topic

if TYPE_CHECKING:
    from robot_gateway.sessions import Session

RECORD_BYTES: Final = 300_000
"""A record is sent early when the heartbeats in it were this long; one more (512 KiB at most) still fits."""


class Timer(Protocol):
    """A step that comes later."""

    def cancel(self) -> None:
        """It does not come."""


Later = Callable[[float, Callable[[], None]], Timer]


def _on_running_loop(seconds: float, step: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, step)


@dataclass(slots=True, eq=False)
class GatheredBeat:
    """The newest heartbeat of one session; `ids`: the heartbeats whose attempts it names, newest last."""

    session: "Session"
    epoch: int
    message: Heartbeat
    named: frozenset[tuple[str, int]]
    ids: list[str]


@dataclass(slots=True)
class _PoolBeats:
    beats: "dict[Session, GatheredBeat]" = field(default_factory=dict)
    bytes: int = 0


class HeartbeatGather:
    """One record per pool and `gather_s`, in the name of `gateway`; `followed_at` as in OutcomeFollower."""

    def __init__(
        self,
        log: Log,
        gateway: str,
        gather_s: float,
        followed_at: Callable[[], float | None],
        on_loop: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
        later: Later = _on_running_loop,
    ) -> None:
        """`on_loop(step, ...)` does a step on the gateway's loop, from any thread; `later(s, step)` after a time."""
        self._log = log
        self._on_loop = on_loop
        self._gateway = gateway
        self._gather_s = gather_s
        self._followed_at = followed_at
        self._clock = clock
        self._later = later
        self._pools: dict[str, _PoolBeats] = {}
        self._in_log: dict[Session, GatheredBeat] = {}
        self._timer: Timer | None = None

    def add(self, session: "Session", message: Heartbeat, size: int) -> None:
        """A heartbeat of `size` bytes has come."""
        pool = self._pools.setdefault(session.pool, _PoolBeats())
        named = frozenset((held.task, held.attempt) for held in message.holding)
        before = pool.beats.get(session)
        # An older heartbeat is answered by this record only if this one names all that it named.
        ids = before.ids if before and before.epoch == session.epoch and before.named <= named else []
        pool.beats[session] = GatheredBeat(session, session.epoch or 0, message, named, [*ids[-3:], message.id])
        pool.bytes += size
        if pool.bytes > RECORD_BYTES:
            self._send(session.pool, self._pools.pop(session.pool))
        elif self._timer is None:
            self._timer = self._later(self._gather_s, self.flush)

    def flush(self) -> None:
        """Sends what has been gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pools, self._pools = self._pools, {}
        for pool, beats in pools.items():
            self._send(pool, beats)

    def forget(self, session: "Session") -> None:
        """The session has ended; what it said still goes to the log."""
        self._in_log.pop(session, None)

    def moved(self) -> None:
        """The outcomes were followed further: answers that waited for that may go out."""
        if self._in_log:
            waiting, self._in_log = self._in_log, {}
            for beat in waiting.values():
                self._answer(beat)

    def _send(self, pool: str, gathered: _PoolBeats) -> None:
        beats = list(gathered.beats.values())
        record = Heartbeats(
            pool=pool,
            gateway=self._gateway,
            beats=[
                Beat(
                    robot=beat.session.robot,
                    epoch=beat.epoch,
                    seq=beat.message.seq or 0,
                    holding=[
                        HeldByRobot(task=h.task, attempt=h.attempt, progress=h.progress, note=h.note)
                        for h in beat.message.holding
                    ],
                )
                for beat in beats
            ],
        )
        try:
            self._log.append(Topic.REPORTS, pool, encode_report(record), (), partial(self._appended, beats))
        except LogFault as fault:
            self._settled(beats, fault)

    def _appended(self, beats: list[GatheredBeat], fault: LogFault | None, offset: int) -> None:
        """Called by the log's thread."""
        self._on_loop(self._settled, beats, fault)

    def _settled(self, beats: list[GatheredBeat], fault: LogFault | None) -> None:
        for beat in beats:
            if fault is None:
                self._answer(beat)
            else:
                beat.session.log_is_away(beat.ids[-1])

    def _answer(self, beat: GatheredBeat) -> None:
        session, followed_at = beat.session, self._followed_at()
        if session.ended or session.epoch != beat.epoch:
            return
        if followed_at is None or self._clock() - followed_at > session.window_ms / 1000:
            self._in_log[session] = beat
            return
        session.heartbeat_in_log(beat.ids, beat.named)
