"""Markdown from types: tables, and how a type and its limits read."""

import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from commands.events import Body


def words_of(text: str) -> list[str]:
    """The words in a text."""
    return text.split()


INSTANT: Final = "instant"
DURATION: Final = "duration (ms)"
INSTANT_ENDS: Final = ("_at", "_until", "_by")
INSTANTS: Final = words_of(
    "at counts_from deadline first first_window instant last last_window not_again_before not_before start until window"
)
"""Integers that are milliseconds since 1970 though their name does not end so."""
NUMBERS: Final = words_of(
    """
    attempt attempts burst catch_up checkpoint_number count cursor epoch failures failures_max format from_format
    inline_max_bytes leases level lost lost_max missed n newer_attempt number offset part partition parts
    payload_max_bytes position priority progress protocol robots running seen seq sequence slot_cost slots
    superseded_epoch to_format waiting windows
    """
)
"""Integers that count or number something."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field as people see it: its stored name, its type in words, and whether it may be absent."""

    name: str
    kind: str
    optional: bool
    default: str


def page(title: str, *parts: str) -> str:
    """A whole generated page."""
    note = "<!-- Written by `make docs` from the code; tests compare. Edit the code or docs/generators instead. -->"
    return "\n\n".join((f"# {title}", note, *(part.strip("\n") for part in parts if part))) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; signs that would end a cell are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Text in code type."""
    return f"`{text}`"


def doc(thing: Any) -> str:
    """The docstring as one paragraph for each of its own; names in it keep their code type."""
    return "\n\n".join(" ".join(part.split()) for part in (thing.__doc__ or "").strip().split("\n\n"))


def anchor(heading: str) -> str:
    """The place of a heading on its page, as Markdown viewers name it."""
    kept = "".join(sign for sign in heading.lower() if sign.isalnum() or sign in " -_")
    return kept.strip().replace(" ", "-")


# ---- types ----


def fields_of(shape: type[Any], without: Iterable[str] = (), sent: bool = False) -> list[Field]:
    """The fields of a dataclass in their order, by the names they are stored or sent under.

    `sent`: a field with a default may be left out; else (stored) only one that may be None.
    """
    hints = get_type_hints(shape, include_extras=True)
    found = []
    for field in dataclasses.fields(shape):
        if field.name in without:
            continue
        hint = hints[field.name]
        name = _alias(hint) or field.name
        optional = _may_be_none(hint) or (sent and _has_default(field))
        found.append(Field(name, kind_of(hint, name), optional, _default(field) if sent else ""))
    return found


def field_table(fields: Iterable[Field], notes: Mapping[str, str], of: str = "") -> str:
    """Name (with `?` where it may be absent), type and note; the notes only where there are some.

    A note under `<of>.<name>` comes before one under the name alone.
    """
    rows = []
    for field in fields:
        default = f"default {field.default}" if field.default else ""
        note = "; ".join(filter(None, (notes.get(f"{of}.{field.name}", notes.get(field.name, "")), default)))
        rows.append((code(field.name) + ("?" if field.optional else ""), field.kind, note))
    if any(note for *_, note in rows):
        return table(("field", "type", ""), rows)
    return table(("field", "type"), [row[:2] for row in rows])


def kind_of(hint: Any, name: str = "") -> str:
    """A type in words, with its limits. Raises ValueError for an integer that nobody has said a unit for."""
    bare, limits = _unpacked(hint)
    words = _kind(bare, name)
    return f"{words} ({limits})" if limits else words


def _kind(bare: Any, name: str) -> str:
    if bare is Any:
        return "any JSON"
    if bare == Body and name in BODIES:
        return "[body](#bodies)"
    if bare in _SIMPLE:
        return _SIMPLE[bare]
    if bare is int:
        return _integer(name)
    if dataclasses.is_dataclass(bare) and isinstance(bare, type):
        return _object(bare)
    origin, inside = get_origin(bare), get_args(bare)
    if origin is Literal:
        return " or ".join(code(value) for value in inside)
    if origin is list:
        return f"list of {kind_of(inside[0], name)}"
    if origin is dict:
        return "object" if inside[1] is Any else f"object of {kind_of(inside[1])}s"
    raise ValueError(f"{name}: no words for {bare!r}")


_SIMPLE: Final[dict[Any, str]] = {str: "string", bool: "boolean", float: "number"}
BODIES: Final = frozenset({"payload", "checkpoint", "result", "note", "text", "message", "detail"})
"""Event fields that hold what robots and submitters put in; other objects are plain."""
INLINE_FIELDS_MAX: Final = 4


def is_inline(shape: type[Any]) -> bool:
    """Whether an object is short enough to stand in a cell; others have a heading of their own."""
    inner = [_unpacked(hint)[0] for hint in get_type_hints(shape, include_extras=True).values()]
    return len(inner) <= INLINE_FIELDS_MAX and not any(dataclasses.is_dataclass(one) for one in inner)


def _object(shape: type[Any]) -> str:
    if is_inline(shape):
        return "{" + ", ".join(_short(field) for field in fields_of(shape)) + "}"
    return f"[{shape.__name__}](#{shape.__name__.lower()})"


def _integer(name: str) -> str:
    if name == "ms" or name.endswith("_ms"):
        return DURATION
    if name in INSTANTS or name.endswith(INSTANT_ENDS):
        return INSTANT
    if name in NUMBERS:
        return "integer"
    raise ValueError(f"say in docs/generators/markdown.py whether {name} is an instant or a number")


def _short(field: Field) -> str:
    kind = "" if field.kind == "string" else f" {field.kind}"
    return f"{code(field.name)}{'?' if field.optional else ''}{kind}"


def _unpacked(hint: Any) -> tuple[Any, str]:
    """The type without None and annotations, and its limits in words."""
    limits: list[str] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            limits += [words for note in notes for words in limits_of(note, get_origin(_bare(hint)) is list)]
        elif _may_be_none(hint):
            inside = [one for one in get_args(hint) if one is not type(None)]
            if len(inside) != 1:
                raise ValueError(f"no words for {hint!r}")
            hint = inside[0]
        else:
            return hint, ", ".join(limits)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def limits_of(note: Any, is_list: bool = False) -> Iterator[str]:
    """The limits that a pydantic Field sets, in words."""
    values = {
        name: getattr(limit, name) for limit in getattr(note, "metadata", ()) for name in _NAMES if hasattr(limit, name)
    }
    low, high = values.get("ge"), values.get("le")
    if "gt" in values:
        yield f"above {_number(values['gt'])}"
    if low is not None and high is not None:
        yield f"{_number(low)} to {_number(high)}"
    elif low is not None or high is not None:
        yield f"from {_number(low)}" if low is not None else f"up to {_number(high or 0)}"
    if values.get("min_length", 0) > 1:
        yield f"at least {values['min_length']:,}"
    if "max_length" in values:
        yield f"at most {values['max_length']:,}" + ("" if is_list else " characters")


_NAMES: Final = ("ge", "le", "gt", "min_length", "max_length")


def _number(value: float) -> str:
    return "2^53-1" if value == 2**53 - 1 else f"{value:,}"


def _alias(hint: Any) -> str | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((alias for note in get_args(hint)[1:] if (alias := getattr(note, "alias", None))), None)


def _may_be_none(hint: Any) -> bool:
    return get_origin(_bare(hint)) in (Union, types.UnionType) and type(None) in get_args(_bare(hint))


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default in (dataclasses.MISSING, None, ""):
        return ""
    return code(str(field.default).lower() if isinstance(field.default, bool) else field.default)
