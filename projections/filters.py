"""The filter language of lists, bulk work and streams: `state=DEAD kind=weld* label.line=3 older=2h priority>=7`.

Parts are joined by and. A part is FIELD OPERATOR VALUE; a value with spaces stands in double quotes. Texts know `=`
and `!=`, with `*` for any characters; numbers and ages know `= != < <= > >=` (`older=2h`: two hours or more); flags
are `true` or `false`. What a field means depends on what is listed: tasks, robots or events.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, Literal, get_args

from commands.reasons import Refusal
from commands.vocabulary import RobotState, TaskState

Card = Mapping[str, Any]
Subject = Literal["task", "robot", "event"]
Test = Callable[[Card, int], bool]

FILTER_CHARS_MAX: Final = 2_000
PARTS_MAX: Final = 32

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    ">=": ge,
    "<=": le,
    ">": gt,
    "<": lt,
}
_PART: Final = re.compile(r'([A-Za-z_][^\s=<>!"]*)(>=|<=|!=|=|<|>)("[^"]*"|[^\s"]*)(?=\s|\Z)')
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_AGE_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: what it is, where a card has it, and the words it may be (all if none are named)."""

    what: Literal["text", "number", "age", "flag"]
    value: Callable[[Card], Any]
    words: tuple[str, ...] = ()


def _text(name: str) -> Field:
    return Field("text", lambda card: card.get(name))


def _inside(outer: str, name: str) -> Field:
    return Field("text", lambda card: card.get(outer, {}).get(name))


def _task_of(event: Card) -> Any:
    """The task that an event is about; a schedule's event holds a submission there."""
    task = event.get("task")
    return task if isinstance(task, str) else None


def _schedule_of(event: Card) -> Any:
    """The schedule that an event is about, or that its task comes from."""
    schedule = event.get("schedule")
    return schedule.get("id") if isinstance(schedule, Mapping) else schedule


def _number(name: str) -> Field:
    return Field("number", lambda card: card.get(name, 0))


FIELDS: Final[dict[Subject, dict[str, Field]]] = {
    "task": {
        "pool": _text("pool"),
        "id": _text("id"),
        "state": Field("text", lambda card: card["state"], get_args(TaskState)),
        "kind": _text("kind"),
        "target": _text("target"),
        "robot": _text("robot"),
        "reason": _text("dead_reason"),
        "actor": _text("actor"),
        "schedule": _inside("schedule", "id"),
        "limit_key": _text("limit_key"),
        "priority": _number("priority"),
        "attempt": _number("attempt"),
        "failures": _number("failures"),
        "lost": _number("lost"),
        "redrives": _number("redrives"),
        "late_reports": _number("late_reports"),
        "older": Field("age", lambda card: card["submitted_at"]),
        "done_twice": Field("flag", lambda card: card.get("done_twice", False)),
        "paused": Field("flag", lambda card: "paused" in card),
        "held": Field("flag", lambda card: "holds" in card),
    },
    "robot": {
        "pool": _text("pool"),
        "id": _text("id"),
        "robot": _text("id"),
        "state": Field("text", lambda card: card["state"], get_args(RobotState)),
        "gateway": _text("gateway"),
        "capability": Field("text", lambda card: card.get("capabilities", ())),
        "reason": _inside("fault", "reason"),
        "slots": _number("slots"),
        "used": _number("used"),
        "older": Field("age", lambda card: card["since_at"]),
        "draining": Field("flag", lambda card: "draining" in card),
    },
    "event": {
        "pool": _text("pool"),
        "id": Field("text", _task_of),
        "task": Field("text", _task_of),
        "schedule": Field("text", _schedule_of),
        "type": Field("text", lambda card: str(card.get("type", "")).partition(".")[0]),
        "state": Field("text", lambda card: card.get("to"), get_args(TaskState)),
        "kind": _text("kind"),
        "target": _text("target"),
        "robot": _text("robot"),
        "reason": _text("dead_reason"),
        "actor": _text("actor"),
        "older": Field("age", lambda card: card["occurred_at"]),
    },
}
"""What may be asked of tasks (cards), robots (cards) and events (as stored). `label.NAME` exists for tasks beside."""


@dataclass(frozen=True, slots=True)
class Part:
    """One condition. `exact`: a text that must be equal, without `*`."""

    name: str
    operator: str
    value: str
    exact: bool
    test: Test = field(compare=False, repr=False)

    def __str__(self) -> str:
        quoted = f'"{self.value}"' if " " in self.value else self.value
        return f"{self.name}{self.operator}{quoted}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that must all hold."""

    subject: Subject
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))

    def matches(self, card: Card, now_at: int) -> bool:
        """Whether all parts hold for `card` at `now_at` (ms since 1970 UTC)."""
        return all(part.test(card, now_at) for part in self.parts)

    def only(self, name: str) -> str | None:
        """The one text that field `name` must equal, or None where none is named."""
        return next((part.value for part in self.parts if part.name == name and part.exact), None)

    def texts(self, name: str) -> Callable[[str], bool]:
        """Whether a text passes all parts about field `name`."""
        parts = [part for part in self.parts if part.name == name]
        return lambda text: all(part.test({name: text}, 0) for part in parts)

    def names(self) -> set[str]:
        """The fields that are asked about."""
        return {part.name for part in self.parts}

    def adding(self, name: str, value: str) -> "Filter":
        """This filter and one part more, which says that text `name` equals `value` (never a pattern)."""
        known = FIELDS[self.subject][name].value
        part = Part(name, "=", value, True, lambda card, now: known(card) == value)
        return Filter(self.subject, (*self.parts, part))


