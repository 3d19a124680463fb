"""Processes that own partitions, and the group that gives partitions to them."""

from collections.abc import Callable
from typing import Any, Final

from fleetlog.sim.scheduler import HostClock, Process, Scheduler
from fleetlog.sim.site import Bell, SimLog, SimSeat
from streams.body_store import BodyStore
from streams.memory_log import MemoryStore
from streams.owner import OwnerSettings, PartitionOwner
from streams.pool_clock import PoolClock
from streams.port import LogUnavailable, Record, Topic

SESSION_S: Final = 6.0
"""How long the group hears nothing of a member before its partitions go to others."""
LOOK_S: Final = 0.5
SOON_S: Final = 0.002
WAIT_MIN_S: Final = 0.02
CACHE_BYTES: Final = 1 << 20

AtStep = Callable[["OwnerProcess", int, int], None]
"""Called with the process, the partition and the number of the step that was done."""


class Killed(BaseException):
    """The process died in the middle of what it was doing."""


class SteppedOwner(PartitionOwner):
    """The product's owner, which says when a numbered step of its batch is done."""

    def __init__(self, process: "OwnerProcess", seat: SimSeat, settings: OwnerSettings, done: Callable[[int], None]):
        log = process.log
        bodies = BodyStore(log, seat.partition, None, CACHE_BYTES)
        clock = PoolClock(process.clock.wall_ms, process.clock.boot_ms, settings.clock_step_ms)
        super().__init__(log, seat, bodies, settings, clock)
        self._done = done
        self._said_second = False

    def _batch(self) -> None:
        self._said_second = False
        super()._batch()

    def _take(self, record: Record, decode: Callable[[bytes], Any], nows: dict[str, int]) -> None:
        if not self._said_second:
            self._said_second = True
            self._done(2)
        super()._take(record, decode, nows)

    def _let_time_act(self, nows: dict[str, int]) -> dict[str, None]:
        self._done(3)
        acted = super()._let_time_act(nows)
        self._done(4)
        return acted

    def _dispatch(self, touched: dict[str, None], nows: dict[str, int]) -> bool:
        left = super()._dispatch(touched, nows)
        self._done(5)
        return left

    def _snapshot_if_due(self) -> None:
        super()._snapshot_if_due()
        self._done(8)

    def _wait_s(self) -> float:
        return 0.0  # the seat never waits: the process comes again in time

    def wait_s(self) -> float:
        """How long until time may act."""
        return super()._wait_s()

    def has_input(self) -> bool:
        """Whether something is in the log that it has not taken yet, as far as it can see."""
        try:
            ends = [self._log.end(topic, self._seat.partition) for topic in (Topic.REPORTS, Topic.COMMANDS)]
        except LogUnavailable:
            return False
        return ends != [self._reports_next, self._commands_next]

    @property
    def is_whole(self) -> bool:
        """Whether it decides, and all that it has decided is in the log."""
        return self.status.phase == "deciding" and not self._written.events

    def pool_states(self) -> dict[str, Any]:
        """The live state of each pool that exists."""
        return {name: pool.state for name, pool in self._pools.items() if pool.state.exists}


