"""Follows all partitions of `outcomes` from their end, in threads of its own, and hands them to the gateway's loop.

Records for other gateways are dropped by their header before anything is decoded. One wake-up of the loop carries a
whole batch. At most a few batches wait for the loop, then the thread waits as well.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from streams.port import Follower, LogFault, LogReader, LogUnavailable, MadeAnew, Topic

logger = logging.getLogger("fleetlog.gateway")

RECORDS_MAX: Final = 2000
BATCHES_WAITING_MAX: Final = 8
RETRY_S: Final = 0.5

Deliver = Callable[[list[dict[str, Any]]], None]


@dataclass(slots=True, frozen=True)
class _Ends:
    """The ends of all partitions, and when they were asked for (s)."""

    asked_at: float
    by_partition: dict[int, int]


class OutcomeFollower:
    """Calls `deliver` on the loop with the decoded outcomes addressed to `to`, in order, and `moved` after each batch.

    `followed_at`: everything that was in `outcomes` at that instant (of `clock`, s) has been delivered; None
    before the first time. It is kept fresh by asking for the ends every `ask_every_s`.
    """

    def __init__(
        self,
        log: LogReader,
        to: str,
        ask_every_s: float,
        deliver: Deliver,
        moved: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.followed_at: float | None = None
        self.problem: str | None = "has not begun"
        self._log = log
        self._to = to.encode()
        self._ask_every_s = ask_every_s
        self._deliver = deliver
        self._moved = moved
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: _Ends | None = None
        self._from_the_beginning = False
        self._room = threading.Semaphore(BATCHES_WAITING_MAX)
        self._stopping = threading.Event()
        self._follower: Follower | None = None
        self._threads = [
            threading.Thread(target=target, name=f"outcomes-{name}", daemon=True)
            for name, target in (("follow", self._follow_until_stopped), ("ends", self._ask_until_stopped))
        ]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to follow; outcomes written before this call are not for us."""
        self._loop = loop
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; blocks until they have ended."""
        self._stopping.set()
        self._room.release()
        if self._follower is not None:
            self._follower.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    # ---- in the thread that asks for ends ----

    def _ask_until_stopped(self) -> None:
        while not self._stopping.wait(self._ask_every_s):
            try:
                self.ask_once()
            except LogFault as fault:
                self.problem = str(fault) or type(fault).__name__

    def ask_once(self) -> None:
        """Asks for the ends anew. Raises LogFault."""
        self._ends = self._ask()

    def _ask(self) -> _Ends:
        asked_at = self._clock()
        return _Ends(asked_at, {p: self._log.end(Topic.OUTCOMES, p) for p in range(self._log.partitions)})

    # ---- in the thread that follows ----

    def _follow_until_stopped(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except MadeAnew:
                self._from_the_beginning = True
            except LogFault as fault:
                self._pause(fault)

    def _follow(self) -> None:
        """From the present end on, for as long as what comes next is kept.

        A log that is away is asked again for what comes next, so nothing is missed. Only where that is gone we begin
        at the end anew: askers then get `no_answer`, robots send again. A topic that was made anew is read whole.
        """
        try:
            while not self._stopping.is_set():
                try:
                    self.read_once(self._ask_every_s)
                except LogUnavailable as fault:
                    self._pause(fault)
        finally:
            if self._follower is not None:
                self._follower.close()
                self._follower = None

    def read_once(self, timeout_s: float = 0.0) -> None:
        """Passes on what has come, waiting up to `timeout_s` for it. Raises LogFault."""
        follower = self._follower
        if follower is None:
            self._ends = ends = self._ask()
            starts = ends.by_partition
            if self._from_the_beginning:
                starts = {p: self._log.beginning(Topic.OUTCOMES, p) for p in starts}
            follower = self._follower = self._log.follow(Topic.OUTCOMES, starts)
            self._from_the_beginning = False
        records = follower.poll(RECORDS_MAX, timeout_s)
        batch = [self._decoded(r.value) for r in records if r.header("to") == self._to]
        self._hand_over([outcome for outcome in batch if outcome], self._freshness(follower.positions()))

    def _pause(self, fault: LogFault) -> None:
        said = str(fault) or type(fault).__name__
        if said != self.problem:
            logger.warning("outcomes cannot be followed: %s", said)
        self.problem = said
        self._stopping.wait(RETRY_S)

    def _decoded(self, value: bytes) -> dict[str, Any] | None:
        try:
            outcome: dict[str, Any] = from_json(value)
        except ValueError:
            logger.exception("an outcome for this gateway is not JSON; it is skipped")
            return None
        return outcome

    def _freshness(self, positions: dict[int, int]) -> float | None:
        """The instant whose outcomes have all been read, if that is news."""
        ends = self._ends
        if ends is None or ends.asked_at == self.followed_at:
            return None
        reached = all(positions.get(p, -1) >= end for p, end in ends.by_partition.items())
        return ends.asked_at if reached else None

    def _hand_over(self, batch: list[dict[str, Any]], followed_at: float | None) -> None:
        if (not batch and followed_at is None) or self._loop is None:
            return
        self._room.acquire()
        if self._stopping.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(self._on_loop, batch, followed_at)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._stopping.set()

    # ---- on the loop ----

    def _on_loop(self, batch: list[dict[str, Any]], followed_at: float | None) -> None:
        self._room.release()
        if batch:
            self._deliver(batch)
        if followed_at is not None:
            # Only now: an ack that relies on it must go out after the stops that were read before it.
            self.followed_at = followed_at
            self.problem = None
        self._moved()
