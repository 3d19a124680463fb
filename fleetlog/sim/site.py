"""The log as one process sees it: it can be cut off from it, its appends can be late or come twice."""

from collections.abc import Callable, Sequence

from streams.local_log import LocalSeat
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import Appended, Fenced, Fetched, Headers, LogUnavailable, Output, Record, TakenOver, Topic

CUT = "the log does not answer"


class SimLog(MemoryLog):
    """A process's way to the log of the simulation. `cut`: nothing passes. `twice`: the next append is made twice."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.cut = False
        self.twice = False
        self._late: list[tuple[Topic, str, bytes, Headers, Appended]] | None = None

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """As in `Log`."""
        if self._late is not None:
            self._late.append((topic, pool, value, headers, done))
        elif self.cut:
            done(LogUnavailable(CUT), -1)
        else:
            super().append(topic, pool, value, headers, done)
            if self.twice:
                self.twice = False
                super().append(topic, pool, value, headers, _nobody)

    def hold_back(self) -> None:
        """Appends are on their way, and stay there."""
        self._late = self._late or []

    def let_go(self) -> None:
        """What was on its way arrives, in order."""
        late, self._late = self._late or [], None
        for append in late:
            self.append(*append)

    def kept(self, topic: Topic, partition: int) -> tuple[int, int]:
        """As in `Source`."""
        self._require()
        return super().kept(topic, partition)

    def read(self, topic: Topic, partition: int, start: int, records_max: int) -> tuple[list[Record], int]:
        """As in `Source`."""
        self._require()
        return super().read(topic, partition, start, records_max)

    def take_over(self, seat: LocalSeat) -> TakenOver:
        """As in `Backend`."""
        self._require()
        return super().take_over(seat)

    def commit(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Backend`."""
        if self.cut:
            raise Fenced("The commit was not answered; take over again to see whether it happened.")
        return super().commit(seat, outputs, reports_next, commands_next)

    def _require(self) -> None:
        if self.cut:
            raise LogUnavailable(CUT)


def _nobody(fault: object, offset: int) -> None:
    pass


class SimSeat(LocalSeat):
    """A seat that never waits: it says when a numbered step of the owner's batch is done, and when it is woken."""

    def __init__(self, log: SimLog, partition: int, done: Callable[[int], None], woken: Callable[[], None]) -> None:
        super().__init__(log, partition)
        self._waiter.close()
        self._done, self._woken = done, woken

    def wake(self) -> None:
        """As in `Seat`."""
        super().wake()
        self._woken()

    def fetch(self, commands_max: int, timeout_s: float) -> Fetched:
        """As in `Seat`, at once."""
        fetched = self._fetch(commands_max) or Fetched([], [])
        self._done(1)
        return fetched

    def commit(self, outputs: Sequence[Output], reports_next: int, commands_next: int) -> list[int]:
        """As in `Seat`."""
        self._done(6)
        offsets = super().commit(outputs, reports_next, commands_next)
        self._done(7)
        return offsets


class Bell:
    """Hears that something came into a partition, as a `threading.Event` would."""

    def __init__(self, rung: Callable[[], None]) -> None:
        self._rung = rung

    def set(self) -> None:
        """Something came."""
        self._rung()
