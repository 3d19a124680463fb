"""Percentiles of what was measured."""

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float, digits: int = 2) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], digits)
