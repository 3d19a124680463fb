"""Shell commands as handlers: payload in, exit code and result out, process groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from commands.messages import Assign, AssignCheckpoint
from robot_gateway.conformance.fake_gateway import FakeGateway
from robot_gateway.sdk.endings import Ending
from robot_gateway.sdk.nursery import Nursery, _nurse
from robot_gateway.sdk.programs import CommandRun
from robot_gateway.sdk.shell import parse_kind, shell_robot
from tests.robot_gateway.sdk.test_processes import PROJECT, alive
from tests.support.ending import with_us
from tests.support.fleet import CEILING_S, until

Run = Callable[..., Ending]


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


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where the commands come from."""
    nursery = Nursery(lambda _: None)
    yield nursery
    nursery.close()


@pytest.fixture
def run(nursery: Nursery) -> Run:
    """What a command comes to: run(command, payload, **fields of the assignment)."""
    return lambda command, payload=None, **fields: CommandRun(command, assign(payload, **fields), nursery).work()


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
def test_what_is_printed_is_the_result(run: Run, printed: str, result: bytes | None) -> None:
    """A JSON object or array as such; otherwise text without its last newline; nothing: no result."""
    assert run(printed) == Ending("complete", result)


@pytest.mark.parametrize(
    ("payload", "stdin"), [("hello", "hello"), ({"a": "é"}, '{"a":"é"}'), (3, "3"), (None, ""), ("", "")]
)
def test_the_payload_comes_on_standard_input(run: Run, payload: Any, stdin: str) -> None:
    """A string as bare text, everything else as JSON, nothing if there is none."""
    printed = run("printf '<'; cat; printf '>'", payload).value
    assert printed is not None
    assert json.loads(printed) == f"<{stdin}>"


def test_a_payload_that_nobody_reads_blocks_nobody(run: Run) -> None:
    """200 KB, and a command that does not look at them."""
    assert run("echo done", "x" * 200_000).value == b'"done"'


@pytest.mark.parametrize(
    ("code", "fatal"),
    [(1, False), (2, False), (63, False), (64, True), (65, True), (126, True), (127, True), (128, False), (255, False)],
)
def test_exit_codes(run: Run, code: int, fatal: bool) -> None:
    """64, 65, 126, 127 are fatal; all others but 0 are tried again."""
    ending = run(f"echo it went wrong >&2; exit {code}")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", fatal, "Exit")
    assert f"exit code {code}: it went wrong" in ending.text
    assert ending.value == b'{"exit":%d,"stderr":"it went wrong"}' % code


def test_a_command_that_is_not_there(run: Run) -> None:
    """127: fatal."""
    ending = run("no-such-command-anywhere")
    assert (ending.kind, ending.fatal) == ("fail", True)


def test_death_by_signal_is_retryable(run: Run) -> None:
    """SIGKILL, as the memory killer does."""
    ending = run("kill -KILL $$")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", False, "Signal")
    assert "SIGKILL" in ending.text


def test_the_environment_says_more(run: Run) -> None:
    """Task, attempt, kind, key; the checkpoint only if there is one."""
    names = "TASK ATTEMPT KIND IDEMPOTENCY_KEY CHECKPOINT"
    show = " ".join(f'"${{FLEETLOG_{name}-none}}"' for name in names.split())
    assert run(f"echo {show}").value == b'"t1 3 run k1 none"'
    saved = AssignCheckpoint(number=1, value={"at": 7})
    assert run(f"echo {show}", checkpoint=saved).value == b'"t1 3 run k1 {\\"at\\":7}"'


def test_too_much_output_is_a_fatal_failure(run: Run) -> None:
    """And the command is stopped there, however much more it wants to print."""
    ending = run("yes")
    assert (ending.kind, ending.fatal, ending.error_type) == ("fail", True, "TooLarge")


