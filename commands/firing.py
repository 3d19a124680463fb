"""What time does with schedules: at a look it decides which instants become tasks and which are skipped.

A look takes every instant that is due and not yet handled, whatever the cause of a delay (an outage, a pause, an open
firing), and leaves them handled or asks for the next look. Instants are handled in order and never taken back, so none
fires twice; each leaves a task or is counted by a FiringsSkipped, so none is lost silently.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from commands import events as e
from commands.decide.schedules import CATCH_UP_MAX, firing
from commands.heartbeats import Step
from commands.instants import instants_after, instants_within
from commands.reasons import Refusal
from commands.schedules import Schedule, firing_id
from commands.state import PoolState
from commands.vocabulary import SkipReason

LATE_MS: Final = 60_000
"""With a catch-up of 0, an instant that has been due for longer does not become a task."""
TOLD_EVERY_MS: Final = 60_000
"""While a firing is open, what it makes the schedule skip is told at most so often."""
LOOKED_MAX: Final = 10_000
"""Instants of cron patterns that one tick of a pool goes through."""
LOOKS_MAX: Final = 1_000
"""Schedules that one tick looks at."""
LOOKED_MIN: Final = 2 * CATCH_UP_MAX
"""A look that could compute fewer waits for the next tick."""
_TOGETHER: Final = {"skip": 1, "queue_one": 2, "allow": CATCH_UP_MAX}
"""How many of the instants that a look finds may become tasks or wait, by overlap."""

Skip = tuple[SkipReason, Sequence[int]]


@dataclass(slots=True, frozen=True)
class Plan:
    """What becomes of the instants that are due, in their order: some are skipped, then some fire, then some wait."""

    skips: list[Skip]
    fires: Sequence[int]
    waits: Sequence[int]


def plan(row: Schedule, due: Sequence[int], is_open: bool, settled: int, more: bool = False) -> Plan:
    """What becomes of `due` at the instant `settled`; `is_open`: a firing of the schedule is.

    `more`: so many are due that only the first ones are in `due`; then none of them is among the latest.
    """
    passed = bisect_right(due, row.resumed_at)
    skips: list[Skip] = [("paused", due[:passed])]
    due = due[passed:]
    held = row.overlap != "allow" and is_open
    passed = len(due) if held else 0 if row.overlap == "allow" else bisect_right(due, row.free_at, key=row.due_at)
    during, after = due[:passed], due[passed:]
    most = 0 if more else min(max(1, row.catch_up), _TOGETHER[row.overlap])
    kept = after[max(0, len(after) - most) :]
    if not row.catch_up and kept and settled - row.due_at(kept[0]) > LATE_MS:
        kept = ()
    # The newest that came while another was open waits for its end, unless later ones were missed.
    waiting = during[-1:] if row.overlap == "queue_one" and len(after) == len(kept) < most else ()
    skips.append(("overlap", during[: len(during) - len(waiting)]))
    skips.append(("catch_up", after[: len(after) - len(kept)]))
    kept = (*waiting, *kept)
    now_fire = 0 if held else len(kept) if row.overlap == "allow" else 1
    return Plan([skip for skip in skips if skip[1]], kept[:now_fire], kept[now_fire:])


class Firings:
    """The looks of one tick of a pool: at most `firings_max` become tasks; what comes later waits for the next tick."""

    def __init__(self, state: PoolState, now: int, settled: int) -> None:
        self._state, self._now, self._settled = state, now, settled
        self._left = state.settings.firings_max
        self._looked_left = LOOKED_MAX
        self._looks_left = LOOKS_MAX

    def begin(self) -> Iterator[Step]:
        """Those that the tick before had no room for come first."""
        later = self._state.schedules.later
        for name in list(islice(later, LOOKED_MAX)):
            if self._is_over():
                return
            del later[name]
            yield from self.look(name)

    def timer(self, name: str, at: int) -> Iterator[Step]:
        """A timer of the schedule came."""
        row = self._state.schedules.rows.get(name)
        if row is not None:
            row.asked.discard(at)
            yield from self.look(name)

    def look(self, name: str) -> Iterator[Step]:
        """Every step that follows for a schedule now, and when to look again."""
        row = self._state.schedules.rows.get(name)
        if row is None or row.paused:
            return
        if self._is_over():
            self._state.schedules.later[name] = None
            return
        self._looks_left -= 1
        due, more = self._due(row)
        is_open = name in self._state.schedules.open
        found = plan(row, due, is_open, self._settled, more)
        if is_open and not more and row.overlap != "allow" and self._told_lately(row):
            # Not yet told: they are told with the next ones, or when the firing has ended.
            untold = [skip for skip in found.skips if skip[0] == "overlap"]
            found = Plan([skip for skip in found.skips if skip not in untold], found.fires, found.waits)
        else:
            untold = []
        for reason, instants in found.skips:
            yield _skipped(row, reason, instants), []
        fires = found.fires[: self._left]
        for instant in fires:
            yield self._fired(row, instant), []
        self._left -= len(fires)
        if more or len(fires) < len(found.fires):
            self._state.schedules.later[name] = None
        else:
            self._ask(row, due[-1] if due else row.handled_at, bool(untold))

    def end(self) -> None:
        """The tick is over: where somebody waits for the next one, it comes at once."""
        if self._state.schedules.later:
            self._state.timers.push(self._settled, "schedule", "")

    def _is_over(self) -> bool:
        return not self._left or not self._looks_left or self._looked_left < LOOKED_MIN

    def _due(self, row: Schedule) -> tuple[Sequence[int], bool]:
        """The instants that are due and not handled, and whether there are more than may be looked at in this tick."""
        most = self._looked_left
        due = instants_within(row.every_ms, row.cron, row.zone, row.handled_at, self._settled, most)
        if row.every_ms is None:
            self._looked_left -= len(due) + 1
            if len(due) == most:
                return due[:-CATCH_UP_MAX], True
        while due and row.due_at(due[-1]) > self._settled:
            due = due[:-1]
        return due, False

    def _told_lately(self, row: Schedule) -> bool:
        return row.skipped is not None and self._now - row.skipped.at < TOLD_EVERY_MS

    def _fired(self, row: Schedule, instant: int) -> e.Event:
        task_id = firing_id(row.name, instant)
        if task_id in self._state.tasks or task_id in self._state.ended:
            return _skipped(row, "overlap", (instant,))  # somebody fired it by hand in that very second
        event = firing(self._state, row, instant, self._now)
        return _skipped(row, "queue_full", (instant,)) if isinstance(event, Refusal) else event

    def _ask(self, row: Schedule, after: int, untold: bool) -> None:
        """Looks again when the next instant is due, or what is untold may be told; the end of a firing asks, too."""
        following = next(instants_after(row.every_ms, row.cron, row.zone, after), None)
        at = None if following is None else row.due_at(following)
        if untold and row.skipped is not None:
            at = row.skipped.at + TOLD_EVERY_MS
        if at is not None:
            self._state.schedules.ask(row, max(at, self._settled + 1), self._state.timers)


def _skipped(row: Schedule, reason: SkipReason, instants: Sequence[int]) -> e.FiringsSkipped:
    return e.FiringsSkipped(schedule=row.name, first=instants[0], last=instants[-1], count=len(instants), reason=reason)
