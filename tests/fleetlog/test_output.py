"""What verbs print: tables to a terminal, tab-separated lines to a pipe, JSON; times and events in words."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commands.events import EVENT_TYPES
from fleetlog.output import Output, age, duration, field, flat, shown, title
from fleetlog.problems import Problem
from fleetlog.telling import _TELLERS, tell
from fleetlog.verbs.look import STATS_COLUMNS, TASK_COLUMNS
from fleetlog.when import instant, span_s
from tests.fleetlog.conftest import PROGRAM

ITEMS: list[dict[str, Any]] = [
    {"id": "t1", "state": "DEAD", "labels": {"line": "3"}, "since_at": "2026-11-30T09:15:00.000Z", "robot": None},
    {"id": "t2", "state": "WAITING", "labels": {}, "note": "a\tb\nc", "requirement": ["gpu", "mem>=4"]},
]


def test_rows_to_a_pipe_are_tab_separated(capsys: pytest.CaptureFixture[str]) -> None:
    """One line an item, whole values, no heading; tabs and line ends inside a value become blanks."""
    assert Output().rows(ITEMS, ("id", "labels.line", "note", "requirement", "since_at", "robot")) == 2

    assert capsys.readouterr().out.splitlines() == [
        "t1\t3\t\t\t2026-11-30T09:15:00.000Z\t",
        "t2\t\ta b c\tgpu,mem>=4\t\t",
    ]


def test_json_is_one_whole_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the columns."""
    Output(as_json=True).rows(ITEMS, ("id",))

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ITEMS


def test_a_card_shows_every_field_that_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    """Inner objects under dotted names; empty fields are left out."""
    Output().card({"id": "t1", "retry": {"max": 3}, "labels": {}, "robot": None, "position": "x"}, skip=("position",))

    assert capsys.readouterr().out == "id\tt1\nretry.max\t3\n"


def test_notes_are_silent_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """Notes go to standard error, and nowhere with --quiet."""
    Output(quiet=True).note("hm")
    Output().note("ah")

    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "ah\n")


def test_dotted_names_reach_inside() -> None:
    """`labels.line` is a field of a field; a name with a dot of its own comes first."""
    assert field({"a": {"b": {"c": 1}}}, "a.b.c") == 1
    assert field({"a.b": 2, "a": {"b": 1}}, "a.b") == 2
    assert field({"a": 1}, "a.b") is None
    assert list(flat({"a": {"b": 1, "c": {}}})) == [("a.b", 1), ("a.c", {})]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.25, "0.25 s"), (9.99, "9.99 s"), (12.7, "12 s"), (60, "1 m"), (250, "4 m 10 s"),
        (3600, "1 h"), (11_100, "3 h 5 m"), (86_400 * 12 + 14_400, "12 d 4 h"),
    ],
)  # fmt: skip
def test_durations_in_two_units(seconds: float, text: str) -> None:
    """At most two units, no false precision."""
    assert duration(seconds) == text


def test_instants_are_seen_from_now() -> None:
    """Before and after; what is no instant stays as it is."""
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)

    assert age("2026-11-30T11:59:30Z", now) == "30 s ago"
    assert age("2026-11-30T12:03:00Z", now) == "in 3 m"
    assert age("soon", now) == "soon"
    assert [shown(n, v, now) for n, v in (("since_at", "2026-11-30T11:00:00Z"), ("ran_s", 61), ("paused", True))] == [
        "1 h ago", "1 m 1 s", "yes",
    ]  # fmt: skip