@pytest.mark.parametrize("how", ["kill", "cancel"])
def test_the_whole_process_group_ends(nursery: Nursery, tmp_path: Path, how: str) -> None:
    """SIGKILL when the lease is over, SIGTERM when asked to end: children of the command too; then `stopped`."""
    file = tmp_path / "pid"
    running = CommandRun(f"sleep 600 & echo $! > {file}; wait", assign(), nursery)
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(running.work()))
    thread.start()
    pid = int(until(lambda: file.exists() and file.read_text().strip(), "the pid"))
    running.kill("stop") if how == "kill" else running.cancel("cancel")
    thread.join(CEILING_S)
    assert endings == [Ending("stopped")]
    until(lambda: not alive(pid), "the end of the child")


def test_a_command_that_finishes_although_asked_to_end_has_completed(nursery: Nursery, tmp_path: Path) -> None:
    """It catches SIGTERM, cleans up, exits 0: the work is done."""
    file = tmp_path / "ready"
    command = f"trap 'echo cleaned; exit 0' TERM; touch {file}; while true; do sleep 0.05; done"
    running = CommandRun(command, assign(), nursery)
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(running.work()))
    thread.start()
    until(file.exists, "its start")
    running.cancel("cancel")
    thread.join(CEILING_S)
    assert endings == [Ending("complete", b'"cleaned"')]


def test_killed_before_it_began(nursery: Nursery) -> None:
    """A stop that comes before the process is there is not lost."""
    running = CommandRun("sleep 600", assign(), nursery)
    running.kill("stop")
    assert running.work() == Ending("stopped")


def test_what_it_leaves_in_the_background_is_killed(run: Run, tmp_path: Path) -> None:
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


def test_a_command_begins_as_from_a_shell(run: Run) -> None:
    """The signals that Python ignores end it (`yes | head -1` works), no file but the three is open."""
    for name in ("PIPE", "XFSZ", "TERM", "HUP", "INT"):
        assert f"SIG{name}" in run(f"kill -{name} $$").text
    assert run("ls /proc/$$/fd | tr '\\n' ' '").value == b'"0 1 2 "'


def test_a_checkpoint_that_is_too_large_for_an_environment(run: Run) -> None:
    """The system does not start the command: a failure in words."""
    ending = run("true", checkpoint=AssignCheckpoint(number=1, value="x" * 200_000))
    assert (ending.kind, ending.fatal) == ("fail", False)
    assert "the command cannot be started" in ending.text


