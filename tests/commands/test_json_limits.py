"""The limits on JSON from outside: each breach is found and its place is named."""

import json

import pytest

from commands.json_limits import limits_problem, parse_json


@pytest.mark.parametrize(
    ("raw", "reason", "field"),
    [
        (b'{"a":[1,{"b":NaN}]}', "malformed_json", "/a/1/b"),
        (b'{"a":-Infinity}', "malformed_json", "/a"),
        (b'{"a":1e999}', "malformed_json", "/a"),
        (b'{"a":"\\ud800x"}', "invalid_field", "/a"),
        (b'{"\\udc00":1}', "invalid_field", ""),
        (b'{"a":{"b/c~d":"\\u0000"}}', "invalid_field", "/a/b~1c~0d"),
        (b'{"a":9007199254740992}', "invalid_field", "/a"),
        (b'{"a":-9007199254740992}', "invalid_field", "/a"),
        (b"{", "malformed_json", None),
        (b"", "malformed_json", None),
        (b"\xff", "malformed_json", None),
        (b'{"a":1}x', "malformed_json", None),
        (b"1" * 5000, "malformed_json", None),
        (b"[" * 100_000 + b"]" * 100_000, "invalid_field", ""),
    ],
)
def test_a_breach_is_refused_with_its_place(raw: bytes, reason: str, field: str | None) -> None:
    """NaN, NUL, lone surrogates, numbers out of range, depth, and what is no JSON at all."""
    value, problem = parse_json(raw)

    assert value is None
    assert problem is not None
    assert (problem.reason, problem.field) == (reason, field)


def test_what_keeps_the_limits_is_read() -> None:
    """The largest integers, 64 levels, and characters beyond the first plane are fine."""
    deep = "[" * 63 + "]" * 63
    raw = f'{{"deep":{deep},"big":9007199254740991,"small":-9007199254740991,"text":"\\ud83d\\ude00 é"}}'.encode()

    value, problem = parse_json(raw)

    assert problem is None
    assert value == json.loads(raw)


@pytest.mark.parametrize(("levels", "fits"), [(64, True), (65, False)])
def test_sixty_four_levels_and_no_more(levels: int, fits: bool) -> None:
    """Arrays and objects count alike; around a body there may be more."""
    _, around = parse_json(b"[" * levels + b"]" * levels, 65)
    assert around is None
    _, problem = parse_json(b"[" * levels + b"]" * levels)

    assert (problem is None) is fits


def test_the_place_is_counted_from_where_the_value_stands() -> None:
    """A body inside a message is named by its place in the message."""
    problem = limits_problem({"x": ["fine", "\0"]}, "/result")

    assert problem is not None
    assert problem.field == "/result/x/1"
