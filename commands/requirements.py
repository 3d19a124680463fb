"""What a robot must have to run a task: names, `name=value`, and comparisons such as `gpu_mem>=16`.

A capability is a name, or `name=value`. `name` is met by either; `name=value` by exactly that; a comparison by a
capability of that name whose value is a number that compares so. `kind:NAME` is met by a robot that names this kind
among its capabilities, or no kind at all: a robot that says which kinds it can run is given no other.
"""

import re
from typing import Final

_CONDITION: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._:-]*)(?:(>=|<=|=|>|<)(.+))?\Z", re.DOTALL)

KIND_PREFIX: Final = "kind:"

Abilities = dict[str, str | None]
"""A robot's capabilities by name; the value is None where it has none."""


def kind_condition(kind: str) -> str:
    """The condition that a robot takes tasks of this kind."""
    return KIND_PREFIX + kind


def condition_problem(text: str) -> str | None:
    """Why `text` is no condition, or None."""
    match = _CONDITION.match(text)
    if match is None:
        return f"{text!r} is not a name, name=value or comparison such as gpu_mem>=16"
    if match[2] and match[2] != "=" and _number(match[3]) is None:
        return f"{text!r} compares with something that is not a number"
    return None


def capability_problem(text: str) -> str | None:
    """Why `text` is no capability, or None."""
    match = _CONDITION.match(text)
    if match is None or match[2] not in (None, "="):
        return f"{text!r} cannot be a capability: write a name or name=value, such as gpu or gpu_mem=24"
    return None


def abilities_of(capabilities: list[str] | tuple[str, ...]) -> Abilities:
    """Capabilities by name."""
    parts = (text.partition("=") for text in capabilities)
    return {name: value if equals else None for name, equals, value in parts}


def missing(requirement: tuple[str, ...], abilities: Abilities) -> list[str]:
    """The conditions of `requirement` that `abilities` do not meet, in order."""
    return [text for text in requirement if not _meets(text, abilities)]


def meets(requirement: tuple[str, ...], abilities: Abilities) -> bool:
    """Whether every condition is met."""
    return all(_meets(text, abilities) for text in requirement)


def _meets(text: str, abilities: Abilities) -> bool:
    if text.startswith(KIND_PREFIX):
        return text in abilities or not any(name.startswith(KIND_PREFIX) for name in abilities)
    match = _CONDITION.match(text)
    if match is None or match[1] not in abilities:
        return False
    comparison, wanted, has = match[2], match[3], abilities[match[1]]
    if comparison is None:
        return True
    if comparison == "=":
        return has == wanted
    left, right = _number(has), _number(wanted)
    if left is None or right is None:
        return False
    return {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}[comparison]


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
