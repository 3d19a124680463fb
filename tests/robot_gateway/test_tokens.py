"""The token file: what it may hold, what a role may do, and that it is read again while the gateway runs."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from robot_gateway.tokens import (
    RIGHTS,
    Principal,
    TokenEntry,
    TokenFileUnusable,
    TokenTable,
    new_token,
    read_tokens,
    write_tokens,
)

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def test_a_new_token_is_found_by_itself_alone(tmp_path: Path) -> None:
    """The file holds its digest; the token itself opens the door."""
    path = tmp_path / "tokens.toml"
    token, entry = new_token("hall-a-robots", "robot", pools=["hall-a"], robots=["r*"])
    write_tokens(path, [entry])

    table = TokenTable(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    found = table.find(token, NOW)
    assert found is not None
    assert (found.name, found.role, found.pools, found.robots) == ("hall-a-robots", "robot", ("hall-a",), ("r*",))
    assert table.find(token + "x", NOW) is None
    assert table.find(entry.sha256, NOW) is None


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Every field survives, also characters that TOML must escape."""
    path = tmp_path / "tokens.toml"
    expires = datetime(2027, 1, 1, tzinfo=UTC)
    entries = [
        new_token("a", "operator")[1],
        new_token("b.c", "robot", pools=['p"q\\r'], robots=["r-*", "x\n"], expires=expires)[1],
    ]

    write_tokens(path, entries)

    assert read_tokens(path) == entries


@pytest.mark.parametrize("glob", ["", "é*", "\x7f", "\u2028", "\U0010ffff", "\U000e0001x", 'a"b\\', "\0", "\n"])
def test_any_text_survives_the_file(tmp_path: Path, glob: str) -> None:
    """Whatever a glob is, it comes back as it was."""
    _, entry = new_token("a", "robot", pools=[glob], robots=[glob])
    write_tokens(tmp_path / "tokens.toml", [entry])

    assert read_tokens(tmp_path / "tokens.toml") == [entry]


@pytest.mark.parametrize("field", ["pools", "robots"])
def test_what_no_file_can_hold_is_refused_before_it_is_written(field: str) -> None:
    """Bytes that are no UTF-8 on a command line would make the file unusable, with all tokens in it."""
    words: Any = {field: ["hall-\udcff"]}
    with pytest.raises(ValidationError):
        new_token("a", "robot", **words)


def test_an_expired_token_opens_nothing(tmp_path: Path) -> None:
    """From the instant of its expiry on."""
    path = tmp_path / "tokens.toml"
    token, entry = new_token("a", "viewer", expires=NOW)
    write_tokens(path, [entry])
    table = TokenTable(path)

    before = table.find(token, NOW - timedelta(seconds=1))
    assert before is not None
    assert table.find(token, NOW) is None
    assert not table.still_valid(before, NOW)


def test_a_change_is_seen_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    """Removed tokens are invalid after a reload; a file that cannot be used keeps those read before, and says so."""
    path = tmp_path / "tokens.toml"
    first, first_entry = new_token("a", "viewer")
    second, second_entry = new_token("b", "viewer")
    write_tokens(path, [first_entry])
    table = TokenTable(path)
    gone = table.find(first, NOW)
    assert gone is not None

    write_tokens(path, [second_entry])
    table.reload_if_changed()
    assert not table.still_valid(gone, NOW)
    assert table.find(second, NOW) is not None

    path.write_text("[[token]\n")
    table.reload_if_changed()
    assert table.find(second, NOW) is not None
    assert table.problem is not None
    assert "is not TOML" in table.problem

    write_tokens(path, [second_entry])
    os.utime(path, ns=(1, 1))
    table.reload_if_changed()
    assert table.problem is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1", "something else than [[token]] tables"),
        ('[[token]]\nname = "a"', "token 1: sha256"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 63}"\nrole = "robot"', "64 hex digits"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nrole = "king"', "token 1: role"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nrole = "robot"\nextra = 1', "token 1: extra"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nrole = "robot"\nexpires = 2027-01-01T00:00:00', "time zone"),
        (2 * f'[[token]]\nname="a"\nsha256="{"0" * 64}"\nrole="robot"\n', "two tokens called a"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, content: str, said: str) -> None:
    """In one sentence that names the file."""
    path = tmp_path / "tokens.toml"
    path.write_text(content)

    with pytest.raises(TokenFileUnusable) as raised:
        read_tokens(path)

    assert said in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        ("robot", {"session"}),
        ("submitter", {"submit"}),
        ("operator", {"submit", "verb", "read", "read_bodies"}),
        ("auditor", {"read", "read_bodies"}),
        ("viewer", {"read"}),
    ],
)
def test_what_a_role_may(role: str, rights: set[str]) -> None:
    """Exactly this, in the pools of the token alone."""
    principal = Principal("x", role, pools=("hall-*",))

    for right in RIGHTS["local"]:
        assert principal.may(right) is (right in rights)
        assert principal.may(right, "hall-a") is (right in rights)
        assert not principal.may(right, "yard")


def test_robots_and_pools_are_globs() -> None:
    """Names, or patterns of names."""
    principal = Principal("x", "robot", pools=("hall-a",), robots=("r-?", "arm*"))

    assert principal.covers_robot("r-1")
    assert principal.covers_robot("arm77")
    assert not principal.covers_robot("r-11")
    assert not principal.everywhere
    assert TokenEntry(name="x", sha256="0" * 64, role="robot").pools == ["*"]