def test_spans_and_instants_as_people_write_them() -> None:
    """`2h` is from now on, or back; without a zone it is refused."""
    assert [span_s(text) for text in ("15s", "2h", "1.5d", "+30m", "250ms", "2", "h")] == [
        15, 7200, 129_600, 1800, 0.25, None, None,
    ]  # fmt: skip
    soon = datetime.fromisoformat(instant("2h", "--not-before"))
    assert timedelta(hours=1.9) < soon - datetime.now(UTC) < timedelta(hours=2.1)
    assert datetime.fromisoformat(instant("2h", "--from", back=True)) < datetime.now(UTC) - timedelta(hours=1.9)
    assert instant("2026-11-30T10:15:00+01:00", "--to") == "2026-11-30T09:15:00.000Z"
    for wrong in ("tomorrow", "2026-11-30T09:15:00"):
        with pytest.raises(Problem, match="is no instant: write 2026-11-30T09:15:00Z"):
            instant(wrong, "--to")
    for beyond in ("99999999d", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        with pytest.raises(Problem, match="lies outside the years 1 to 9999: write a nearer instant"):
            instant(beyond, "--to")


def test_every_event_type_is_told_in_words() -> None:
    """No type of the log is shown by its bare name, and none that lacks fields makes the view fail."""
    names = {kind.partition(".")[0] for kind in EVENT_TYPES}

    assert names == set(_TELLERS)
    for name in names:
        assert tell({"type": f"{name}.v1"}) != name


def test_a_terminal_gets_a_table_with_headings() -> None:
    """The same verb on a terminal: headings, no tabs; colours only without NO_COLOR."""
    ours, theirs = pty.openpty()
    done = subprocess.run([PROGRAM, "settings"], stdout=theirs, stdin=subprocess.DEVNULL, env=_plain(), timeout=120)
    os.close(theirs)
    text = _read(ours)

    assert done.returncode == 0
    assert "name" in text.splitlines()[0] + text.splitlines()[1]
    assert "\t" not in text
    assert "\x1b[3" not in text


HOURS_AGO = (datetime.now(UTC) - timedelta(hours=7, minutes=40, seconds=30)).isoformat(timespec="milliseconds")
"""As an age it is equally wide whenever the tests run."""
TASKS: list[dict[str, Any]] = [
    {"id": f"5f0c2b1e-8a1d-5b1e-9d5e-0123456789a{n}", "kind": "checksum", "state": "COMPLETED", "priority": 3,
     "target": "dock-7" if n else None, "robot": "r1", "attempt": 2, "submitted_at": HOURS_AGO,
     "since_at": HOURS_AGO}
    for n in range(3)
]  # fmt: skip
FIGURES: list[dict[str, Any]] = [
    {"kind": "checksum", "waiting": 12_345, "completed_per_minute": 1.234_56, "events": {"completed": 12}}
]


@pytest.mark.parametrize("width", [80, 110, 200])
def test_a_table_fits_its_terminal_and_cuts_no_value(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each task is one line with its whole id and state; columns without room are named in a last line."""
    lines = _on_terminal(width, TASKS, TASK_COLUMNS, monkeypatch, capsys)

    assert max(len(line) for line in lines) <= width
    for task in TASKS:
        assert sum(line.startswith(f"{task['id']}  checksum  COMPLETED ") for line in lines) == 1
    assert sum("0123" in line for line in lines) == len(TASKS)
    said = " ".join(lines[lines.index("") :] if "" in lines else lines[5:])
    missing = {80: "since_at", 110: "since_at"}.get(width)
    assert (f"{missing}: --columns id," in said and "--json everything." in said) if missing else said == ""


@pytest.mark.parametrize("width", [80, 110, 200])
def test_headings_are_broken_between_words_alone(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`completed per minute` may take several lines; no word of a heading is cut."""
    lines = _on_terminal(width, FIGURES, STATS_COLUMNS["kinds"], monkeypatch, capsys)

    rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
    words = {word for name in STATS_COLUMNS["kinds"] for word in title(name).split()}
    assert set(" ".join(lines[:rule]).split()) <= words
    assert lines[rule + 1].split() == ["checksum", "12345", "12", "1.235"]


def test_an_id_that_is_wider_than_the_terminal_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line runs on rather than to lose the id's end; texts wrap between their words."""
    item = {"id": "x" * 100, "state": "DEAD", "capabilities": ["gpu"] * 30}
    lines = _on_terminal(80, [item], ("id", "kind", "state", "capabilities"), monkeypatch, capsys)
    assert f"{'x' * 100}  DEAD" in [line.rstrip() for line in lines]

    lines = _on_terminal(80, [item | {"id": "r1"}], ("id", "state", "capabilities"), monkeypatch, capsys)
    assert " ".join(lines).count("gpu") == 30


def _on_terminal(
    width: int,
    items: list[dict[str, Any]],
    columns: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """The lines that a terminal of this width gets."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out = Output()
    out.terminal = True
    assert out.rows(items, columns, choosable=True) == len(items)
    return capsys.readouterr().out.splitlines()


def _plain() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}


def _read(descriptor: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    os.close(descriptor)
    return data.decode()
