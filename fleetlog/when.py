"""Instants and spans of time as people write them: `2026-11-30T09:15:00Z`, `15s`, `2h`, `1d`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from fleetlog.problems import wrong_usage

_SPAN: Final = re.compile(r"\+?(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\Z")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def span_s(text: str) -> float | None:
    """The seconds of `15s`, `2h`; None where `text` is no span."""
    match = _SPAN.match(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else None


def instant(text: str, option: str, *, back: bool = False) -> str:
    """RFC 3339 of an instant, or of a span from now on (`back`: before now). Raises Problem."""
    span = span_s(text)
    try:
        at = _said(text) if span is None else datetime.now(UTC) + timedelta(seconds=-span if back else span)
    except OverflowError:
        raise wrong_usage(f"{option} {text!r} lies outside the years 1 to 9999: write a nearer instant.") from None
    if at is None:
        raise wrong_usage(f"{option} {text!r} is no instant: write 2026-11-30T09:15:00Z, or a span like 15s, 2h, 1d.")
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _said(text: str) -> datetime | None:
    """An instant with a zone, in UTC; None where `text` is none. Raises OverflowError."""
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if said.tzinfo is None else said.astimezone(UTC)


def clock(ms: int) -> str:
    """An instant of the log (ms since 1970) as local time of day."""
    at = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    return f"{at:%H:%M:%S}.{ms % 1000:03d}"


def clock_of(text: str) -> str:
    """An instant in RFC 3339 as local time of day, in minutes."""
    return f"{datetime.fromisoformat(text).astimezone():%H:%M}"


def rfc3339(ms: int) -> str:
    """An instant of the log as RFC 3339 in UTC."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
