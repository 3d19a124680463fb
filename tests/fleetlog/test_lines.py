"""`fleetlog submit --lines`: checked as a whole, sent in order, and the same command again submits nothing twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleetlog import lines as lines_module
from fleetlog import submitting_lines
from fleetlog.cli import run
from fleetlog.lines import Checked, LinesFile
from fleetlog.problems import Problem
from robot_gateway.sdk.submitter import Submitter
from tests.fleetlog.conftest import PROGRAM, CommandLine
from tests.support.fleet import until

BIG = 262_144


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON of each line."""
    return [json.loads(line) for line in text.splitlines()]


def waiting(cli: CommandLine) -> list[dict[str, Any]]:
    """Waiting tasks, in the order of the queue."""
    return objects(cli("tasks", "--where", "state=WAITING", "--sort", "submitted", "--all", "--json").out)


def known_by_the_tables(cli: CommandLine, count: int) -> list[dict[str, Any]]:
    """The waiting tasks when the tables have so many."""
    until(lambda: len(waiting(cli)) == count, f"{count} waiting tasks")
    return waiting(cli)


def payloads(cli: CommandLine) -> list[Any]:
    """What the events say was submitted, in order."""
    found = objects(cli("events", "--where", "type=TaskSubmitted", "--all", "--json").out)
    return [event["payload"]["json"] for event in found]


@pytest.fixture
def words(pool: str) -> Path:
    """Seven payloads, two of them equal, one empty line."""
    path = Path("words.txt")
    path.write_text('hello\nworld\n\nhello\n7\n{"a": 1}\nlast\n')
    return path


# ---- whole, in order, once ----


def test_payloads_with_a_kind_whole_tasks_without(cli: CommandLine, words: Path) -> None:
    """In the order of the lines; options are shared; a task's own fields go before them."""
    done = cli("submit", "k", "--lines", "words.txt", "--priority", "5", "--json")
    assert done.code == 0
    assert [task["state"] for task in objects(done.out)] == ["WAITING"] * 6
    assert payloads(cli) == ["hello", "world", "hello", 7, {"a": 1}, "last"]
    Path("tasks.jsonl").write_text(
        '{"kind": "a", "id": "x1", "on_lost": {"policy": "wait", "wait_s": 7}, "pass": "all"}\n'
        '{"kind": "b", "priority": 3}\n'
    )
    assert cli("submit", "--file", "tasks.jsonl", "--priority", "8", "--label", "line=3").code == 0
    found = {task["kind"]: task for task in known_by_the_tables(cli, 8) if task["kind"] in "ab"}
    assert (found["a"]["id"], found["a"]["priority"], found["b"]["priority"]) == ("x1", 8, 3)
    assert (found["a"]["on_lost"], found["a"]["pass"]) == ({"policy": "wait", "wait_s": 7}, "all")
    assert found["b"]["labels"] == {"line": "3"}


def test_the_same_command_again_submits_nothing(cli: CommandLine, words: Path) -> None:
    """The same content with the same options is the same batch; other options, or --again, are not."""
    first = cli("submit", "k", "--lines", "words.txt")
    again = cli("submit", "k", "--lines", "words.txt")

    assert (first.code, first.err) == (0, "6 submitted.\n")
    assert (again.code, again.out) == (0, first.out)
    assert again.err.startswith("6 known.\nall of it was submitted before; --again")
    assert "6 submitted." in cli("submit", "k", "--lines", "words.txt", "--priority", "1").err
    assert "6 submitted." in cli("submit", "k", "--lines", "-", "--again", stdin=words.read_text()).err
    assert "6 known." in cli("submit", "k", "--lines", "-", stdin=words.read_text()).err
    known_by_the_tables(cli, 18)


