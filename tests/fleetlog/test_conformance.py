"""`fleetlog conformance`: good robots and gateways pass, what breaks a rule fails at the row of that rule."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fleetlog.conftest import PROGRAM, CommandLine, Done
from tests.support.fleet import Fleet, until
from tests.support.ports import free_port
from tests.support.proxy import Link, Proxy, Way
from tests.support.robots_under_test import SHELL_WORK, built_c_robot

SMALL_ROBOT = [sys.executable, str(Path(__file__).parents[1] / "support" / "small_robot.py")]
PLACES = ["{gateway}", "{pool}", "{robot}"]
PATIENCE = ["--timeout", "60"]


def rows_of(done: Done) -> dict[str, Any]:
    """What `--json` told of each row, by name; the summary under ""."""
    told = [json.loads(line) for line in done.lines]
    return {item["row"]: item for item in told[:-1]} | {"": told[-1]}


# ---- robots ----


def test_the_c_example_passes_every_row(cli: CommandLine) -> None:
    """A robot in another language, from its command line alone: every row is played and passes."""
    listed = cli("conformance", "robot", "--list", "--json").lines
    done = cli("conformance", "robot", "--json", *PATIENCE, "--", str(built_c_robot()), *PLACES)

    assert done.code == 0, done
    rows = rows_of(done)
    assert rows[""]["passed"] == len(listed) == len(rows) - 1
    assert rows[""]["failed"] == 0
    assert [json.loads(line)["row"] for line in listed] == list(rows)[:-1]


def test_the_shell_robot_passes(cli: CommandLine, tmp_path: Path) -> None:
    """It is told by its environment where the gateway is, and finds its command in the folder of the call."""
    (tmp_path / "work.sh").write_text(SHELL_WORK)
    only = [word for name in ("hello/first", "fail/*", "cancel/*", "close/400[1-4]") for word in ("--only", name)]
    command = [str(PROGRAM), "robot", "--id", "{robot}", "--kind", "work=sh work.sh"]
    done = cli("conformance", "robot", *PATIENCE, *only, "--", *command)

    assert done.code == 0, done
    assert [line.split("\t")[:2] for line in done.lines][:3] == [
        ["pass", "hello/first"],
        ["pass", "fail/retryable"],
        ["pass", "fail/fatal"],
    ]
    assert "all 9 rows passed" in done.err


BROKEN = {
    "no-heartbeats": ("heartbeat/regular", "expected a heartbeat; no heartbeat came"),
    "starts-early": ("accept/starts-after-its-ack", "expected no message for 0.5 s"),
    "deaf": ("cancel/message", "expected stopped"),
    "comes-back": ("close/4001", "expected no connection for 1 s; robot r1 came"),
    "one-number": ("assign/repeated", "seq 1 instead of"),
    "crashes": ("reject/no-slot", "the program ended with exit code 1: no gripper"),
    "nonsense": ("heartbeat/regular", "no message of the protocol"),
}
"""What the small robot does wrong -> the row that fails, and what is said about it."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_robot_that_breaks_a_rule_fails_at_its_row(cli: CommandLine, rule: str) -> None:
    """Exit code 1, and a sentence with what was expected and what came; without the fault the row passes."""
    row, said = BROKEN[rule]
    words = ["conformance", "robot", "--json", "--timeout", "8", "--only", row, "--", *SMALL_ROBOT, *PLACES]
    good, broken = cli(*words), cli(*words, rule)

    assert good.code == 0, good
    assert rows_of(good)[row]["problem"] is None
    assert broken.code == 1
    told = rows_of(broken)
    assert said in told[row]["problem"]
    assert told[""] | {"seconds": 0} == {"rows": 1, "passed": 0, "failed": 1, "seconds": 0}
    assert "1 of 1 rows failed" in broken.err


