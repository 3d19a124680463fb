"""The demonstration works on real files from beginning to end; its referee believes nothing but log and files."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands.ids import ZERO_HASH, chain_hash
from fleetlog.archive import read_archive
from fleetlog.demo.children import listen_address, shell_command
from fleetlog.demo.files import SourceFile, path_in, standard_library, submission, task_of
from fleetlog.demo.referee import Killed, Verdict, judge
from fleetlog.demo.robot import compress
from tests.fleetlog.conftest import PROGRAM, CommandLine
from tests.fleetlog.test_examples import PLAYED
from tests.support.ports import free_port

FILES = int(PLAYED.split()[3])
Event = dict[str, Any]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One demonstration on a few files: its folder, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    words = [*shlex.split(PLAYED)[1:], "--data", str(folder), "--listen", f"127.0.0.1:{free_port()}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLOG_")}
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=environment, timeout=500)
    return folder, done


def test_the_demonstration_ends_well(played: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Every task once and right, leases lost, one restart, the log verified; the story told line by line."""
    _, done = played
    said = json.loads(done.stdout.splitlines()[-1])

    assert done.returncode == 0, done.stderr
    assert list(said) == [
        "tasks", "completed", "wrong_results", "completed_twice", "leases_lost", "restarts", "verified", "seconds",
    ]  # fmt: skip
    assert (said["tasks"], said["completed"]) == (FILES, FILES)
    assert (said["wrong_results"], said["completed_twice"], said["verified"]) == (0, 0, True)
    assert said["leases_lost"] >= 1
    assert said["restarts"] >= 1
    story = [re.sub(r"^ +[\d.]+ s  ", "", line) for line in done.stderr.splitlines()]
    for part in (
        "SIGKILL to robot py-1",
        "its lease ended",
        "goes on with it",
        "SIGKILL to Fleetlog itself",
        "it took over",
    ):
        assert any(line.startswith(part) or f" {part}" in line for line in story), (part, story)


