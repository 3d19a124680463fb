"""What a robot or a submitter may put into a frame: right, nearly right, and rubbish. As text or bytes, ready to send.

`MINE` and `OTHERS` in a frame are filled in by whoever plays it, with tasks that exist at that moment.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.awkward import bodies, texts

MINE, MY_ATTEMPT, EPOCH, SEQ, MESSAGE = "$mine", -101, -102, -103, "$message"
Fields = dict[str, Any]


def _one_of(values: list[Any]) -> st.SearchStrategy[Any]:
    """One of many values, named by their number where a failure is shown."""
    return st.integers(0, len(values) - 1).map(values.__getitem__)


TEXTS = _one_of([t for t in texts() if len(t) < 2_000]) | st.text(max_size=20)
BODIES = _one_of([body.raw for body in bodies()])
NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.sampled_from([1024, 1025, 2**31, 2**53 - 1, 2**53, 2**63, -(2**63), 2**64, 10**30, 10**400]),
    st.floats(allow_nan=True, allow_infinity=True),
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
ATTEMPTS = st.sampled_from([MY_ATTEMPT, MY_ATTEMPT, MY_ATTEMPT, 1, 2, 0, 2**53])
TASKS = st.sampled_from([MINE, MINE, MINE, "t-waiting", "t-running", "t-done", "t-dead", "ghost", "", "a b"])
ABOUT = {"task": TASKS, "attempt": ATTEMPTS}
HELD = st.fixed_dictionaries(ABOUT | {"started": st.booleans()})
BEAT = st.fixed_dictionaries(ABOUT, optional={"progress": st.integers(0, 101), "note": TEXTS})
SHORT = st.text(max_size=12)


def _message(kind: str, required: Fields | None = None, optional: Fields | None = None) -> st.SearchStrategy[Fields]:
    head = {"type": st.just(kind), "id": st.just(MESSAGE), "epoch": st.just(EPOCH), "seq": st.just(SEQ)}
    return st.fixed_dictionaries(head | (required or {}), optional=optional or {})


GOOD: st.SearchStrategy[Fields] = st.one_of(
    _message("ready", {"n": st.integers(0, 8)}),
    _message("update", {}, {"slots": st.integers(1, 8), "capabilities": st.lists(SHORT, max_size=3)}),
    _message("accept", ABOUT),
    _message("accept", ABOUT),
    _message("reject", ABOUT | {"reason": st.sampled_from(["busy", "cannot", "unsafe", "other"])}, {"text": SHORT}),
    _message("heartbeat", {"holding": st.lists(BEAT, max_size=3)}),
    _message("checkpoint", ABOUT | {"number": st.integers(1, 4), "value": JSON}),
    _message("complete", ABOUT, {"result": JSON}),
    _message(
        "fail",
        ABOUT
        | {
            "class": st.sampled_from(["retryable", "fatal"]),
            "error": st.fixed_dictionaries({"type": SHORT, "message": SHORT}, optional={"detail": JSON}),
        },
        {"retry_after_ms": st.sampled_from([0, 1, 1000, 2**53 - 1, 2**63, 10**30])},
    ),
    _message(
        "stopped",
        ABOUT | {"why": st.sampled_from(["cancel", "stop", "own_deadline", "shutdown"])},
        {"checkpoint": st.fixed_dictionaries({"number": st.integers(1, 4), "value": JSON})},
    ),
    _message("fault", {"text": SHORT}, {"code": SHORT}),
    _message("recovered"),
    st.fixed_dictionaries(
        {
            "type": st.just("hello"),
            "id": st.just(MESSAGE),
            "slots": st.integers(1, 8),
            "capabilities": st.lists(SHORT, max_size=3),
            "holding": st.lists(HELD, max_size=3),
        },
        optional={"agent": SHORT, "inline_max_bytes": st.sampled_from([1024, 2**63, 10**30])},
    ),
)
"""Messages of the protocol, in form."""

GOOD_SUBMIT: st.SearchStrategy[Fields] = st.fixed_dictionaries(
    {
        "type": st.just("submit"),
        "id": st.uuids().map(str),
        "pool": st.just("hall-a"),
        "tasks": st.lists(
            st.fixed_dictionaries(
                {"kind": st.sampled_from(["ok", "nobody"]), "payload": JSON},
                optional={
                    "id": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,8}", fullmatch=True),
                    "priority": st.integers(0, 9),
                    "requirement": st.lists(SHORT, max_size=2),
                    "labels": st.dictionaries(SHORT, SHORT, max_size=2),
                    "target": SHORT,
                    "not_before": st.sampled_from(
                        ["2030-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z"]
                    ),
                    "lease_s": NUMBERS,
                    "retry": st.dictionaries(st.sampled_from(["failures_max", "first_s", "factor", "x"]), NUMBERS),
                },
            ),
            max_size=3,
        ),
    },
    optional={"all_or_none": st.booleans()},
)
"""Messages of `/v1/submit`, in form but for what their fields hold."""


@st.composite
def nearly(draw: st.DrawFn, good: st.SearchStrategy[Fields]) -> Fields:
    """One thing wrong: a field missing, of another type or value, one too many, in another case."""
    message = dict(draw(good))
    name = draw(st.sampled_from(sorted(message)))
    how = draw(st.sampled_from(["drop", "change", "change", "add", "rename", "nest"]))
    if how == "drop":
        del message[name]
    elif how == "change":
        message[name] = draw(JSON)
    elif how == "add":
        message[draw(TEXTS)] = draw(JSON)
    elif how == "rename":
        message[name.upper()] = message.pop(name)
    else:
        message[name] = [message[name]]
    return message


@st.composite
def spoiled(draw: st.DrawFn, good: st.SearchStrategy[Fields]) -> bytes:
    """In form as a message, but not as JSON, or not quite: cut, doubled, spliced."""
    raw = dump(draw(good))
    how = draw(st.sampled_from(["cut", "twice", "behind", "before", "splice", "bom", "utf16", "again", "inside"]))
    at = draw(st.integers(0, len(raw)))
    other = draw(BODIES)
    name = draw(st.sampled_from(["type", "id", "epoch", "seq", "task", "attempt", "messages", "tasks", "x"]))
    spoilt: dict[str, bytes] = {
        "cut": raw[:at],
        "twice": raw + raw,
        "behind": raw + b" \n\t",
        "before": b"\n " + raw,
        "splice": raw[:at] + other[:200] + raw[at:],
        "bom": b"\xef\xbb\xbf" + raw,
        "utf16": raw.decode("utf-8", "replace").encode("utf-16"),
        # The same name again: the last one counts.
        "again": raw[:-1] + b"," + json.dumps(name).encode() + b":" + json.dumps(draw(SCALARS)).encode() + b"}",
        "inside": raw[:-1] + b',"x":' + (other or b"0") + b"}",
    }
    return spoilt[how]


def dump(value: Any) -> bytes:
    """JSON as Python writes it: with NaN, lone surrogates as escapes, and integers of any size."""
    return json.dumps(value).encode()


def frames(good: st.SearchStrategy[Fields]) -> st.SearchStrategy[Fields | bytes]:
    """One frame of any sort; dictionaries have places to be filled in."""
    return st.one_of(
        good,
        good,
        nearly(good),
        nearly(good),
        spoiled(good),
        BODIES,
        TEXTS.map(dump),
        st.binary(max_size=40),
    )