def test_a_bar_does_not_take_what_goes_to_a_file(tmp_path: Path) -> None:
    """With standard error at a terminal there is a bar; the rows stand in the file that standard output goes to."""
    ours, theirs = pty.openpty()
    command = ["conformance", "robot", "--only", "close/400[1-4]", "--", *SMALL_ROBOT, *PLACES]
    with (tmp_path / "rows").open("wb") as rows:
        running = subprocess.Popen([PROGRAM, *command], stdout=rows, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # nobody holds the other side any more
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert running.wait(60) == 0, seen
    assert b"rows" in seen
    assert [line.split("\t")[:1] for line in (tmp_path / "rows").read_text().splitlines()] == [["pass"]] * 4


def test_an_interruption_leaves_no_robot_behind(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, and the program that was started is gone."""
    pid = tmp_path / "pid"
    command = ["conformance", "robot", "--timeout", "500", "--", "sh", "-c", f"echo $$ > {pid}; exec sleep 500"]
    running = subprocess.Popen([PROGRAM, *command], stderr=subprocess.DEVNULL)
    until(lambda: pid.is_file() and pid.read_text().strip(), "the robot's start")
    running.send_signal(signal.SIGINT)

    assert running.wait(60) == 130
    until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the robot's end")


# ---- gateways ----


class Meddler(Proxy):
    """A proxy that changes what goes through it, one way, to something else of the same length."""

    def __init__(self, target: str, way: Way, wrong: dict[bytes, bytes]) -> None:
        super().__init__(target)
        self._way, self._wrong = way, wrong

    def let_through(self, link: Link, way: Way, piece: bytes) -> bytes | None:
        if way == self._way:
            for found, instead in self._wrong.items():
                piece = piece.replace(found, instead)
        return piece


@pytest.fixture
def target(fleet: Fleet) -> str:
    """HOST:PORT of a running Fleetlog."""
    return fleet.url.removeprefix("http://")


def test_a_gateway_passes_over_both_transports(fleet: Fleet, cli: CommandLine) -> None:
    """The rows of the gateway of `fleetlog up`; those about polling over polling alone; nothing is left behind."""
    only = ["--only", "hello/*", "--only", "poll/*", "--only", "fail/right"]
    done = cli("conformance", "gateway", fleet.url, "--json", *PATIENCE, *only)

    assert done.code == 0, done
    told = [json.loads(line) for line in done.lines[:-1]]
    played = {
        transport: [t["row"] for t in told if t["transport"] == transport] for transport in ("websocket", "polling")
    }
    assert "hello/two-programs" in played["websocket"]
    assert not [row for row in played["websocket"] if row.startswith("poll/")]
    assert played["polling"] == [*played["websocket"], *[t["row"] for t in told if t["row"].startswith("poll/")]]
    where = ["--gateway", fleet.url, "--pool", "conformance"]
    until(lambda: not cli("tasks", "--where", "state=WAITING", *where).lines, "no waiting tasks")
    until(lambda: not cli("dead-letters", *where).lines, "no dead letters")
    until(lambda: not cli("robots", *where).lines, "no robots")


def test_a_proxy_without_websockets_fails_over_websocket_alone(cli: CommandLine, target: str) -> None:
    """A proxy that does not pass the upgrade on: the sentence says what the handshake was answered with."""
    with Meddler(target, "requests", {b"Upgrade: websocket": b"Upgraded: to-older"}) as proxy:
        only = ["--only", "hello/welcome", "--only", "ready/right"]
        done = cli("conformance", "gateway", f"http://{proxy.address}", "--json", *PATIENCE, *only)

    assert done.code == 1
    told = [json.loads(line) for line in done.lines[:-1]]
    assert [(t["row"], t["passed"]) for t in told if t["transport"] == "polling"] == [
        ("hello/welcome", True),
        ("ready/right", True),
    ]
    for t in told[:2]:
        assert (t["transport"], t["passed"]) == ("websocket", False)
        assert "expected a WebSocket; HTTP 400" in t["problem"], t
        assert "protocol_version" in t["problem"]
    assert "2 of 4 rows failed" in done.err


def test_a_proxy_that_changes_a_message_fails_at_its_row(cli: CommandLine, target: str) -> None:
    """A heartbeat_ack without `draining`: the row that needs it fails, others do not."""
    with Meddler(target, "answers", {b'"draining":': b'"drowning":'}) as proxy:
        only = ["--only", "hello/repeated", "--only", "session/draining"]
        done = cli("conformance", "gateway", f"http://{proxy.address}", "--transport", "websocket", *PATIENCE, *only)

    assert done.code == 1
    by_row = {line.split("\t")[1]: line for line in done.lines}
    assert by_row["hello/repeated (websocket)"].startswith("pass")
    failed = by_row["session/draining (websocket)"]
    assert failed.startswith("FAIL")
    assert "After drain a heartbeat_ack says draining. -- expected a field 'draining'; {" in failed


def test_a_gateway_with_tokens(cli: CommandLine, tmp_path: Path) -> None:
    """An operator's token for the tasks and a robot's for the sessions; without them a sentence that says so."""
    words = {
        "operator": ["ada", "--role", "operator"],
        "robot": ["arm", "--role", "robot", "--robots", "conformance-*"],
    }
    for role, made in words.items():
        told = cli("token", "new", *made, "--quiet")
        (tmp_path / role).write_text(told.lines[0])
        (tmp_path / role).chmod(0o600)
    with Fleet(tmp_path / "data", gateway={"tokens": str(tmp_path / "tokens.toml")}) as fleet:
        rows = ["conformance", "gateway", fleet.url, "--only", "accept/right", *PATIENCE]
        nobody = cli(*rows)
        robot = cli(*rows, "--token-file", "robot")
        done = cli(*rows, "--token-file", "operator", "--robot-token-file", "robot")

    assert (nobody.code, robot.code) == (1, 1)
    assert "[unauthenticated]): let an operator run `fleetlog pool create conformance window_s=60" in nobody.err
    assert "[forbidden]" in robot.err
    assert done.code == 0, done


# ---- what cannot be played ----


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("robot", 2, "give the command that starts it after `--`"),
        ("robot -- ./no-such-robot", 2, "./no-such-robot cannot be started (no such file or directory): correct the"),
        ("robot -- sh -c 'echo no gripper >&2; exit 4'", 1, "the program ended with exit code 4: no gripper; tell"),
        ("robot --timeout 6 -- sleep 500", 1, "no robot said hello in 6 s; tell your program where the gateway is"),
        ("robot --only heloo -- true", 2, "no row is called 'heloo': see them with --list"),
        ("gateway http://127.0.0.1:{free}", 3, "no gateway answers at http://127.0.0.1:{free} (connection refused)"),
        ("gateway 127.0.0.1:8780", 2, "'127.0.0.1:8780' is no address of a gateway: write http://HOST:PORT"),
        ("gateway --only 'poll/*' --transport websocket", 2, "no row is called 'poll/*'"),
    ],
)
def test_what_cannot_be_played_is_said_in_a_sentence(cli: CommandLine, words: str, code: int, said: str) -> None:
    """One sentence with what to do."""
    free = str(free_port())
    done = cli("conformance", *shlex.split(words.replace("{free}", free)))

    assert done.code == code, done
    assert said.replace("{free}", free).lower() in done.err.lower()
    assert len(done.err.splitlines()) == 1


def test_a_pool_with_other_windows_is_not_played_in(cli: CommandLine, fleet: Fleet) -> None:
    """The pool that is named exists, for something else."""
    assert cli("pool", "create", "hall-z", "window_s=5", "lease_s=15", "--gateway", fleet.url).code == 0
    done = cli("conformance", "gateway", fleet.url, "--pool", "hall-z")

    assert done.code == 1
    assert "the pool hall-z has windows of 5" in done.err
    assert "name another with --pool" in done.err


def test_an_interruption_leaves_nothing_in_the_gateway(fleet: Fleet, cli: CommandLine) -> None:
    """Ctrl-C in the middle of the rows: those that were being played put things in order, no further one begins."""
    command = ["conformance", "gateway", fleet.url, "--pool", "hall-i", "--only", "checkpoint/*", "--at-once", "1"]
    where = ["--gateway", fleet.url, "--pool", "hall-i"]
    running = subprocess.Popen([PROGRAM, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: cli("tasks", "--where", "state=RUNNING", *where).lines, "a running task")
    running.send_signal(signal.SIGINT)

    assert running.wait(60) == 130
    until(lambda: not cli("robots", *where).lines, "no robots")
    until(lambda: not cli("tasks", "--where", "state=RUNNING", *where).lines, "no running tasks")
