"""Shell commands as handlers: payload in, exit code and result out, process groups."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from commands.messages import Assign, AssignCheckpoint
from robot_gateway.sdk.endings import Ending
from robot_gateway.sdk.programs import CommandRun
from robot_gateway.sdk.shell import parse_kind, shell_robot
from tests.robot_gateway.sdk.test_processes import alive
from tests.support.fleet import CEILING_S, until


def assign(payload: Any = None, **fields: Any) -> Assign:
    """An assignment of kind `run`."""
    return Assign(
        assignment_id="a",
        task="t1",
        attempt=3,
        kind="run",
        payload=payload,
        idempotency_key="k1",
        slot_cost=1,
        accept_within_ms=1,
        lease_ms=1,
        failures=0,
        lost=0,
        **fields,
    )


def run(command: str, payload: Any = None, **fields: Any) -> Ending:
    """What a command comes to."""
    return CommandRun(command, assign(payload, **fields)).work()


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        ("printf hello", b'"hello"'),
        ("echo hello", b'"hello"'),
        ("printf 'a\\nb\\n\\n'", b'"a\\nb\\n"'),
        ("echo '{\"a\": [1, null]}'", b'{"a":[1,null]}'),
        ("echo '[1, 2]'", b"[1,2]"),
        ("echo 42", b'"42"'),
        ("echo '{not json'", b'"{not json"'),
        ("true", None),
        ("printf '\\377'", '"\ufffd"'.encode()),
    ],
)
def test_what_is_printed_is_the_result(printed: str, result: bytes | None) -> None:
    """A JSON object or array as such; otherwise text without its last newline; nothing: no result."""
    assert run(printed) == Ending("complete", result)


@pytest.mark.parametrize(
    ("payload", "stdin"), [("hello", "hello"), ({"a": "é"}, '{"a":"é"}'), (3, "3"), (None, ""), ("", "")]
)
def test_the_payload_comes_on_standard_input(payload: Any, stdin: str) -> None:
    """A string as bare text, everything else as JSON, nothing if there is none."""
    printed = run("printf '<'; cat; printf '>'", payload).value
    assert printed is not None
    assert json.loads(printed) == f"<{stdin}>"


def test_a_payload_that_nobody_reads_blocks_nobody() -> None:
    """200 KB, and a command that does not look at them."""
    assert run("echo done", "x" * 200_000).value == b'"done"'


@pytest.mark.parametrize(
    ("code", "fatal"),
    [(1, False), (2, False), (63, False), (64, True), (65, True), (126, True), (127, True), (128, False), (255, False)],
)
def test_exit_codes(code: int, fatal: bool) -> None:
    """64, 65, 126, 127 are fatal; all others but 0 are tried again."""
    ending = run(f"echo it went wrong >&2; exit {code}")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", fatal, "Exit")
    assert f"exit code {code}: it went wrong" in ending.text
    assert ending.value == b'{"exit":%d,"stderr":"it went wrong"}' % code


def test_a_command_that_is_not_there() -> None:
    """127: fatal."""
    ending = run("no-such-command-anywhere")
    assert (ending.kind, ending.fatal) == ("fail", True)


def test_death_by_signal_is_retryable() -> None:
    """SIGKILL, as the memory killer does."""
    ending = run("kill -KILL $$")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", False, "Signal")
    assert "SIGKILL" in ending.text


def test_the_environment_says_more() -> None:
    """Task, attempt, kind, key; the checkpoint only if there is one."""
    names = "TASK ATTEMPT KIND IDEMPOTENCY_KEY CHECKPOINT"
    show = " ".join(f'"${{FLEETLOG_{name}-none}}"' for name in names.split())
    assert run(f"echo {show}").value == b'"t1 3 run k1 none"'
    saved = AssignCheckpoint(number=1, value={"at": 7})
    assert run(f"echo {show}", checkpoint=saved).value == b'"t1 3 run k1 {\\"at\\":7}"'


def test_too_much_output_is_a_fatal_failure() -> None:
    """And the command is stopped there, however much more it wants to print."""
    ending = run("yes")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", True, "TooLarge")


@pytest.mark.parametrize("how", ["kill", "cancel"])
def test_the_whole_process_group_ends(tmp_path: Path, how: str) -> None:
    """SIGKILL when the lease is over, SIGTERM when asked to end: children of the command too; then `stopped`."""
    file = tmp_path / "pid"
    running = CommandRun(f"sleep 600 & echo $! > {file}; wait", assign())
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(running.work()))
    thread.start()
    pid = int(until(lambda: file.exists() and file.read_text().strip(), "the pid"))
    running.kill("stop") if how == "kill" else running.cancel("cancel")
    thread.join(CEILING_S)
    assert endings == [Ending("stopped")]
    until(lambda: not alive(pid), "the end of the child")


def test_a_command_that_finishes_although_asked_to_end_has_completed(tmp_path: Path) -> None:
    """It catches SIGTERM, cleans up, exits 0: the work is done."""
    file = tmp_path / "ready"
    command = f"trap 'echo cleaned; exit 0' TERM; touch {file}; while true; do sleep 0.05; done"
    running = CommandRun(command, assign())
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(running.work()))
    thread.start()
    until(file.exists, "its start")
    running.cancel("cancel")
    thread.join(CEILING_S)
    assert endings == [Ending("complete", b'"cleaned"')]


def test_killed_before_it_began() -> None:
    """A stop that comes before the process is there is not lost."""
    running = CommandRun("sleep 600", assign())
    running.kill("stop")
    assert running.work() == Ending("stopped")


def test_what_it_leaves_in_the_background_is_killed(tmp_path: Path) -> None:
    """A command that ends while its child holds the output open: done at once, the child is gone."""
    file = tmp_path / "pid"
    begun = time.monotonic()
    assert run(f"sleep 600 & echo $! > {file}; echo done").value == b'"done"'
    assert time.monotonic() - begun < 30
    pid = int(file.read_text())
    until(lambda: not alive(pid), "the end of the child")


def test_kinds_as_written_on_the_command_line() -> None:
    """NAME='COMMAND'; anything else is answered with what to write."""
    assert parse_kind("checksum=sha256sum -") == ("checksum", "sha256sum -")
    assert parse_kind("x=a=b") == ("x", "a=b")
    for wrong in ("checksum", "=x", "checksum=", "checksum= "):
        with pytest.raises(ValueError, match="write for example --kind"):
            parse_kind(wrong)
    with pytest.raises(ValueError, match="cannot be a kind"):
        shell_robot("r1", {"no spaces": "x"})
    assert shell_robot("r1", {"a": "x", "b": os.devnull}, slots=3).id == "r1"
