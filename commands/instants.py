"""The instants of a schedule: an interval, or a cron pattern in a time zone. Pure: the same release, the same answers.

Only what decides asks this module; what was decided stands in events, so that a replay under another time zone
database is the same. The zones are those of the package `tzdata`, a part of the release, whatever the machine has.

Instants are milliseconds since 1970 UTC, always whole seconds. The rules for clock changes are those of RFC 5545: a
local time that the clock jumps over counts by the offset before the jump (02:30 comes when it would have come), and
one that comes twice counts the first time. A pattern with hour `*` means every hour: it counts both times.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from commands.reasons import Refusal

# Imported where it is used: a submitter's command line reads tasks by the rules of `decide`, and installs no calendar.
if TYPE_CHECKING:
    from cronsim import CronSim

EVERY_MIN_MS: Final = 1_000
EVERY_MAX_MS: Final = 366 * 86_400_000
CRON_CHARS_MAX: Final = 200
_SPAN_MS: Final = 4 * 3_600_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_NO_SHIFT: Final = timedelta(0)
CALENDAR_ENDS_AT: Final = 253_402_041_600_000
"""9999-12-29 in UTC. What lies before it can be shown in every zone; there are no instants behind it."""


# ---- what may be asked for ----


def every_problem(every_ms: int) -> Refusal | None:
    """What is wrong with an interval, or None."""
    if every_ms < EVERY_MIN_MS:
        return Refusal("invalid_field", "an interval is at least one second", "/every")
    if every_ms > EVERY_MAX_MS or every_ms % 1_000:
        return Refusal("invalid_field", "an interval is whole seconds, at most 366 days", "/every")
    return None


def cron_problem(cron: str, zone: str | None) -> Refusal | None:
    """What is wrong with a cron pattern and its zone, or None. Refused: invalid_field, never_fires."""
    if zone is not None and zone not in zone_names():
        text = f"{zone[:100]!r} is no time zone: name one like Europe/Berlin, or UTC"
        return Refusal("invalid_field", text, "/zone")
    from cronsim import CronSim, CronSimError

    fields = cron.split()
    if len(fields) != 5 or len(cron) > CRON_CHARS_MAX:
        return Refusal("invalid_field", "a cron pattern is minute, hour, day, month and weekday: 30 2 * * *", "/cron")
    try:
        _pattern(" ".join([*fields[:3], "*", fields[4]]))
        CronSim(" ".join(["0", "0", "1", fields[3], "*"]), _EPOCH)
    except CronSimError as wrong:
        part = str(wrong).removeprefix("Bad ").lower()
        return Refusal("invalid_field", f"the {part} of the cron pattern {cron!r} cannot be read", "/cron")
    try:
        fires = next(copy(_pattern(cron)), None) is not None
    except CronSimError:
        fires = False
    return None if fires else Refusal("never_fires", f"no instant matches {cron!r}", "/cron")


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The names of all time zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


# ---- instants ----


def instants_after(every_ms: int | None, cron: str | None, zone: str | None, after: int) -> Iterator[int]:
    """The instants later than `after`, in order, without end (a cron pattern may come to its end)."""
    if every_ms is not None:
        first = after - after % every_ms + every_ms
        return iter(range(first, CALENDAR_ENDS_AT, every_ms))
    return _cron_after(cron or "", zone or "UTC", after)


def instants_within(
    every_ms: int | None, cron: str | None, zone: str | None, after: int, until: int, most: int
) -> Sequence[int]:
    """The instants later than `after` up to `until`; of a cron pattern the first `most`."""
    if every_ms is not None:
        return range(after - after % every_ms + every_ms, until + 1, every_ms)
    found = []
    for instant in islice(_cron_after(cron or "", zone or "UTC", after), most):
        if instant > until:
            break
        found.append(instant)
    return found


def local_text(instant: int, zone: str | None) -> str:
    """An instant as the clocks of the zone show it, with their offset: 2026-10-25T02:30:00+02:00."""
    return datetime.fromtimestamp(instant // 1_000, UTC).astimezone(_zone(zone or "UTC")).isoformat()


def _cron_after(cron: str, name: str, after: int) -> Iterator[int]:
    """Span after span, so that a thousand schedules with one pattern compute its instants once."""
    number: int | None = after // _SPAN_MS
    while number is not None:
        found = _within_span(cron, name, number)
        yield from found[bisect_right(found, after) :]
        number = found[-1] // _SPAN_MS if found and found[-1] // _SPAN_MS > number else None
        after = found[-1] if found else after


@lru_cache(maxsize=512)
def _within_span(cron: str, name: str, number: int) -> tuple[int, ...]:
    """The instants in a span of time, and the first one later than that, where there is one."""
    found, at, end = [], number * _SPAN_MS - 1, (number + 1) * _SPAN_MS
    while at < end and (following := _next(cron, name, at)) is not None:
        found.append(following)
        at = following
    return tuple(found)


def _next(cron: str, name: str, after: int) -> int | None:
    """The first instant later than `after`; None where the calendar ends before it."""
    try:
        return _found_after(cron, name, after)
    except OverflowError:
        return None


def _found_after(cron: str, name: str, after: int) -> int | None:
    """As `_next`. Raises OverflowError where a day would have to be looked at that no calendar has.

    Where no clock change is near, it is the next matching local time. Near one, the local times of a day are looked
    at until none that follows could come earlier.
    """
    every_hour = cron.split()[1] == "*"
    at = _EPOCH + timedelta(milliseconds=after)
    sim = copy(_pattern(cron))
    offsets = _offsets_near(name, at)
    sim.dt = (at + min(offsets)).replace(microsecond=0)
    best: datetime | None = None
    while (local := next(sim, None)) is not None:
        offsets = _offsets_near(name, local - offsets[0])
        if best is not None and local - max(offsets) >= best:
            break
        comes = [local - offsets[0]] if len(offsets) == 1 else _comes_at(_zone(name), local, every_hour)
        best = min((c for c in comes if c > at and (best is None or c < best)), default=best)
        if best is not None and len(_offsets_near(name, best)) == 1:
            break
    return None if best is None else round((best - _EPOCH).total_seconds()) * 1_000


def _comes_at(zone: ZoneInfo, local: datetime, every_hour: bool) -> list[datetime]:
    """When (UTC) a local time comes: once, or twice where the clock is put back and the pattern means every hour."""
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() or _NO_SHIFT for fold in (0, 1))
    return [local - first, local - second] if every_hour and second < first else [local - first]


def _offsets_near(name: str, at: datetime) -> tuple[timedelta, ...]:
    """The different offsets of the zone that matter around `at` (UTC): one, where no clock change is near."""
    found = _offsets_of_days(name, at.toordinal())
    return found if len(found) == 1 else _offsets_of_hours(name, at.toordinal(), at.hour)


@lru_cache(maxsize=16_384)
def _offsets_of_days(name: str, day: int) -> tuple[timedelta, ...]:
    """Those within two days of a day."""
    noon = datetime.fromordinal(day) + timedelta(hours=12)
    return _offsets_at(name, [noon + timedelta(days=days) for days in range(-2, 3)])


@lru_cache(maxsize=16_384)
def _offsets_of_hours(name: str, day: int, hour: int) -> tuple[timedelta, ...]:
    """Those of an hour, and of as much time around it as a clock change of these days moves local times, twice."""
    offsets = _offsets_of_days(name, day)
    reach = 2 * (max(offsets) - min(offsets)) + timedelta(hours=1)
    start = datetime.fromordinal(day) + timedelta(hours=hour)
    return _offsets_at(name, [start - reach, start, start + reach])


def _offsets_at(name: str, instants: list[datetime]) -> tuple[timedelta, ...]:
    zone = _zone(name)
    return tuple({at.replace(tzinfo=UTC).astimezone(zone).utcoffset() or _NO_SHIFT: None for at in instants})


@lru_cache(maxsize=4_096)
def _pattern(cron: str) -> "CronSim":
    """The pattern, read; copied for each use. Its times are local times without a zone. Raises CronSimError."""
    from cronsim import CronSim

    return CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001


@lru_cache(maxsize=1_024)
def _zone(name: str) -> ZoneInfo:
    place = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with place.open("rb") as data:
        return ZoneInfo.from_file(data, key=name)
