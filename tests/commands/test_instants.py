"""The instants of schedules: over clock changes both ways, in order, without end; and what is no schedule at all."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.instants import cron_problem, every_problem, instants_after, instants_within, local_text, zone_names

Match = Callable[[datetime], bool]
PATTERNS: dict[str, Match] = {
    "30 2 * * *": lambda t: (t.hour, t.minute) == (2, 30),
    "15 2 * * *": lambda t: (t.hour, t.minute) == (2, 15),
    "0,45 1-3 * * *": lambda t: t.hour in (1, 2, 3) and t.minute in (0, 45),
    "*/20 2 * * *": lambda t: t.hour == 2 and t.minute % 20 == 0,
    "0 */2 * * *": lambda t: t.hour % 2 == 0 and t.minute == 0,
    "0 0 * * *": lambda t: (t.hour, t.minute) == (0, 0),
    "50 23 * * 6": lambda t: (t.hour, t.minute, t.isoweekday()) == (23, 50, 6),
    "40 * * * *": lambda t: t.minute == 40,
    "*/15 * * * *": lambda t: t.minute % 15 == 0,
    "* * * * *": lambda t: True,
}
# Days on which clocks are put forward and back, by zone; some change at midnight, some by half an hour.
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),
    "Africa/Casablanca": ("2026-03-22", "2026-02-15"),
    "Europe/Dublin": ("2026-03-29", "2026-10-25"),
    "UTC": ("2026-03-29", "2026-10-25"),
}


def ms(text: str) -> int:
    """An instant in RFC 3339."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def naive(pattern: str, zone: str, first: datetime, days: int) -> list[int]:
    """Every local minute of some days, matched, by the rules of RFC 5545; with hour `*` twice where it comes twice."""
    found = set()
    for minute in range(days * 1440):
        local = first + timedelta(minutes=minute)
        if PATTERNS[pattern](local):
            folds = (0, 1) if pattern.split()[1] == "*" else (0,)
            comes = [local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in folds]
            is_gap = comes[0].astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local
            found |= {round(at.timestamp() * 1000) for at in (comes[:1] if is_gap else comes)}
    return sorted(found)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("zone", CHANGES)
