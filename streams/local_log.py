"""What the adapters share whose owners all live in one process: followers, seats and the members among the owners.

An adapter is a `Backend`: it reads, appends and commits; waiting, waking, positions and who owns what are here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from streams.port import (
    RECORD_BYTES_MAX,
    Fenced,
    Fetched,
    Headers,
    LogFault,
    Output,
    Record,
    RecordTooLarge,
    Seat,
    SeatLost,
    TakenOver,
    Topic,
)

Found = TypeVar("Found")

REPORTS_MAX: Final = 10_000
"""How many reports one `fetch` delivers at most."""


class Source(Protocol):
    """What a follower reads from."""

    look_every_s: float
    """How long a waiting reader may sleep without looking: no longer than this, even if nobody rings."""
    bells: Bells

    def refresh(self) -> None:
        """Makes visible what other processes wrote since the last call."""

    def kept(self, topic: Topic, partition: int) -> tuple[int, int]:
        """Beginning and end of what is kept and visible since the last `refresh`."""

    def read(self, topic: Topic, partition: int, start: int, records_max: int) -> tuple[list[Record], int]:
        """Records from `start` (below the end) on, and the offset after everything delivered or skipped."""


class Backend(Source, Protocol):
    """What a seat works with."""

    def take_over(self, seat: LocalSeat) -> TakenOver:
        """Gives the seat a new epoch, which fences the one before, then reads positions and end."""

    def commit(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Seat`; refuses an epoch that is not the newest."""


class Bells:
    """Who is to be rung when something becomes visible in a partition of a topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[tuple[str, int], tuple[threading.Event, ...]] = {}

    def hang(self, topic: Topic, partition: int, bell: threading.Event) -> None:
        """Rings `bell` from now on."""
        with self._lock:
            key = (topic.value, partition)
            self._bells[key] = (*self._bells.get(key, ()), bell)

    def take_down(self, topic: Topic, partition: int, bell: threading.Event) -> None:
        """Rings `bell` no more."""
        with self._lock:
            key = (topic.value, partition)
            self._bells[key] = tuple(b for b in self._bells.get(key, ()) if b is not bell)

    def ring(self, topic: Topic, partition: int) -> None:
        """Something became visible in this partition."""
        for bell in self._bells.get((topic.value, partition), ()):
            bell.set()


class Waiter:
    """One reader that waits for something to become visible, or to be woken."""

    def __init__(self, source: Source, places: Sequence[tuple[Topic, int]]) -> None:
        self._source = source
        self._places = places
        self._bell = threading.Event()
        self._woken = False
        for topic, partition in places:
            source.bells.hang(topic, partition, self._bell)

    def wait_for(self, look: Callable[[], Found | None], timeout_s: float) -> Found | None:
        """What `look` finds, looking again whenever something came; None when the time is over or on `wake`."""
        give_up = time.monotonic() + timeout_s
        while True:
            # Cleared before looking: what comes after the look rings again.
            self._bell.clear()
            self._source.refresh()
            found = look()
            left_s = give_up - time.monotonic()
            if found is not None or left_s <= 0 or self._woken:
                self._woken = False
                return found
            self._bell.wait(min(left_s, self._source.look_every_s))

    def wake(self) -> None:
        """Ends the running wait, or the next one."""
        self._woken = True
        self._bell.set()

    def close(self) -> None:
        """Hears nothing any more."""
        for topic, partition in self._places:
            self._source.bells.take_down(topic, partition, self._bell)


class LocalFollower:
    """Reads partitions of one topic from a `Source`, in turns. For one thread, except `wake`."""

    def __init__(self, source: Source, topic: Topic, starts: Mapping[int, int]) -> None:
        self._source = source
        self._topic = topic
        self._positions = dict(starts)
        self._turns = list(starts)
        self._waiter = Waiter(source, [(topic, partition) for partition in starts])

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """As in `Follower`."""
        return self._waiter.wait_for(lambda: self._read(records_max), timeout_s) or []

    def positions(self) -> dict[int, int]:
        """As in `Follower`."""
        return dict(self._positions)

    def wake(self) -> None:
        """As in `Follower`."""
        self._waiter.wake()

    def close(self) -> None:
        """As in `Follower`."""
        self._waiter.close()

    def _read(self, records_max: int) -> list[Record] | None:
        """What is there; none where only what is no record was passed, None where nothing came."""
        records: list[Record] = []
        moved = False
        for partition in tuple(self._turns):
            start = self._positions[partition]
            kept = self._source.kept(self._topic, partition)
            if start == kept[1]:
                continue
            check_kept(kept, self._topic, partition, start)
            moved = True
            found, self._positions[partition] = self._source.read(
                self._topic, partition, start, records_max - len(records)
            )
            records += found
            if len(records) >= records_max:
                # Whoever had the room for itself goes behind the others.
                self._turns.remove(partition)
                self._turns.append(partition)
                break
        return records if moved else None


class LocalSeat:
    """One partition that a member decides for. For one thread, except `lost` and `wake`."""

    def __init__(self, backend: Backend, partition: int) -> None:
        self.partition = partition
        self.epoch = 0
        self._backend = backend
        self._waiter = Waiter(backend, [(Topic.REPORTS, partition), (Topic.COMMANDS, partition)])
        self._taken: TakenOver | None = None
        self._next: tuple[int, int] | None = None
        self._lost = False
        self._busy = threading.Lock()

    def take_over(self) -> TakenOver:
        """As in `Seat`."""
        self._next = None
        with self._busy:
            self._check_ours()
            self._taken = self._backend.take_over(self)
        return self._taken

    def start(self) -> None:
        """As in `Seat`."""
        if self._taken is not None:
            self._next = (self._taken.reports_next, self._taken.commands_next)

    def fetch(self, commands_max: int, timeout_s: float) -> Fetched:
        """As in `Seat`; a seat that was not started delivers nothing."""
        return self._waiter.wait_for(lambda: self._fetch(commands_max), timeout_s) or Fetched([], [])

    def _fetch(self, commands_max: int) -> Fetched | None:
        self._check_ours()
        if self._next is None:
            return None
        reports_next, commands_next = self._next
        reports, reports_next = self._read(Topic.REPORTS, reports_next, REPORTS_MAX)
        commands: list[Record] = []
        if reports_next >= self.reports_end():
            commands, commands_next = self._read(Topic.COMMANDS, commands_next, commands_max)
        self._next = (reports_next, commands_next)
        return Fetched(reports, commands) if reports or commands else None

    def _read(self, topic: Topic, start: int, records_max: int) -> tuple[list[Record], int]:
        kept = self._backend.kept(topic, self.partition)
        if start == kept[1]:
            return [], start
        check_kept(kept, topic, self.partition, start)
        return self._backend.read(topic, self.partition, start, records_max)

    def reports_end(self) -> int:
        """As in `Seat`."""
        return self._backend.kept(Topic.REPORTS, self.partition)[1]

    def commit(self, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Seat`."""
        with self._busy:
            self._check_ours()
            for output in outputs:
                check_size(output.key, output.value, output.headers)
            return self._backend.commit(self, outputs, reports_next, commands_next)

    def lost(self) -> bool:
        """As in `Seat`."""
        return self._lost

    def wake(self) -> None:
        """As in `Seat`."""
        self._waiter.wake()

    def lose(self) -> None:
        """Takes the seat away, after its running commit."""
        with self._busy:
            self._lost = True
        self._waiter.wake()
        self._waiter.close()

    def _check_ours(self) -> None:
        if self._lost:
            raise SeatLost(f"Partition {self.partition} went to another owner; this one ends for it.")


