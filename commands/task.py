"""An open task, small: a pool may hold a million that wait.

What hardly ever changes lies packed in one `bytes`; what only a task has that was given to a robot lies in an object
of its own. All of it reads like plain fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final

from commands.events import Deadlines, InstantDeadline, RunDeadline

if TYPE_CHECKING:
    from commands.state import Target, Terms

_ORIGIN: Final = Struct(">Qqq16s")
"""Sequence and log offset of its TaskSubmitted, base instant, digest; parts may follow."""
_SEQUENCE: Final = Struct(">Q")
_BASE, _BASE_START = Struct(">q"), 16
_PART: Final = Struct(">Bq")
"""What it is, and an instant or a time in ms."""
_ELIGIBLE: Final = 0
_EMPTY: Final = 1
_DEADLINES: Final = {
    (which, then): 8 * number + choice
    for number, which in enumerate(("start", "run", "end"), 1)
    for choice, then in enumerate(("alarm", "dead", "cancel"))
}
_DEADLINE_OF: Final = {code: key for key, code in _DEADLINES.items()}
_INSTANTS: Final = frozenset(code for (which, _), code in _DEADLINES.items() if which != "run")


@dataclass(slots=True)
class Attempt:
    """The current attempt of a task in ASSIGNED, RUNNING or LOST.

    `lease_sequence` is the sequence of its LeaseStarted or LeaseResumed, `counts_from` the start of the first window
    that counts, `missed` the number of windows missed in a row up to the one that began at `missed_at`.
    """

    robot: str
    assigned_at: int
    accept_by: int
    lease_ms: int
    stop_after_ms: int | None
    slot_cost: int
    started_at: int = 0
    lease_sequence: int = 0
    counts_from: int = 0
    missed: int = 0
    missed_at: int = 0
    cancel_requested: bool = False
    wait_until: int | None = None


@dataclass(slots=True)
class Saved:
    """The last checkpoint of a task: its number, the sequence and log offset of its event, when it was saved."""

    number: int
    sequence: int
    offset: int
    saved_at: int


Reported = dict[tuple[int, str], bool]
"""Reports that were taken, by (attempt, kind): whether each was late. So repeats are known."""


@dataclass(slots=True)
class Story:
    """What only tasks with a past have. `passed`: deadline -> what it did, "met" for a start that came in time."""

    last_robot: str | None = None
    last_end: str | None = None
    excluded: dict[str, int] = field(default_factory=dict)
    clearings: int = 0
    reported: Reported = field(default_factory=dict)
    checkpoint: Saved | None = None
    dead_reason: str | None = None
    done_twice: bool = False
    redrives: int = 0
    passed: dict[str, str] = field(default_factory=dict)


class _Past:
    """What a task has once it was given to a robot, or more than waited. `again_at`: the end of its back-off."""

    __slots__ = ("again_at", "current", "failures", "lost", "story")

    def __init__(self) -> None:
        self.failures = self.lost = self.again_at = 0
        self.current: Attempt | None = None
        self.story: Story | None = None


class Task:
    """An open task; `generation` counts queue entries so that old ones are known as stale."""

    __slots__ = ("_origin", "_past", "attempt", "generation", "id", "state", "target", "terms")

    def __init__(
        self,
        id: str,
        terms: "Terms",
        sequence: int,
        offset: int,
        digest: bytes,
        base_at: int,
        eligible_at: int,
        target: "Target | None" = None,
        state: str = "WAITING",
        attempt: int = 0,
        failures: int = 0,
        lost: int = 0,
        again_at: int = 0,
    ) -> None:
        self.id = id
        self.terms = terms
        self.target = target
        self.state = state
        self.attempt = attempt
        self.generation = 0
        self._past: _Past | None = None
        self._origin = _packed(sequence, offset, base_at, digest, eligible_at, None)
        if failures or lost or again_at:
            self.failures, self.lost, self.again_at = failures, lost, again_at

    # ---- where it comes from ----

    @property
    def sequence(self) -> int:
        """The sequence of its TaskSubmitted."""
        sequence: int = _SEQUENCE.unpack_from(self._origin)[0]
        return sequence

    @property
    def offset(self) -> int:
        """The log offset of its TaskSubmitted, -1 while it is not known."""
        offset: int = _ORIGIN.unpack_from(self._origin)[1]
        return offset

    @offset.setter
    def offset(self, offset: int) -> None:
        sequence, _, base_at, digest = _ORIGIN.unpack_from(self._origin)
        self._origin = _ORIGIN.pack(sequence, offset, base_at, digest) + self._origin[_ORIGIN.size :]

    @property
    def digest(self) -> bytes:
        """The first 16 bytes of the digest of what was submitted."""
        digest: bytes = _ORIGIN.unpack_from(self._origin)[3]
        return digest

    @property
    def base_at(self) -> int:
        """The instant of its submission or redrive."""
        base_at: int = _BASE.unpack_from(self._origin, _BASE_START)[0]
        return base_at

    @property
    def eligible_at(self) -> int:
        """The later of `base_at` and not-before."""
        for code, value in self._parts():
            if code == _ELIGIBLE:
                return value
        return self.base_at

    def begin_at(self, base_at: int, eligible_at: int) -> None:
        """Sets `base_at` and `eligible_at` (for `evolve` alone)."""
        sequence, offset, _, digest = _ORIGIN.unpack_from(self._origin)
        self._origin = _packed(sequence, offset, base_at, digest, eligible_at, self.deadlines)

    @property
    def deadlines(self) -> Deadlines | None:
        """Its deadlines, None where it has none."""
        found = None
        for code, value in self._parts():
            if code == _ELIGIBLE:
                continue
            found = found or Deadlines()
            if code != _EMPTY:
                which, then = _DEADLINE_OF[code]
                deadline = RunDeadline(ms=value, then=then) if which == "run" else InstantDeadline(at=value, then=then)  # type: ignore[arg-type]
                setattr(found, which, deadline)
        return found

    @deadlines.setter
    def deadlines(self, deadlines: Deadlines | None) -> None:
        sequence, offset, base_at, digest = _ORIGIN.unpack_from(self._origin)
        self._origin = _packed(sequence, offset, base_at, digest, self.eligible_at, deadlines)

    @property
    def first_deadline(self) -> int | None:
        """The earlier of the instants by which it is to start and to end."""
        return min(self.instants, default=None)

    @property
    def instants(self) -> list[int]:
        """The instants by which it is to start and to end."""
        return [value for code, value in self._parts() if code in _INSTANTS]

    def _parts(self) -> Sequence[tuple[int, int]]:
        origin = self._origin
        return () if len(origin) == _ORIGIN.size else [*_PART.iter_unpack(origin[_ORIGIN.size :])]

    # ---- what happened to it ----

    @property
    def untouched(self) -> bool:
        """Whether it only waited since it was submitted."""
        return self._past is None

    def _began(self) -> _Past:
        if self._past is None:
            self._past = _Past()
        return self._past

    @property
    def failures(self) -> int:
        """How many attempts failed."""
        return 0 if self._past is None else self._past.failures

    @failures.setter
    def failures(self, failures: int) -> None:
        if failures or self._past is not None:
            self._began().failures = failures

    @property
    def lost(self) -> int:
        """How many attempts were lost with their robot."""
        return 0 if self._past is None else self._past.lost

    @lost.setter
    def lost(self, lost: int) -> None:
        if lost or self._past is not None:
            self._began().lost = lost

    @property
    def again_at(self) -> int:
        """The end of its back-off."""
        return 0 if self._past is None else self._past.again_at

    @again_at.setter
    def again_at(self, again_at: int) -> None:
        if again_at or self._past is not None:
            self._began().again_at = again_at

    @property
    def current(self) -> Attempt | None:
        """Its attempt in ASSIGNED, RUNNING and LOST."""
        return None if self._past is None else self._past.current

    @current.setter
    def current(self, current: Attempt | None) -> None:
        if current is not None or self._past is not None:
            self._began().current = current

    @property
    def story(self) -> Story | None:
        """What only tasks with a past have."""
        return None if self._past is None else self._past.story

    @story.setter
    def story(self, story: Story | None) -> None:
        if story is not None or self._past is not None:
            self._began().story = story

    def told(self) -> Story:
        """The story, begun if there is none yet (for `evolve` alone)."""
        past = self._began()
        if past.story is None:
            past.story = Story()
        return past.story


def _packed(
    sequence: int, offset: int, base_at: int, digest: bytes, eligible_at: int, deadlines: Deadlines | None
) -> bytes:
    packed = _ORIGIN.pack(sequence, offset, base_at, digest)
    if eligible_at != base_at:
        packed += _PART.pack(_ELIGIBLE, eligible_at)
    if deadlines is None:
        return packed
    if deadlines.start is not None:
        packed += _PART.pack(_DEADLINES["start", deadlines.start.then], deadlines.start.at)
    if deadlines.run is not None:
        packed += _PART.pack(_DEADLINES["run", deadlines.run.then], deadlines.run.ms)
    if deadlines.end is not None:
        packed += _PART.pack(_DEADLINES["end", deadlines.end.then], deadlines.end.at)
    none = deadlines.start is None and deadlines.run is None and deadlines.end is None
    return packed + _PART.pack(_EMPTY, 0) if none else packed