def parse_filter(text: str, subject: Subject) -> Filter | Refusal:
    """The filter that `text` says, or bad_filter with the part that is wrong."""
    if len(text) > FILTER_CHARS_MAX:
        return Refusal("bad_filter", f"the filter is longer than {FILTER_CHARS_MAX} characters")
    parts: list[Part] = []
    for piece in _pieces(text):
        if len(parts) == PARTS_MAX:
            return Refusal("bad_filter", f"the filter has more than {PARTS_MAX} parts")
        part = _part(piece, subject)
        if isinstance(part, str):
            return Refusal("bad_filter", f"in the filter, {piece!r}: {part}", extra={"part": piece})
        parts.append(part)
    return Filter(subject, tuple(parts))


def _pieces(text: str) -> Iterator[str]:
    """The parts as they stand; what is no part is given as the next word."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _PART.match(text, at)
        piece = found.group() if found else text[at:].split()[0]
        yield piece
        at += len(piece)


def _part(piece: str, subject: Subject) -> Part | str:
    """The part, or what is wrong with it."""
    found = _PART.fullmatch(piece)
    if found is None:
        return "write FIELD=VALUE, for example state=DEAD or priority>=7"
    name, operator, value = found.groups()
    value = value.strip('"')
    known = _field(name, subject)
    if isinstance(known, str):
        return known
    if known.what == "text":
        return _text_part(name, operator, value, known)
    if known.what == "flag":
        return _flag_part(name, operator, value, known)
    return _size_part(name, operator, value, known)


def _field(name: str, subject: Subject) -> Field | str:
    known = FIELDS[subject].get(name)
    if known is not None:
        return known
    if subject == "task" and name.startswith("label.") and len(name) > len("label."):
        label = name.removeprefix("label.")
        return Field("text", lambda card: card.get("labels", {}).get(label))
    near = get_close_matches(name, [*FIELDS[subject], *(["label.NAME"] if subject == "task" else [])], 1)
    return f"there is no field {name}" + (f", did you mean {near[0]}?" if near else "")


def _text_part(name: str, operator: str, value: str, known: Field) -> Part | str:
    if operator not in ("=", "!="):
        return f"{name} is a text and knows = and != only"
    if known.words:
        value = value.upper()
        if "*" not in value and value not in known.words:
            return f"{name} is one of {', '.join(known.words)}"
    equal = _equals(value)
    if operator == "=":
        return Part(name, operator, value, "*" not in value, lambda card, now: equal(known.value(card)))
    return Part(name, operator, value, False, lambda card, now: not equal(known.value(card)))


def _equals(value: str) -> Callable[[Any], bool]:
    """Whether a text, or one of several, is `value`, in which `*` stands for any characters."""
    pieces = value.split("*")

    def equal(text: str) -> bool:
        return text == value if len(pieces) == 1 else _fits(text, pieces)

    return lambda found: any(map(equal, (found,) if isinstance(found, str) else found or ()))


def _fits(text: str, pieces: list[str]) -> bool:
    """Whether `text` begins and ends as the pieces do and has the others between, in order; never backtracks."""
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _flag_part(name: str, operator: str, value: str, known: Field) -> Part | str:
    if operator != "=" or value not in _FLAGS:
        return f"write {name}=true or {name}=false"
    wanted = _FLAGS[value]
    return Part(name, operator, value, False, lambda card, now: known.value(card) is wanted)


def _size_part(name: str, operator: str, value: str, known: Field) -> Part | str:
    compare = _OPERATORS[operator]
    if known.what == "number":
        if not re.fullmatch(r"\d{1,15}", value):
            return f"{name} is compared with a whole number"
        wanted = int(value)
        return Part(name, operator, value, False, lambda card, now: compare(known.value(card), wanted))
    found = _AGE.fullmatch(value)
    if found is None:
        return f"{name} is compared with a time like 30s, 5m, 2h or 7d"
    age_ms = float(found.group(1)) * _AGE_MS[found.group(2)]
    if operator == "!=":
        return f"{name} knows =, <, <=, > and >="
    at_least = ge if operator == "=" else compare
    return Part(name, operator, value, False, lambda card, now: at_least(now - known.value(card), age_ms))
