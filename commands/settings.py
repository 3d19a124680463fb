"""Pool settings: they live in the log, because what decides must be replayable. Durations are milliseconds."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from commands.reasons import Refusal

FORMAT: Final = 1
"""The newest pool format that this software can write."""


@dataclass(slots=True, kw_only=True)
class PoolSettings:
    """All settings of a pool with their defaults."""

    window_ms: int = 5_000
    lease_ms: int = 15_000
    accept_ms: int = 5_000
    ageing_ms: int = 60_000
    failures_max: int = 3
    backoff_first_ms: int = 1_000
    backoff_factor: float = 2.0
    backoff_max_ms: int = 300_000
    lost_max: int = 5
    on_lost: str = "requeue"
    wait_ms: int = 60_000
    late: str = "accept"
    passing: str = "higher"
    excluded_ms: int = 600_000
    lapses_max: int = 3
    rejects_max: int = 10
    supersessions_per_minute: int = 5
    expiry_held_min: int = 20
    expiry_held_share: float = 0.5
    queue_max: int = 1_000_000
    lanes_max: int = 1_024
    firings_max: int = 100
    remember_days: float = 7.0
    remember_max: int = 5_000_000

    def as_json(self) -> dict[str, Any]:
        """Name -> value, as `PoolCreated` stores it."""
        return asdict(self)


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "window_ms": (500, 60_000),
    "lease_ms": (1_500, 86_400_000),
    "accept_ms": (500, 600_000),
    "ageing_ms": (1_000, 86_400_000),
    "failures_max": (1, 100),
    "backoff_first_ms": (0, 86_400_000),
    "backoff_factor": (1, 100),
    "backoff_max_ms": (0, 86_400_000),
    "lost_max": (1, 100),
    "wait_ms": (0, 86_400_000),
    "excluded_ms": (0, 86_400_000),
    "lapses_max": (1, 1000),
    "rejects_max": (1, 1000),
    "supersessions_per_minute": (1, 1000),
    "expiry_held_min": (0, 1_000_000),
    "expiry_held_share": (0, 1),
    "queue_max": (1, 100_000_000),
    "lanes_max": (1, 100_000),
    "firings_max": (1, 10_000),
    "remember_days": (0.01, 3650),
    "remember_max": (1, 100_000_000),
}
_CHOICES: Final[dict[str, frozenset[str]]] = {
    "on_lost": frozenset({"requeue", "wait", "ask", "never"}),
    "late": frozenset({"accept", "record"}),
    "passing": frozenset({"higher", "all"}),
}
SETTING_NAMES: Final = tuple(f.name for f in fields(PoolSettings))


def settings_problem(changed: dict[str, Any], base: PoolSettings) -> Refusal | None:
    """Why `changed` may not be laid over `base`, or None."""
    for name, value in changed.items():
        if name not in SETTING_NAMES:
            return Refusal("unknown_field", f"there is no pool setting {name}", f"/settings/{name}")
        problem = _value_problem(name, value)
        if problem:
            return Refusal("invalid_field", f"{name}: {problem}", f"/settings/{name}")
    merged = base.as_json() | changed
    if 60_000 % merged["window_ms"]:
        return Refusal("impossible_settings", "window_s must divide 60 s without a rest", "/settings/window_ms")
    if merged["lease_ms"] < 3 * merged["window_ms"]:
        return Refusal("impossible_settings", "lease_s must be at least three windows", "/settings/lease_ms")
    return None


def _value_problem(name: str, value: Any) -> str | None:
    if name in _CHOICES:
        fine = isinstance(value, str) and value in _CHOICES[name]
        return None if fine else f"must be one of {', '.join(sorted(_CHOICES[name]))}"
    whole, duration = isinstance(getattr(PoolSettings(), name), int), name.endswith("_ms")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return "must be a duration" if duration else "must be a whole number" if whole else "must be a number"
    low, high = _RANGES[name]
    if low <= value <= high:
        return None
    return f"must lie between {_shown(low, duration)} and {_shown(high, duration)}"


def _shown(bound: float, duration: bool) -> str:
    """Durations in seconds, as people set them."""
    return f"{bound / 1000:g} s" if duration else f"{bound:g}"
