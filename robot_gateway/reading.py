"""Reads one robot message strictly and says what is wrong with it: reason word and JSON pointer."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from commands.json_limits import lenient, limits_problem, parse_json, unreadable
from commands.messages import BODY_BYTES_MAX, FromRobot, decode_robot_message
from commands.reasons import Refusal
from commands.vocabulary import DEPTH_MAX
from robot_gateway.wording import plain

DETAIL_BYTES_MAX: Final = 16 * 1024
_GROWTH_MAX: Final = 4
"""How much longer JSON is when it is stored, at most: 1e15 becomes 1000000000000000.0."""
_SUSPECT_BRACKETS: Final = 64
_LEVELS_AROUND: Final = 4
"""A body lies at most so deep inside a message."""
_BODIES: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "checkpoint": (("value",), BODY_BYTES_MAX),
    "complete": (("result",), BODY_BYTES_MAX),
    "fail": (("error", "detail"), DETAIL_BYTES_MAX),
    "stopped": (("checkpoint", "value"), BODY_BYTES_MAX),
}
"""Message type -> where it may hold any JSON, and how many bytes of it."""


def read_message(raw: bytes) -> tuple[Any, Refusal | None]:
    """The message in `raw` and None, or None and why it is refused. Unknown fields are ignored."""
    if b"\\u0000" in raw or raw.count(b"[") + raw.count(b"{") > _SUSPECT_BRACKETS:
        _, breach = parse_json(raw, DEPTH_MAX + _LEVELS_AROUND)
        if breach:
            return None, breach
    try:
        message = decode_robot_message(raw)
    except ValidationError as error:
        return None, _what_is_wrong(raw, error)
    problem = _body_problem(message, len(raw)) or _form_problem(message) or _value_problem(message, raw)
    return (None, problem) if problem else (message, None)


def id_in(raw: bytes) -> str | None:
    """The id of a message that is refused, where it can be read; a breach elsewhere in the message does not hide it."""
    try:
        found = lenient(raw).get("id")
    except (ValueError, AttributeError, RecursionError):
        return None
    fits = isinstance(found, str) and 0 < len(found) <= 64 and limits_problem(found) is None
    return found if fits else None


def _what_is_wrong(raw: bytes, error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return unreadable(raw)
    if kind == "union_tag_invalid":
        return Refusal("unknown_type", "this version does not know that type of message", "/type")
    if kind == "union_tag_not_found":
        return Refusal("invalid_field", "a message has a type", "/type")
    if not first["loc"]:
        return Refusal("malformed_json", "a message is one JSON object")
    return Refusal("invalid_field", plain(first), pointer(first["loc"][1:]))


def pointer(place: Sequence[str | int]) -> str:
    """The JSON pointer of a place in pydantic's words."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in place)


def _body_problem(message: FromRobot, size: int) -> Refusal | None:
    """Bodies hold any JSON within the limits, measured as they are stored; `size` is that of the whole message as it
    came, so that small ones need not be."""
    place, bytes_max = _BODIES.get(message.type, ((), 0))
    body: Any = message if place else None
    for name in place:
        body = getattr(body, name, None)
    if body is None:
        return None
    problem = limits_problem(body, pointer(place))
    if problem is None and size * _GROWTH_MAX > bytes_max and len(to_json(body)) > bytes_max:
        return Refusal("too_large", f"at most {bytes_max} bytes", pointer(place))
    return problem


def _value_problem(message: Any, raw: bytes) -> Refusal | None:
    """A checkpoint may be null, but it must be there; once read, the two look alike."""
    if message.type == "checkpoint" and message.value is None and "value" not in from_json(raw):
        return Refusal("invalid_field", "this is needed", "/value")
    inner = message.checkpoint if message.type == "stopped" else None
    if inner is not None and inner.value is None and "value" not in from_json(raw)["checkpoint"]:
        return Refusal("invalid_field", "this is needed", "/checkpoint/value")
    return None


def _form_problem(message: Any) -> Refusal | None:
    """What the types alone do not say: epoch and seq after hello, and at least one change in an update."""
    if message.type == "hello":
        return None
    if message.epoch is None:
        return Refusal("invalid_field", "every message after hello has the epoch of the session", "/epoch")
    if message.seq is None:
        return Refusal("invalid_field", "every message after hello has a number in its epoch", "/seq")
    if message.type == "update" and message.slots is None and message.capabilities is None:
        return Refusal("invalid_field", "an update has slots or capabilities", "/slots")
    return None
