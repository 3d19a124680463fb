"""Awkward texts and JSON bodies: some of our own, and many more made by others where FLEETLOG_INPUTS names them.

`$FLEETLOG_INPUTS/text/blns.json` holds 515 strings, `json_test_suite.json` 318 bodies with what a strict parser
should make of them. What stands here was written for these tests.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

INPUTS = Path(os.environ["FLEETLOG_INPUTS"]) / "text" if os.environ.get("FLEETLOG_INPUTS") else None

OWN_TEXTS = [
    # nothing, or nearly
    "", " ", "\t", "\n", "\r\n", "\u00a0", "\u200b", "\ufeff", "\u2028", "\u3000", "\x7f", "\x80", "\x1b[2J", "a\x00b",
    # words that mean something elsewhere
    "null", "None", "undefined", "true", "False", "NaN", "Infinity", "-0", "1e999", "0x10", "١٢٣", "²", "1_000", "+1",
    "9" * 40, "1" * 5000, "CON", "..", "../../etc/passwd", "%2e%2e%2f", "%00", "*", "[a-z]", "{}", "__proto__",
    "'; DROP TABLE tasks; --", "<script>alert(1)</script>", "{{7*7}}", "${HOME}", "`id`", "$(id)", "a=b", "gpu>=", "=",
    "k=1=2", 'x"y', "x'y", "back\\slash", "state=DEAD", "older=9999999999999999999999d", "priority>=999999999999999",
    "label.=x", "*" * 1000,
    # scripts, marks, directions
    "é", "e\u0301", "Ω≈ç√∫", "田中さん", "العربية", "\u202eabc", "a" + "\u0301" * 200, "😀", "👩‍👩‍👧‍👦",
    "🇩🇪", "\U0010ffff", "\ufffe", "ẞ", "ǆ", "ﬃ", "𝟘",
    # not in UTF-8
    "\ud800", "\udfff", "a\udc00b",
    # long
    "x" * 129, "x" * 1001, "ü" * 300,
]  # fmt: skip

OWN_BODIES: list[tuple[str, str, bytes]] = [
    ("empty", "reject", b""),
    ("blank", "reject", b" \n"),
    ("byte order mark", "reject", b'\xef\xbb\xbf{"a":1}'),
    ("utf-16", "reject", '{"a":1}'.encode("utf-16")),
    ("not utf-8", "reject", b'["\xff"]'),
    ("overlong", "reject", b'["\xc0\xaf"]'),
    ("surrogate in utf-8", "reject", b'["\xed\xa0\x80"]'),
    ("lone surrogate", "either", b'["\\ud800"]'),
    ("nul", "either", b'["\\u0000"]'),
    ("raw nul", "reject", b'["\x00"]'),
    ("nan", "reject", b"[NaN]"),
    ("infinity", "reject", b"[-Infinity]"),
    ("huge exponent", "either", b"[1e999]"),
    ("tiny exponent", "either", b"[1e-999]"),
    ("huge integer", "either", b"[" + b"9" * 400 + b"]"),
    ("too many digits", "either", b"[" + b"9" * 6000 + b"]"),
    ("leading zero", "reject", b"[01]"),
    ("minus zero", "accept", b"[-0]"),
    ("comma", "reject", b"[1,]"),
    ("comment", "reject", b"[1/*one*/]"),
    ("single quotes", "reject", b"['a']"),
    ("twice", "accept", b'{"a":1,"a":2}'),
    ("empty name", "accept", b'{"":0}'),
    ("deep", "either", b"[" * 500 + b"]" * 500),
    ("very deep, unclosed", "reject", b"[" * 100_000),
    ("deep objects", "either", b'{"a":' * 150 + b"1" + b"}" * 150),
    ("numbers that grow when written", "accept", b"[" + b",".join([b"1e15"] * 500) + b"]"),
    ("scalar", "accept", b"1"),
    ("two", "reject", b"1 2"),
]  # fmt: skip


@dataclass(frozen=True)
class Body:
    """A body and what a parser by the letter makes of it; `either`: the letter leaves it open."""

    name: str
    expect: Literal["accept", "reject", "either"]
    raw: bytes


def texts() -> list[str]:
    """All texts."""
    theirs: list[str] = [] if INPUTS is None else json.loads((INPUTS / "blns.json").read_text())
    return [*OWN_TEXTS, *theirs]


def bodies() -> list[Body]:
    """All bodies."""
    own = [Body(name, expect, raw) for name, expect, raw in OWN_BODIES]  # type: ignore[arg-type]
    if INPUTS is None:
        return own
    suite = json.loads((INPUTS / "json_test_suite.json").read_text())
    return [*own, *(Body(one["name"], one["expect"], _raw(one)) for one in suite)]


def _raw(one: dict[str, Any]) -> bytes:
    """The bytes of a body; of two very long ones only the beginning is given, which repeats itself."""
    if "b64" in one:
        return base64.b64decode(one["b64"])
    head, length = base64.b64decode(one["head_b64"]), int(one["bytes"])
    return (head * (length // len(head) + 1))[:length]


def is_utf8(text: str) -> bool:
    """Whether the text can be sent as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