class Owners:
    """The members among the owners of one log: the newest member has every partition, the others wait.

    When it leaves, the newest of the rest gets them. `taken` and `lost` are called from the thread that joins or
    leaves.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._lock = threading.Lock()
        self._members: list[LocalOwnership] = []

    def join(
        self, backend: Backend, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]
    ) -> LocalOwnership:
        """A new member, which gets every partition before this returns."""
        member = LocalOwnership(self, backend, name, taken, lost)
        with self._lock:
            former = self._members[-1] if self._members else None
            self._members.append(member)
            if former:
                former.give_up()
            member.take(self._partitions)
        return member

    def leave(self, member: LocalOwnership) -> None:
        """The member loses its seats, then the newest of the rest gets them."""
        with self._lock:
            if member not in self._members:
                return
            newest = self._members[-1] is member
            self._members.remove(member)
            member.give_up()
            if newest and self._members:
                self._members[-1].take(self._partitions)


class LocalOwnership:
    """One member among the owners."""

    def __init__(
        self, owners: Owners, backend: Backend, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]
    ) -> None:
        self.name = name
        self._owners = owners
        self._backend = backend
        self._taken = taken
        self._lost = lost
        self._seats: list[LocalSeat] = []

    def close(self) -> None:
        """As in `Ownership`."""
        self._owners.leave(self)

    def take(self, partitions: int) -> None:
        """Makes a seat for each partition and says so."""
        self._seats = [LocalSeat(self._backend, partition) for partition in range(partitions)]
        for seat in self._seats:
            self._taken(seat)

    def give_up(self) -> None:
        """Loses every seat, after its running commit, and says so."""
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.lose()
            self._lost(seat)


def check_kept(kept: tuple[int, int], topic: Topic, partition: int, offset: int) -> None:
    """Refuses an offset that is not kept any more, or not there yet. Raises LogFault."""
    beginning, end = kept
    if not beginning <= offset <= end:
        raise LogFault(
            f"Offset {offset} of {topic.value}, partition {partition}, is not in the log, which keeps {beginning} to"
            f" {end}: follow from one of those."
        )


def check_size(key: str, value: bytes, headers: Headers) -> int:
    """The bytes of a record. Raises RecordTooLarge."""
    size = len(value) + len(key.encode()) + sum(len(name.encode()) + len(data) for name, data in headers)
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(f"A record of {size} bytes is more than the log takes ({RECORD_BYTES_MAX}); send less.")
    return size


def fenced(partition: int) -> Fenced:
    """What a seat gets whose epoch is not the newest."""
    return Fenced(f"Another owner took partition {partition} over; its state must be read anew.")


def wall_clock() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