class OwnerProcess(Process):
    """One process of the product that owns partitions, each in turns."""

    def __init__(
        self, scheduler: Scheduler, name: str, clock: HostClock, store: MemoryStore, settings: OwnerSettings, at: AtStep
    ) -> None:
        super().__init__(scheduler, name, clock)
        self.log = SimLog(store)
        self.heard_ms = scheduler.now_ms
        self.faults: list[str] = []
        self.owners: dict[int, SteppedOwner] = {}
        self._seats: dict[int, SimSeat] = {}
        self._bells: dict[int, Any] = {}
        self._settings = settings
        self._at = at
        self._due_ms: dict[int, float] = {}

    def take(self, partition: int) -> None:
        """The group gives it a partition."""
        done = lambda step: self._at(self, partition, step)  # noqa: E731
        seat = SimSeat(self.log, partition, done, lambda: self._soon(partition, owner, SOON_S))
        owner = SteppedOwner(self, seat, self._settings, done)
        self._seats[partition], self.owners[partition] = seat, owner
        self._hang_bell(partition, Bell(lambda: self._soon(partition, owner, SOON_S)))
        self._soon(partition, owner, SOON_S)

    def kill(self) -> None:
        """As in `Process`."""
        super().kill()
        for partition in list(self._bells):
            self._hang_bell(partition, None)

    def _hang_bell(self, partition: int, bell: Any) -> None:
        """Rings `bell` when an input comes, instead of the one before."""
        before = self._bells.pop(partition, None)
        for topic in (Topic.COMMANDS, Topic.REPORTS):
            if before is not None:
                self.log.bells.take_down(topic, partition, before)
            if bell is not None:
                self.log.bells.hang(topic, partition, bell)
        if bell is not None:
            self._bells[partition] = bell

    def seat(self, partition: int) -> SimSeat | None:
        """Its newest seat for a partition."""
        return self._seats.get(partition)

    def _soon(self, partition: int, owner: SteppedOwner, seconds: float) -> None:
        """A turn within so many seconds, unless one comes before."""
        due_ms = self.scheduler.now_ms + seconds * 1_000
        if self.owners.get(partition) is not owner or self._due_ms.get(partition, float("inf")) <= due_ms:
            return
        self._due_ms[partition] = due_ms

        def turn() -> None:
            if self._due_ms.get(partition) == due_ms:
                del self._due_ms[partition]
                self._turn(partition, owner)

        self.later(seconds, turn)

    def _turn(self, partition: int, owner: SteppedOwner) -> None:
        if self.owners.get(partition) is not owner:
            return
        try:
            pause_s = owner.step()
        except Killed:
            return
        if pause_s is None:
            if owner.status.phase == "stopped":
                self.faults.append(owner.status.why)
            if self.owners.get(partition) is owner:
                del self.owners[partition]
                self._hang_bell(partition, None)
            return
        # As in `fetch` of a seat that waits: what is there is taken at once, else it waits until time may act.
        if owner.status.phase == "deciding" and not owner.has_input():
            pause_s = max(pause_s, owner.wait_s(), WAIT_MIN_S)
        self._soon(partition, owner, max(pause_s, SOON_S))


class Group:
    """Who owns which partition, as a group of the broker decides.

    A member that is not heard of for SESSION_S loses what it has; it learns so only when it looks again.
    """

    def __init__(self, scheduler: Scheduler, partitions: int) -> None:
        self._scheduler = scheduler
        self._members: list[OwnerProcess] = []
        self.owners: dict[int, OwnerProcess | None] = dict.fromkeys(range(partitions))
        self._look()

    def join(self, member: OwnerProcess) -> None:
        """One more."""
        member.heard_ms = self._scheduler.now_ms
        self._members.append(member)
        self._share()

    def hand_over(self, partition: int) -> None:
        """The partition goes to another member, if there is one; the former finds out when it looks again."""
        former = self.owners[partition]
        others = [member for member in self._members if member is not former and member.is_well]
        if others:
            self._give(partition, others[0])

    def _look(self) -> None:
        now_ms = self._scheduler.now_ms
        for member in self._members:
            if member.is_well and not member.log.cut:
                member.heard_ms = now_ms
        silent = [member for member in self._members if now_ms - member.heard_ms > SESSION_S * 1_000]
        if silent:
            self._members = [member for member in self._members if member not in silent]
            for member in silent:
                if member.alive:
                    member.later(LOOK_S, lambda member=member: self.join(member))  # type: ignore[misc]
            self._share()
        self._scheduler.later(LOOK_S, self._look)

    def _share(self) -> None:
        """Every partition to a member; who has too many gives some away."""
        if not self._members:
            return
        for partition, owner in self.owners.items():
            wanted = self._members[partition % len(self._members)]
            if owner is not wanted and (owner not in self._members or len(self._members) > 1):
                self._give(partition, wanted)

    def _give(self, partition: int, member: OwnerProcess) -> None:
        former = self.owners[partition]
        self.owners[partition] = member
        seat = None if former is None else former.seat(partition)
        if former is not None and seat is not None:
            former.later(0.0 if former.is_paused else LOOK_S, seat.lose)
        member.take(partition)