def test_what_was_interrupted_goes_on_without_a_duplicate(
    cli: CommandLine, words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C after the first answers: said how to go on; the rest follows in order, exit code 130 and 0."""
    monkeypatch.setattr(lines_module, "BATCH_LINES", 1)
    monkeypatch.setattr(submitting_lines, "BATCH_LINES", 1)
    original, asked = Submitter.submit_many, list[Any]()

    def until_the_fourth(self: Submitter, submissions: Any, **more: Any) -> Any:
        asked.append(submissions)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return original(self, submissions, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Submitter, "submit_many", until_the_fourth)
        code = run(["submit", "k", "--lines", "words.txt"])
    said = capsys.readouterr().err
    assert code == 130
    assert "2 of 6 lines are in. The same command goes on behind them" in said

    done = cli("submit", "k", "--lines", "words.txt")
    assert (done.code, len(done.lines)) == (0, 6)
    assert payloads(cli) == ["hello", "world", "hello", 7, {"a": 1}, "last"]


# ---- bad lines ----


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("7", "it is not a task"),
        ("{", "this is not JSON in UTF-8"),
        ('{"kind": "a", "payload": NaN}', "payload: "),
        ('{"kind": "a", "priority": 10}', "priority: write 9 or less"),
        ('{"kind": "a", "prority": 1}', "prority: there is no field 'prority' here; did you mean priority?"),
        ('{"kind": "a", "slot_cost": "2"}', "slot_cost: "),
        ('{"kind": "a", "retry": {"factor": 0}}', "retry/factor: "),
        ('{"kind": "a", "id": "_x"}', "id: "),
        ('{"kind": "a", "id": "same", "payload": 2}', "id: same stands in line 1 with other content"),
        ('{"kind": "a", "payload": "' + "x" * BIG + '"}', f"payload: a payload has at most {BIG} bytes"),
        ('{"kind": "a", "payload": 9007199254740993}', "payload: "),
        ('{"kind": "a", "payload": "\\u0000"}', "payload: "),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_sent(cli: CommandLine, pool: str, line: str, said: str) -> None:
    """Line, field and what is wrong, before anything is submitted; with skip the others are."""
    Path("tasks.jsonl").write_text(f'{{"kind": "a", "id": "same", "payload": 1}}\n\n{line}\n{{"kind": "a"}}\n')
    done = cli("submit", "--lines", "tasks.jsonl")

    assert done.code == 2
    assert f"line 3 of tasks.jsonl: {said}" in done.err
    assert "one line is no task, nothing was submitted: correct it, or say --bad-lines skip." in done.err
    assert waiting(cli) == []
    skipped = cli("submit", "--lines", "tasks.jsonl", "--bad-lines", "skip")
    assert skipped.code == 1
    assert "2 submitted, 1 skipped." in skipped.err
    assert "1 of 3 lines were left out" in skipped.err
    known_by_the_tables(cli, 2)


def test_many_bad_lines(cli: CommandLine, pool: str) -> None:
    """The first ten are named, the others counted; bytes that are no text are a bad line too."""
    Path("tasks.jsonl").write_bytes(b"\xff\n" + b"7\n" * 11 + b'{"kind": "a"}\n')
    done = cli("submit", "--lines", "tasks.jsonl")

    assert done.code == 2
    assert "line 1 of tasks.jsonl: it is not UTF-8 text" in done.err
    assert "line 10 of tasks.jsonl" in done.err
    assert "line 11 of tasks.jsonl" not in done.err
    assert "... and 2 more" in done.err
    assert "12 lines are no task" in done.err


def test_a_refused_line_stops_and_a_corrected_file_goes_on(
    cli: CommandLine, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the owner can say that an id is taken: nothing behind it is sent; the batch's id leaves out what is in."""
    monkeypatch.setattr(lines_module, "BATCH_LINES", 1)
    monkeypatch.setattr(submitting_lines, "BATCH_LINES", 1)
    assert cli("submit", "other", "--id", "taken").code == 0
    tasks = ['{"kind": "a", "payload": 1}', '{"kind": "a", "id": "taken"}', *['{"kind": "a", "payload": 2}'] * 3]
    Path("tasks.jsonl").write_text("\n".join(tasks) + "\n")
    done = cli("submit", "--lines", "tasks.jsonl")
    assert done.code == 1
    assert "line 2: id: task taken exists with other content [id_conflict]" in done.err
    assert "2 of 5 lines are in." in done.err
    assert "line 2 was refused, the reason stands above: nothing more was sent." in done.err
    batch = done.err.partition("--command-id ")[2].split()[0]
    known_by_the_tables(cli, 3)

    Path("tasks.jsonl").write_text("\n".join(tasks).replace("taken", "free") + "\n")
    corrected = cli("submit", "--lines", "tasks.jsonl", "--command-id", batch)
    assert corrected.code == 0
    assert sorted(task["kind"] for task in known_by_the_tables(cli, 6)) == ["a"] * 5 + ["other"]


def test_a_full_queue_takes_the_rest_later(cli: CommandLine, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may succeed later is no bad line: it is sent again until there is room."""
    assert cli("pool", "create", pool, "queue_max=3").code == 0
    Path("words.txt").write_text("a\nb\nc\nd\ne\n")
    submitting = subprocess.Popen(
        [PROGRAM, "submit", "k", "--lines", "words.txt", "--timeout", "60"], stderr=-1, text=True
    )
    until(lambda: len(waiting(cli)) == 3, "a full queue")
    assert submitting.poll() is None
    assert cli("cancel", "--where", "kind=k", "--yes").code == 0
    said = submitting.communicate(timeout=60)[1]

    assert (submitting.returncode, said) == (0, "5 submitted.\n")
    assert payloads(cli) == ["a", "b", "c", "d", "e"]


def test_refused_lines_can_be_skipped(cli: CommandLine, pool: str) -> None:
    """Each with its number and reason; the others are in; exit code 1."""
    assert cli("submit", "other", "--id", "taken").code == 0
    Path("tasks.jsonl").write_text('{"kind": "a", "id": "taken"}\n{"kind": "a", "lease_s": 0.1}\n{"kind": "b"}\n')
    done = cli("submit", "--lines", "tasks.jsonl", "--bad-lines", "skip", "--json")

    assert done.code == 1
    assert [one.get("line", one.get("state")) for one in objects(done.out)] == [1, 2, "WAITING"]
    assert objects(done.out)[1]["problem"]["reason"] == "lease_too_short"
    assert "2 of 3 lines were left out" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lines", "tasks.jsonl", "--not-before", "2h"], "with --lines write an instant"),
        (["--lines", "tasks.jsonl", "--end-by", "1d"], "with --lines write an instant"),
        (
            ["--lines", "tasks.jsonl", "--again", "--command-id", "3f0b6a8e-0000-4000-8000-000000000000"],
            "--again makes",
        ),
        (["k", "--again"], "--again and --bad-lines belong to --lines"),
        (["--lines", "nothing.jsonl"], "nothing.jsonl cannot be read (no such file or directory)"),
    ],
)
def test_options_that_do_not_fit_together(cli: CommandLine, pool: str, words: list[str], said: str) -> None:
    """Wrong usage, said before anything is asked."""
    Path("tasks.jsonl").write_text('{"kind": "a"}\n')
    done = cli("submit", *words)
    assert done.code == 2
    assert said in done.err


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    """What was not checked is not sent as if it had been."""
    path = tmp_path / "growing.txt"
    path.write_text("one\ntwo\n")
    file = LinesFile(str(path), "k", {})
    checked = file.check(BIG)
    with path.open("a") as writer:
        writer.write("thr")

    with pytest.raises(Problem, match=r"growing.txt changed while it was submitted"):
        list(file.tasks(checked, file.batch(checked)))
    file.close()


def test_ids_follow_from_content_and_line(tmp_path: Path) -> None:
    """Equal lines are told apart by their order; a line keeps its id when others come or go in the same batch."""

    def ids(text: str) -> list[str]:
        path = tmp_path / "lines.txt"
        path.write_text(text)
        file = LinesFile(str(path), "k", {})
        found = [task["id"] for _, task in file.tasks(file.check(BIG), "batch")]
        file.close()
        return found

    one, two, three = ids("a\nb\na\n")
    assert len({one, two, three}) == 3
    assert ids("b\na\na\nc\n")[:3] == [two, one, three]
    assert Checked() == Checked(0, "", {})


def test_the_size_of_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines and their length: said in one sentence."""
    path = tmp_path / "lines.txt"
    path.write_text("a\n" * 4)
    file = LinesFile(str(path), "k", {})
    monkeypatch.setattr(lines_module, "LINES_MAX", 3)
    with pytest.raises(Problem, match="more than 3 lines: split it"):
        file.check(BIG)
    monkeypatch.setattr(lines_module, "LINE_BYTES_MAX", 2)
    with pytest.raises(Problem, match=r"line 1 of .* has more than 2 bytes"):
        file.check(BIG)
    file.close()
