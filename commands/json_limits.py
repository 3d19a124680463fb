"""What JSON from outside may be: the same limits for payloads, results, checkpoints and whole requests.

Integers within 2^53-1, no NaN or Infinity, no NUL and no lone surrogate in strings, at most 64 levels. A breach is a
`Refusal` with a JSON pointer (RFC 6901) to the place.
"""

import json
import math
import re
from typing import Any, Final

from pydantic_core import from_json

from commands.reasons import Refusal
from commands.vocabulary import DEPTH_MAX, INTEGER_MAX

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NOT_JSON: Final = "this is not JSON in UTF-8"
_TOO_DEEP: Final = "nested too deeply"


def parse_json(raw: bytes, levels: int = DEPTH_MAX) -> tuple[Any, Refusal | None]:
    """The value of `raw` and None, or None and why it is refused. It may be `levels` deep."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError:
        return None, unreadable(raw)
    problem = limits_problem(value, levels=levels)
    return (None, problem) if problem else (value, None)


def unreadable(raw: bytes) -> Refusal:
    """Why the strict parser did not take `raw`: the breach with its place where one can be found, else malformed."""
    try:
        value = lenient(raw)
    except RecursionError:
        return Refusal("invalid_field", _TOO_DEEP, "")
    except ValueError as error:
        where = f" (line {error.lineno} column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        return Refusal("malformed_json", _NOT_JSON + where)
    return limits_problem(value) or Refusal("malformed_json", _NOT_JSON)


def lenient(raw: bytes) -> Any:
    """The value of `raw` where only a limit is broken: NaN and lone surrogates are read. Raises ValueError,
    RecursionError."""
    return json.loads(raw.decode())


def limits_problem(value: Any, pointer: str = "", levels: int = DEPTH_MAX) -> Refusal | None:
    """The first breach of the limits in `value`, which stands at `pointer` and may be `levels` deep, or None."""
    return None if _fits(value, levels) else _first_breach(value, pointer, levels)


def _fits(value: Any, levels: int) -> bool:
    """Whether `value` keeps the limits with `levels` levels left; the quick answer without a place."""
    if isinstance(value, str):
        return _string_problem(value) is None
    if isinstance(value, dict):
        return levels > 0 and all(_string_problem(k) is None and _fits(v, levels - 1) for k, v in value.items())
    if isinstance(value, list):
        return levels > 0 and all(_fits(item, levels - 1) for item in value)
    return _number_problem(value) is None


def _first_breach(value: Any, pointer: str, levels: int) -> Refusal | None:
    if isinstance(value, dict | list):
        if levels == 0:
            return Refusal("invalid_field", _TOO_DEEP, pointer)
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            problem = _string_problem(name) if isinstance(name, str) else None
            if problem:
                return Refusal("invalid_field", f"a name here has {problem}", pointer)
            breach = _first_breach(inner, f"{pointer}/{_escaped(name)}", levels - 1)
            if breach:
                return breach
        return None
    problem = _string_problem(value) if isinstance(value, str) else _number_problem(value)
    if problem is None:
        return None
    not_json = isinstance(value, float)
    return Refusal("malformed_json" if not_json else "invalid_field", f"the value has {problem}", pointer)


def _string_problem(text: str) -> str | None:
    if "\0" in text:
        return "a NUL character"
    return "a lone surrogate" if not text.isascii() and _SURROGATE.search(text) else None


def _number_problem(value: Any) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number that JSON does not know (NaN or Infinity)"
    too_big = isinstance(value, int) and not -INTEGER_MAX <= value <= INTEGER_MAX
    return "an integer beyond 2^53-1" if too_big else None


def _escaped(name: str | int) -> str:
    return str(name).replace("~", "~0").replace("/", "~1").encode("utf-8", "replace").decode()
