"""What is wrong with a value, in plain words: a table in place of the sentences of the library that checks it."""

from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final[dict[str, str]] = {
    "missing": "this is needed",
    "string_type": "write a text in quotes",
    "string_pattern_mismatch": "it does not have the form {pattern}",
    "string_too_short": "write at least {min_length} characters",
    "string_too_long": "write at most {max_length} characters",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_parsing_size": "write a smaller number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "finite_number": "write a number that is finite",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "list_type": "write a list",
    "dict_type": "write an object of names and values",
    "model_type": "write an object",
    "model_attributes_type": "write an object",
    "dataclass_type": "write an object",
    "none_required": "leave it out",
    "greater_than_equal": "write {ge} or more",
    "greater_than": "write more than {gt}",
    "less_than_equal": "write {le} or less",
    "less_than": "write less than {lt}",
    "literal_error": "write one of {expected}",
    "enum": "write one of {expected}",
    "datetime_type": "write an instant like 2026-11-30T09:15:00Z",
    "datetime_parsing": "write an instant like 2026-11-30T09:15:00Z",
    "datetime_from_date_parsing": "write an instant like 2026-11-30T09:15:00Z",
    "uuid_parsing": "write a UUID",
    "path_type": "write a path",
    "extra_forbidden": "there is no such field",
}
"""Type of pydantic's error -> our words; what stands in braces comes from the error."""


def plain(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a part of a sentence that says what to write."""
    context = {name: _shown(value) for name, value in (error.get("ctx") or {}).items()}
    words = _WORDS.get(error["type"])
    if error["type"] == "string_pattern_mismatch" and "A-Za-z0-9" in context.get("pattern", ""):
        return _name_words(context["pattern"])
    if words is None:
        said = str(error["msg"]).removeprefix("Value error, ")
        return f"{said[:1].lower()}{said[1:]}" if said[1:2].islower() else said
    try:
        return words.format(**context)
    except KeyError:
        return words.partition("{")[0].rstrip()


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("'", "")


def _name_words(pattern: str) -> str:
    """The form of ids and names."""
    return f"use letters, digits and {'. _ : -' if '._:' in pattern else '. _ -'}, a letter or digit first"