def test_nothing_of_it_goes_on(played: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Its processes have ended: nobody uses the folder any more."""
    folder, _ = played
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout

    assert str(folder) not in running


# ---- the referee ----


def rewritten(source: Path, target: Path, change: Callable[[Event], list[Event]]) -> Path:
    """An export in which `change` made of each event others, with a chain that is whole."""
    chain, sequence, lines = ZERO_HASH, 0, []
    for record in read_archive(source):
        for event in change(json.loads(record.value)):
            sequence += 1
            value = json.dumps(event | {"sequence": sequence}, separators=(",", ":")).encode()
            chain = chain_hash(chain, value)
            lines.append(
                b'{"partition":0,"offset":%d,"appended_at":1,"pool":"default","hash":"%b","headers":{},"event":%b}\n'
                % (sequence, chain.hex().encode(), value)
            )
    target.write_bytes(b"".join(lines))
    return target


@pytest.fixture
def verdict_of(
    played: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> Callable[[Callable[[Event], list[Event]] | None], Verdict]:
    """What the referee says of the export after such a change."""
    folder, _ = played
    killed = _killed(folder / "events.jsonl")
    files = [file.path for file in standard_library(FILES)]

    def judged(change: Callable[[Event], list[Event]] | None) -> Verdict:
        export = folder / "events.jsonl"
        if change is not None:
            export = rewritten(export, tmp_path / "changed.jsonl", change)
        return judge(export, files, killed)

    return judged


def _killed(export: Path) -> Killed:
    """The kill as the log shows it: just before the first lease that expired."""
    events = [json.loads(record.value) for record in read_archive(export)]
    expired = next(event for event in events if event["type"] == "LeaseExpired.v1")
    started = next(e for e in events if e["type"] == "LeaseStarted.v1" and e["task"] == expired["task"])
    return Killed(expired["robot"], started["occurred_at"])


Judge = Callable[[Callable[[Event], list[Event]] | None], Verdict]


def test_the_referee_is_content_with_what_happened(verdict_of: Judge) -> None:
    """The export as it is: nothing wrong."""
    verdict = verdict_of(None)

    assert verdict.wrong() == []
    assert sum(robot.completed for robot in verdict.robots.values()) == FILES
    assert sum(size.files for size in verdict.sizes.values()) == FILES
    assert len(verdict.waits_ms) == verdict.attempts >= FILES
    assert verdict.resumed >= 1


def is_first_completion() -> Callable[[Event], bool]:
    """Whether this is the first TaskCompleted that it sees."""
    seen: list[str] = []

    def first(event: Event) -> bool:
        if event["type"] != "TaskCompleted.v1":
            return False
        seen.append(event["task"])
        return len(seen) == 1

    return first


def test_the_referee_sees_a_wrong_digest(verdict_of: Judge) -> None:
    """A result that is not what hashlib says over the file."""
    first = is_first_completion()

    def change(event: Event) -> list[Event]:
        return (
            [event | {"result": {"json": event["result"]["json"] | {"sha256": "0" * 64}}}] if first(event) else [event]
        )

    assert "1 results are not what hashlib says over the files." in verdict_of(change).wrong()


def test_the_referee_sees_a_task_that_was_completed_twice_or_never(verdict_of: Judge) -> None:
    """One event too many, one too few."""
    first, other = is_first_completion(), is_first_completion()
    twice = verdict_of(lambda event: [event, event] if first(event) else [event])
    never = verdict_of(lambda event: [] if other(event) else [event])

    assert "1 tasks were completed more than once." in twice.wrong()
    assert f"1 of {FILES} tasks were not completed." in never.wrong()
    assert not twice.verified
    assert never.tasks == FILES


def test_the_referee_misses_what_did_not_happen(verdict_of: Judge) -> None:
    """No lease that ended after the kill, no restart, a file without a task: each is said."""
    submitted: list[str] = []

    def change(event: Event) -> list[Event]:
        if event["type"] == "TaskSubmitted.v1" and not submitted:
            submitted.append(event["task"])
        gone = event["type"] in ("LeaseExpired.v1", "OwnershipTaken.v1") or event.get("task") in submitted
        return [] if gone else [event]

    wrong = verdict_of(change).wrong()
    assert "no lease that the killed robot held has ended by expiry." in wrong
    assert "the log shows no restart of Fleetlog." in wrong
    assert "1 files and tasks do not belong to each other." in wrong


def test_the_referee_sees_a_broken_chain(played: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """A flipped bit in the export."""
    folder, _ = played
    export = tmp_path / "flipped.jsonl"
    export.write_bytes((folder / "events.jsonl").read_bytes().replace(b'"progress":16', b'"progress":17', 1)
                       .replace(b'"level":', b'"leveL":', 1))  # fmt: skip
    verdict = judge(export, [file.path for file in standard_library(FILES)], Killed("py-1", 0))

    assert not verdict.verified
    assert any("the log does not verify" in sentence for sentence in verdict.wrong())


# ---- its parts ----


def test_the_work_is_the_standard_library() -> None:
    """Hundreds of files, largest first, each with an id that can be one."""
    files = standard_library()

    assert len(files) >= 500
    assert [file.size for file in files] == sorted((file.size for file in files), reverse=True)
    assert len({file.task for file in files}) == len(files)
    assert task_of(Path("json/decoder.py")) == "py:json:decoder.py"
    assert task_of(Path("a b.py")).startswith("py:")
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{,127}", file.task) for file in files)


def test_both_kinds_of_robots_say_the_same(tmp_path: Path) -> None:
    """The Python handler and the shell command agree on digest and size, whatever the name of the file."""
    path = tmp_path / "a file with blanks 'and' quotes.py"
    path.write_bytes(os.urandom(5000) + b"\n" * 5000)
    file = SourceFile("py:x", path, 10_000)
    by_shell = subprocess.run(
        ["sh", "-c", shell_command()], input=submission(file, False)["payload"], capture_output=True, text=True
    )
    by_python = compress(FakeContext(), submission(file, False)["payload"])  # type: ignore[arg-type]

    assert json.loads(by_shell.stdout).items() >= {name: by_python[name] for name in ("sha256", "bytes")}.items()
    assert 5000 < json.loads(by_shell.stdout)["compressed"] < 6000


class FakeContext:
    """What the handler needs of a context."""

    def __init__(self, last: Any = None) -> None:
        self.last_checkpoint = last
        self.saved: list[Any] = []

    def progress(self, percent: int, note: str) -> None:
        """Nothing."""

    def checkpoint(self, value: Any) -> None:
        """Kept."""
        self.saved.append(value)


def test_a_large_file_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Parts that were done are not done again, and the result is that of the whole file."""
    path = tmp_path / "large.py"
    path.write_bytes(b"0123456789" * 1000)
    payload = submission(SourceFile("py:x", path, 10_000), True)["payload"]
    whole, rest = FakeContext(), FakeContext()
    result = compress(whole, payload)  # type: ignore[arg-type]
    rest.last_checkpoint = whole.saved[2]
    resumed = compress(rest, payload)  # type: ignore[arg-type]

    assert path_in(payload) == path
    assert [value["done"] for value in whole.saved] == [1, 2, 3, 4, 5]
    assert [value["done"] for value in rest.saved] == [4, 5]
    assert (result["parts_here"], resumed["parts_here"]) == (6, 3)
    assert result | {"parts_here": 3} == resumed


def test_a_used_address_is_an_end_in_one_sentence(cli: CommandLine) -> None:
    """Fleetlog cannot start: said with its own last words, and nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("demo", "--files", "20", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--quiet")

    assert done.code == 1
    assert "the demonstration came to no end: Fleetlog ended: fleetlog: gateway.listen is" in done.err


def test_ctrl_c_ends_it_and_all_it_started(tmp_path: Path) -> None:
    """Exit code 130, no process left, no folder left."""
    words = ["demo", "--files", "200", "--listen", f"127.0.0.1:{free_port()}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLOG_")}
    demo = subprocess.Popen(
        [PROGRAM, *words], stderr=subprocess.PIPE, text=True, env=environment | {"TMPDIR": str(tmp_path)}
    )
    assert demo.stderr is not None
    for line in demo.stderr:
        if "robots are there" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest = demo.stderr.read()

    assert demo.wait(60) == 130
    assert "Traceback" not in rest
    give_up = time.monotonic() + 60
    while str(tmp_path) in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout:
        assert time.monotonic() < give_up, "something goes on"
        time.sleep(0.1)
    assert not list(tmp_path.glob("fleetlog-demo-*"))


def test_the_demonstration_comes_back_where_it_was() -> None:
    """Port 0 is a free one that is chosen once: what is killed and begun again is found there."""
    host, port = listen_address("127.0.0.1:0").split(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)
    assert listen_address("127.0.0.1:4711") == "127.0.0.1:4711"