def test_clock_changes(pattern: str, zone: str) -> None:
    """Three days around each change: the same instants as a walk over every local minute, each once, in order."""
    for day in CHANGES[zone]:
        first = datetime.fromisoformat(day) - timedelta(days=1)
        expected = naive(pattern, zone, first, 3)
        start = expected[0] - 1
        assert list(islice(instants_after(None, pattern, zone, start), len(expected))) == expected
        # Asked from any instant in between (of many, some), the next one is the same.
        for earlier, later in list(pairwise(expected))[:: 1 + len(expected) // 60]:
            assert next(instants_after(None, pattern, zone, earlier)) == later
            assert next(instants_after(None, pattern, zone, later - 1)) == later


@pytest.mark.parametrize(
    ("pattern", "zone", "start", "expected"),
    [
        # Berlin, spring: 02:30 comes when it would have come, and is then called 03:30.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-29T03:30:00+02:00", "03-30T02:30:00+02:00"]),
        # Berlin, autumn: 02:30 comes twice and fires once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["10-25T02:30:00+02:00", "10-26T02:30:00+01:00"]),
        # Every hour means every hour, the one that comes twice, too.
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", ["10-25T02:00:00+01:00", "10-25T03:00:00+01:00"]),
        ("0 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["03-29T03:00:00+02:00", "03-29T04:00:00+02:00"]),
        # Lord Howe Island moves its clocks by half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", ["10-04T02:45:00+11:00", "10-05T02:15:00+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00Z", ["04-05T01:45:00+11:00", "04-06T01:45:00+10:30"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00Z", ["03-08T03:30:00-04:00", "03-09T02:30:00-04:00"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00Z", ["11-01T01:30:00-04:00", "11-02T01:30:00-05:00"]),
    ],
)
def test_worked_examples(pattern: str, zone: str, start: str, expected: list[str]) -> None:
    """What a person expects to read."""
    found = [local_text(at, zone) for at in islice(instants_after(None, pattern, zone, ms(start)), 2)]
    assert found == [f"2026-{text}" for text in expected]


def test_a_day_that_never_was() -> None:
    """Samoa had no 30 December 2011: its noon is that of the 31st, and fires once."""
    found = [local_text(at, "Pacific/Apia") for at in islice(
        instants_after(None, "0 12 * * *", "Pacific/Apia", ms("2011-12-29T12:00Z")), 3
    )]  # fmt: skip
    assert found == ["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00", "2012-01-01T12:00:00+14:00"]


def test_an_interval_knows_no_clock_change() -> None:
    """Multiples of the interval since 1970: the same whenever it was set, and whatever the clocks show."""
    start = ms("2026-03-29T00:00:30Z")
    found = list(islice(instants_after(900_000, None, None, start), 8))
    assert [later - earlier for earlier, later in pairwise(found)] == [900_000] * 7
    assert found[0] == ms("2026-03-29T00:15Z")
    assert list(islice(instants_after(900_000, None, None, start + 100_000), 8)) == found


@given(st.integers(1, 10**7), st.integers(0, 2**41), st.integers(0, 10**8))
def test_instants_within_an_interval_are_counted_without_a_walk(every_s: int, after: int, span: int) -> None:
    """However many: a range, with the instants that a walk would find."""
    found = instants_within(every_s * 1000, None, None, after, after + span, 10)
    assert isinstance(found, range)
    walk = instants_after(every_s * 1000, None, None, after)
    assert list(found[:20]) == [at for at in islice(walk, 20) if at <= after + span]


def test_instants_within_a_pattern() -> None:
    """Up to and with the end, the first so many."""
    start, end = ms("2026-06-01T00:00Z"), ms("2026-06-01T01:00Z")
    assert list(instants_within(None, "*/20 * * * *", "UTC", start, end, 10)) == [
        ms(f"2026-06-01T{text}Z") for text in ("00:20", "00:40", "01:00")
    ]
    assert len(instants_within(None, "* * * * *", None, start, end, 7)) == 7
    assert list(instants_within(None, "0 0 1 1 *", None, start, end, 7)) == []


@pytest.mark.parametrize(
    ("cron", "zone", "reason", "field", "says"),
    [
        ("61 * * * *", None, "invalid_field", "/cron", "minute"),
        ("* 24 * * *", None, "invalid_field", "/cron", "hour"),
        ("* * 32 * *", None, "invalid_field", "/cron", "day-of-month"),
        ("* * * 13 *", None, "invalid_field", "/cron", "month"),
        ("* * * * 9", None, "invalid_field", "/cron", "day-of-week"),
        ("* * * *", None, "invalid_field", "/cron", "minute, hour, day, month and weekday"),
        ("0 * * * * *", None, "invalid_field", "/cron", "minute, hour, day, month and weekday"),
        ("@hourly", None, "invalid_field", "/cron", "minute, hour, day, month and weekday"),
        ("", None, "invalid_field", "/cron", "minute, hour"),
        ("*/0 * * * *", None, "invalid_field", "/cron", "minute"),
        ("2-1 * * * *", None, "invalid_field", "/cron", "minute"),
        ("x * * * *", None, "invalid_field", "/cron", "minute"),
        ("0 0 30 2 *", None, "never_fires", "/cron", "no instant"),
        ("0 0 31 4,6 *", None, "never_fires", "/cron", "no instant"),
        ("0 0 */20 * 1L", None, "never_fires", "/cron", "no instant"),
        ("0 0 * * *", "Europe/Bremen", "invalid_field", "/zone", "Europe/Bremen"),
        ("0 0 * * *", "../../etc/passwd", "invalid_field", "/zone", "time zone"),
        ("0 0 * * *", "", "invalid_field", "/zone", "time zone"),
        ("0 0 1 1 *" + " " * 200, None, "invalid_field", "/cron", "minute"),
    ],
)
def test_what_is_no_schedule(cron: str, zone: str | None, reason: str, field: str, says: str) -> None:
    """Refused with the field and what is wrong with it."""
    problem = cron_problem(cron, zone)
    assert problem is not None
    assert (problem.reason, problem.field) == (reason, field)
    assert says in problem.text


@pytest.mark.parametrize(
    "cron", ["0 0 29 2 *", "0 9-17/2 * jan-mar mon-fri", "0 0 l * *", "*/5 * * * *", "0 0 * * 5#3"]
)
def test_what_is_one(cron: str) -> None:
    """Names, steps, ranges, the last day of a month, the third Friday; leap days."""
    assert cron_problem(cron, "Asia/Kathmandu") is None
    assert next(instants_after(None, cron, "Asia/Kathmandu", ms("2026-06-01T00:00Z"))) % 60_000 == 0


def test_intervals() -> None:
    """Whole seconds, one at least, 366 days at most."""
    assert [every_problem(ms) is None for ms in (0, -1, 999, 1_000, 1_500, 366 * 86_400_000, 367 * 86_400_000)] == [
        False, False, False, True, False, True, False,
    ]  # fmt: skip


def test_every_zone_can_be_read() -> None:
    """All names that are accepted lead to instants."""
    start = ms("2026-06-01T00:00Z")
    assert len(zone_names()) > 500
    for zone in zone_names():
        assert next(instants_after(None, "0 12 * * *", zone, start)) - start <= 86_400_000