def test_a_nursery_that_ends_lets_its_wakeup_go() -> None:
    """Commands that die with their robot wake nobody then: Python would write a traceback to the terminal."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        ended = 1
        with contextlib.suppress(BaseException):
            _nurse(theirs, lambda _: None)
            ended = int(signal.set_wakeup_fd(-1) != -1)
        os._exit(ended)
    theirs.close()
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_without_its_nursery_a_command_fails_in_words(tmp_path: Path) -> None:
    """The nursery is killed: the leader goes with it (Linux), the attempt fails; the next one cannot start."""
    nursery, file = Nursery(lambda _: None), tmp_path / "pid"
    running = CommandRun(f"echo $$ > {file}; exec sleep 600", assign(), nursery)
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(running.work()))
    thread.start()
    pid = int(until(lambda: file.exists() and file.read_text().strip(), "the pid"))
    os.kill(nursery._pid, signal.SIGKILL)
    thread.join(CEILING_S)
    assert [ending.error_type for ending in endings] == ["ProcessDied"]
    until(lambda: not alive(pid), "the end of the command")
    assert CommandRun("true", assign(), nursery).work().error_type == "CannotStart"
    nursery.close()


# ---- what becomes of commands when the robot does nothing any more ----

COMMAND = "sh -c 'sleep 600 & echo $! >> {file}; sleep 600' & echo $! $$ >> {file}; sleep 600; echo never"


class ShellRobot:
    """A `fleetlog robot` with a task that runs: its process, and the pids of the command and what it started."""

    def __init__(self, gateway: FakeGateway, file: Path, *, command: str = COMMAND, stop_after_ms: int = 600_000):
        command = command.format(file=file)
        words = ["robot", "--gateway", gateway.url, "--id", "r1", "--kind", f"work={command}"]
        self.process = subprocess.Popen(
            with_us([sys.executable, "-m", "fleetlog", *words]),
            cwd=PROJECT,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.session = gateway.session()
        self.session.ready()
        self.session.start("t1", lease={"stop_after_ms": stop_after_ms})
        until(lambda: file.exists() and len(file.read_text().split()) == 3, "the pids")
        self.pids = [int(pid) for pid in file.read_text().split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until_all_are_gone(self) -> None:
        """The command and all that it started."""
        until(lambda: not any(map(alive, self.pids)), "the end of the command")


@pytest.mark.parametrize("whole_group", [False, True])
def test_when_the_robot_is_killed_its_commands_end(gateway: FakeGateway, tmp_path: Path, whole_group: bool) -> None:
    """SIGKILL of the robot, or of its process group: the command ends with its children and grandchildren."""
    with ShellRobot(gateway, tmp_path / "pids") as robot:
        assert all(map(alive, robot.pids))
        (os.killpg if whole_group else os.kill)(robot.process.pid, signal.SIGKILL)
        robot.until_all_are_gone()


def test_a_stopped_robot_does_not_keep_its_command(gateway: FakeGateway, tmp_path: Path) -> None:
    """SIGSTOP: the command ends when the lease can have ended, while the robot stands; it says `stopped` later."""
    with ShellRobot(gateway, tmp_path / "pids", stop_after_ms=4_000) as robot:
        os.kill(robot.process.pid, signal.SIGSTOP)
        robot.until_all_are_gone()
        assert "\nState:\tT" in Path(f"/proc/{robot.process.pid}/status").read_text()
        os.kill(robot.process.pid, signal.SIGCONT)
        robot.session.ack(robot.session.expect("stopped", why="own_deadline"))


def test_a_command_outlives_its_first_lease(gateway: FakeGateway, tmp_path: Path) -> None:
    """Each renewal moves the deadline at which it would be ended from outside."""
    command = "echo 1 2 3 >> {file}; sleep 6; echo done"
    with ShellRobot(gateway, tmp_path / "pids", command=command, stop_after_ms=4_000) as robot:
        robot.session.ack(robot.session.expect("complete", result="done"))


# ---- how a robot of commands ends when asked to ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_robot_at_work_says_what_it_waits_for(
    gateway: FakeGateway, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The first signal: one line at once, the task goes on. The second: its end and the task's, with that exit code."""
    with ShellRobot(gateway, tmp_path / "pids") as robot:
        stderr = robot.process.stderr
        assert stderr is not None
        robot.process.send_signal(number)
        line = next(line for line in stderr if "waiting" in line)
        assert "1 task runs; waiting up to 30 s, Ctrl-C (or SIGTERM) again ends at once" in line
        assert all(map(alive, robot.pids))
        robot.process.send_signal(number)
        robot.until_all_are_gone()
        assert robot.process.wait(CEILING_S) == code


def test_a_robot_whose_work_ends_in_time_exits_with_0(gateway: FakeGateway, tmp_path: Path) -> None:
    """It takes nothing new, the report arrives, it says bye."""
    command = "echo 1 2 3 >> {file}; while [ ! -e {file}.go ]; do sleep 0.05; done; echo done"
    with ShellRobot(gateway, tmp_path / "pids", command=command) as robot:
        robot.process.send_signal(signal.SIGINT)
        robot.session.ack(robot.session.expect("ready", n=0))
        (tmp_path / "pids.go").touch()
        robot.session.ack(robot.session.expect("complete", result="done"))
        robot.session.ack(robot.session.expect("bye"))
        assert robot.process.wait(CEILING_S) == 0
