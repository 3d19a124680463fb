"""Units of HTTP and of the log: seconds and RFC 3339 outside, integer milliseconds inside. Both ways, one place.

Going out, a name that ends in `_ms` becomes one that ends in `_s`, and instants become strings; bodies that people
gave (payload, result, labels, ...) are passed on untouched.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from commands.vocabulary import INTEGER_MAX

MS: Final = 1000
_DURATION_S_MAX: Final = INTEGER_MAX // MS
_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""
_INSTANT_ENDS: Final = ("_at", "_until", "_by")
_INSTANTS: Final = frozenset(
    {"at", "until", "not_before", "not_again_before", "counts_from", "from", "deadline", "instant"}
)
_NO_INSTANTS: Final = frozenset({"caused_by", "completed_by", "by"})
_UNTOUCHED: Final = frozenset(
    {"payload", "result", "checkpoint", "value", "labels", "detail", "json"}
    | {"attempts", "counts", "deadlines_passed", "lacks", "robots"}
)
"""What people gave, and objects whose names are ids."""
_RENAMED: Final = {"passing": "pass"}


def to_ms(seconds: float) -> int:
    """Whole milliseconds."""
    return round(seconds * MS)


def to_seconds(ms: float) -> float | int:
    """Seconds; whole ones without a fraction."""
    return ms // MS if ms % MS == 0 else ms / MS


def instant_text(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds, like 2026-11-30T09:15:00.250Z; beyond the year 9999 the last instant of it."""
    seconds, rest = divmod(ms, MS)
    return f"{_seconds_text(seconds)}.{rest:03d}Z" if seconds <= _LAST_SECOND else "9999-12-31T23:59:59.999Z"


@lru_cache(maxsize=4096)
def _seconds_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def instant_ms(text: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 instant with a zone; raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or "T" not in text.upper():
        raise ValueError("an instant is written like 2026-11-30T09:15:00Z, with a zone") from None
    ms = round(at.timestamp() * MS)
    if not 0 <= ms <= INTEGER_MAX:
        raise ValueError("the instant lies before 1970")
    return ms


def to_http(card: Mapping[str, Any]) -> dict[str, Any]:
    """A resource or an answer in HTTP units."""
    shown: dict[str, Any] = {}
    for name, value in card.items():
        outside, change = _way_out(name)
        shown[outside] = change(value)
    return shown


def name_outside(name: str) -> str:
    """The name of a card's field in HTTP."""
    return _way_out(name)[0]


@lru_cache(maxsize=1024)
def _way_out(name: str) -> tuple[str, Callable[[Any], Any]]:
    """The name outside, and what becomes of the value."""
    if name in _UNTOUCHED:
        return name, _same
    if name in _SPECIAL:
        return name, _SPECIAL[name]
    if name in _INSTANTS or (name.endswith(_INSTANT_ENDS) and name not in _NO_INSTANTS):
        return name, _instant_of
    if name == "ms" or name.endswith("_ms"):
        return name[:-2] + "s", _seconds_of
    return _RENAMED.get(name, name), _inner


def _same(value: Any) -> Any:
    return value


def _instant_of(value: Any) -> Any:
    return instant_text(value) if type(value) is int else _inner(value)


def _inner(value: Any) -> Any:
    if type(value) is dict:
        return to_http(value)
    if type(value) is list:
        return [to_http(item) if type(item) is dict else item for item in value]
    return value


def _seconds_of(value: Any) -> Any:
    return to_seconds(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _excluded(by_robot: Any) -> Any:
    return {robot: instant_text(until) for robot, until in by_robot.items()}


def _missed(pair: Any) -> Any:
    return {"windows": pair[0], "last_window_at": instant_text(pair[1])} if isinstance(pair, list) else pair


def _holds(held: Any) -> Any:
    return _inner(held) if isinstance(held, list) else held


def _checkpoints(saved: Any) -> Any:
    return [{"number": number, "attempt": attempt, "saved_at": instant_text(at)} for number, attempt, at in saved]


def _last_skipped(skipped: Any) -> Any:
    return to_http(skipped) | {name: instant_text(skipped[name]) for name in ("first", "last")}


def _said(body: Any) -> Any:
    """A text that the log keeps as a body: its JSON, where it is not sealed."""
    return body["json"] if isinstance(body, dict) and body.keys() == {"json"} else body


_SPECIAL: Final[dict[str, Callable[[Any], Any]]] = {
    "excluded": _excluded,
    "holds": _holds,
    "missed": _missed,
    "checkpoints": _checkpoints,
    "last_skipped": _last_skipped,
    "note": _said,
    "text": _said,
    "message": _said,
}


# ---- pool settings ----

SETTINGS_S: Final = {
    "window_s": "window_ms",
    "lease_s": "lease_ms",
    "accept_s": "accept_ms",
    "ageing_s": "ageing_ms",
    "backoff_first_s": "backoff_first_ms",
    "backoff_max_s": "backoff_max_ms",
    "wait_s": "wait_ms",
    "excluded_s": "excluded_ms",
}
"""Settings that are durations: name outside -> name in the log."""


def settings_in(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Pool settings by their names in the log. What the log does not know keeps its name and is refused by it."""
    into: dict[str, Any] = {}
    for name, value in asked.items():
        if name in SETTINGS_S:
            into[SETTINGS_S[name]] = _duration_in(value)
        else:
            into["passing" if name == "pass" else name] = value
    return into


def _duration_in(seconds: Any) -> Any:
    """Whole milliseconds, as many as can be counted; what is no number stays as it is and is refused by the log."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        return seconds
    return to_ms(max(-_DURATION_S_MAX, min(seconds, _DURATION_S_MAX)))


_FIELDS: Final = {"lease": "lease_s", "accept": "accept_s", "passing": "pass", "every": "every_s", "jitter": "jitter_s"}


def field_outside(field: str | None) -> str | None:
    """The JSON pointer outside for one that an owner gave."""
    if field is None:
        return None
    head, slash, name = field.rpartition("/")
    return f"{head}{slash}{_FIELDS.get(name, name)}"


def setting_outside(name: str) -> str:
    """The name outside of a setting of the log."""
    return next((outside for outside, inside in SETTINGS_S.items() if inside == name), _RENAMED.get(name, name))
