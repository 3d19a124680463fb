"""Task verbs with `--where`: dry run, token, summary by outcome and reason, and how to go on after Ctrl-C."""

from __future__ import annotations

import json

import pytest

from fleetlog.cli import run
from tests.fleetlog.conftest import CommandLine
from tests.support.fleet import Fleet


@pytest.fixture
def filled(cli: CommandLine, pool: str) -> str:
    """Twelve tasks that nobody does: t0 to t11."""
    lines = "".join(json.dumps({"kind": "weld", "id": f"t{n}"}) + "\n" for n in range(12))
    done = cli("submit", "--lines", "-", stdin=lines)
    assert done.code == 0, done
    return pool


def test_a_dry_run_prints_a_token_and_the_token_acts(cli: CommandLine, filled: str) -> None:
    """On exactly what it found; what came later stays."""
    dry = cli("cancel", "--where", "kind=weld", "--dry-run")
    assert dry.code == 0
    assert "  t0  WAITING" in dry.err
    assert "  ... and 2 more" in dry.err
    assert "12 found: 12 WAITING." in dry.err
    token = dry.lines[0]
    assert f"do it: fleetlog cancel --token {token}" in dry.err
    assert cli("submit", "weld", "--id", "later").code == 0
    assert cli("cancel", "t4").code == 0

    done = cli("cancel", "--token", token, "--reason", "ordered twice")
    assert (done.code, done.lines) == (0, ["CANCELLED\t11", "unchanged\t1"])
    assert cli("tasks", "--where", "state=WAITING", "--columns", "id").lines == ["later"]
    again = cli("cancel", "--token", token)
    assert (again.code, again.lines) == (0, done.lines)
    assert "it was begun before" in again.err


def test_refusals_are_shown_and_counted_by_reason(cli: CommandLine, filled: str) -> None:
    """A task that left the fitting states meanwhile: exit code 1."""
    token = cli("change", "--where", "id=t1*", "--dry-run").lines[0]
    assert cli("cancel", "t10").code == 0
    done = cli("change", "--token", token, "--priority", "7")

    assert (done.code, done.lines) == (1, ["WAITING\t2", "refused wrong_state\t1"])
    assert "t10: task t10 is CANCELLED" in done.err
    assert "1 of 3 tasks were refused" in done.err


def test_json_is_one_object(cli: CommandLine, filled: str) -> None:
    """The answer to the dry run, and the work when it is over."""
    found = json.loads(cli("pause", "--where", "id=t3", "--dry-run", "--json").out)
    assert (found["count"], found["states"], len(found["examples"])) == (1, {"WAITING": 1}, 1)
    work = json.loads(cli("pause", "--token", found["token"], "--json").out)
    assert (work["id"], work["state"], work["outcomes"]) == (found["token"], "done", {"paused": 1})
    assert cli("resume", "--where", "paused=true", "--yes").lines == ["resumed\t1"]


def test_ctrl_c_says_how_to_go_on(
    cli: CommandLine, fleet: Fleet, filled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gateway goes on; the token looks, and ends it. Exit code 130."""
    token = cli("cancel", "--where", "id=t1*", "--dry-run").lines[0]

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fleetlog.bulk.time.sleep", interrupted)
        code = run(["cancel", "--token", token, "--reason", "it's late"])
    said = capsys.readouterr().err

    assert code == 130
    assert f"Look: fleetlog cancel --token {token} --reason 'it'\"'\"'s late'" in said
    assert f"fleetlog cancel --token {token} --reason 'it'\"'\"'s late' --stop" in said
    assert cli("cancel", "--token", token).lines == ["CANCELLED\t3"]
    stopped = cli("cancel", "--token", token, "--stop", "--json")
    assert (stopped.code, json.loads(stopped.out)["state"]) == (0, "done")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["t1", "--where", "kind=weld"], "give ids, --where or --token"),
        (["--where", "kind=weld", "--token", "x"], "give --where or --token, not both"),
        (["t1", "--dry-run"], "--dry-run belongs to --where"),
        (["--stop"], "--stop belongs to --token"),
        ([], "which tasks?"),
    ],
)
def test_options_that_do_not_fit_together(cli: CommandLine, pool: str, words: list[str], said: str) -> None:
    """Wrong usage, said before anything is asked."""
    done = cli("cancel", *words)
    assert done.code == 2
    assert said in done.err


def test_a_token_of_nobody_or_of_another_verb(cli: CommandLine, filled: str) -> None:
    """Refused with the reason and what to do."""
    unknown = cli("cancel", "--token", "3f0b6a8e-0000-4000-8000-000000000000")
    assert unknown.code == 1
    assert "[token_stale]" in unknown.err
    token = cli("cancel", "--where", "id=t1", "--dry-run").lines[0]
    assert "[token_stale]" in cli("pause", "--token", token).err
    assert cli("cancel", "--token", token).code == 0
    other = cli("pause", "--token", token)
    assert other.code == 1
    assert f"fleetlog cancel --token {token}" in other.err
