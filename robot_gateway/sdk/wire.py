"""JSON as the robot protocol wants it, and the clock that own deadlines run by."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from robot_gateway.sdk.errors import NotJson

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode_json(value: Any) -> bytes:
    """`value` as JSON in UTF-8; raises NotJson where JSON has no such value (NaN, a date, a lone surrogate)."""
    try:
        return _ENCODE(value).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise NotJson(f"not a JSON value: {problem}") from None


def with_field(message: bytes, name: str, value: bytes) -> bytes:
    """The JSON object `message` with one more field whose value is already encoded."""
    return b'%b,"%b":%b}' % (message[:-1], name.encode(), value)


def numbered(message: bytes, epoch: int, seq: int) -> bytes:
    """The robot message as it goes out in this epoch under this number."""
    return b'{"epoch":%d,"seq":%d,%b' % (epoch, seq, message[1:])


def shortened(text: str, chars_max: int) -> str:
    """`text`, cut so that it fits, without lone surrogates."""
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + "…"


def boot_seconds() -> float:
    """Seconds by the clock that goes on while the machine sleeps: a lease does not wait for a lid to be opened."""
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
