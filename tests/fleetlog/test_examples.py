"""Every example that stands at the end of a `--help` is run, as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlog.cli import build
from fleetlog.verb import VERBS
from tests.fleetlog.conftest import PROGRAM, CommandLine, program
from tests.fleetlog.world import World, files
from tests.support.ending import with_us
from tests.support.fleet import Fleet, until
from tests.support.ports import free_port

BROKER = "127.0.0.1:9092"
DEFAULT_GATEWAY = "http://127.0.0.1:8780"
build()
EXAMPLES = [(" ".join(verb.words), example) for verb in VERBS for example in verb.examples]
GOES_ON = {"up", "gateway", "processor", "projector", "robot"}
"""Verbs that serve until they are told to end."""
ALONE = {"demo", "bench"}
"""Verbs that start a fleet of their own."""
BEFORE = {
    "log import": ["log export events.jsonl", "log export events.jsonl.gz"],
    "audit verify": ["log export events.jsonl"],
    "audit history": ["log export events.jsonl"],
    "audit at": ["submit k --id t1", "submit k --id t2"],
    "token list": ["token new bob --role viewer", "token new eve --role viewer"],
    "token revoke": ["token new bob --role viewer", "token new eve --role viewer"],
    "unfreeze": ["pool create hall-a"],
    "limit rm": ["limit set kind report --running 1", "limit set key tenant-1 --rate 0.1"],
    **{f"schedule {verb}": ["schedule set nightly report --every 1d"] for verb in ("next", "pause", "resume", "rm")},
    "pool show": ["pool create default"],
    "pool set": ["pool create default"],
}
"""What somebody did before the example makes sense."""
REFUSED = {"unfreeze": "not_frozen", "clock accept": "clock_trusted"}
"""Verbs whose effect no healthy pool can show: their examples are refused with this word."""


WATCHES = "fleetlog watch"
"""The one example that goes on beside those of GOES_ON."""
ENDS = [(v, e) for v, e in EXAMPLES if v.split()[0] not in GOES_ON | ALONE and e != WATCHES]


@pytest.fixture
def world(fleet: Fleet, pool: str) -> Iterator[World]:
    """A pool of the running fleet to be filled."""
    world = World(fleet, pool)
    yield world
    world.close()


@pytest.mark.parametrize(("verb", "example"), ENDS, ids=[e for _, e in ENDS])
def test_an_example_does_what_it_shows(
    verb: str,
    example: str,
    world: World,
    fleet: Fleet,
    cli: CommandLine,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is done: exit code 0, nothing refused."""
    files(tmp_path)
    if BROKER in example:
        monkeypatch.setenv("FLEETLOG_LOG_PREFIX", f"example-{uuid.uuid4().hex[:8]}")
        example = example.replace(BROKER, request.getfixturevalue("broker").address)
        prepare_log(cli, example)
    else:
        world.hold(example)
    example = example.replace(DEFAULT_GATEWAY, fleet.url)
    # One of the examples starts `fleetlog robot`.
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}")
    if verb == "pool set" or verb == "pool show":
        monkeypatch.delenv("FLEETLOG_POOL")
    for line in BEFORE.get(verb, []):
        assert cli(*shlex.split(line)).code == 0, line
    with helper_of(example, world, cli):
        done = cli(*shlex.split(example)[1:])

    if verb in REFUSED:
        assert (done.code, REFUSED[verb] in done.err) == (1, True), done
    else:
        assert done.code == 0, done


def prepare_log(cli: CommandLine, example: str) -> None:
    """An empty log on the broker, where the example does not make it itself."""
    if " log init " not in f" {example} ":
        address = re.findall(r"127\.0\.0\.1:\d+", example)[0]
        done = cli("log", "init", "--kafka", address, "--partitions", "2")
        assert done.code == 0, done.err


class helper_of:
    """Somebody who does meanwhile what the example waits for."""

    def __init__(self, example: str, world: World, cli: CommandLine) -> None:
        self._robot = "checksum" in example and "--wait" in example
        self._finish = "wait order-18" in example or "order-17 order-18" in example
        self._world = world
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._robot:
            words = ["robot", "--id", "shell", "--kind", "checksum=sha256sum -"]
            self._process = subprocess.Popen(with_us([PROGRAM, *words]), stderr=subprocess.DEVNULL)
        if self._finish:
            self._thread = threading.Thread(target=self._world.finish_waiting, daemon=True)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._thread is not None:
            self._thread.join(60)


@pytest.mark.parametrize(
    "example", [e for v, e in EXAMPLES if v in GOES_ON], ids=[e for v, e in EXAMPLES if v in GOES_ON]
)
def test_an_example_that_goes_on_begins_and_ends(
    example: str,
    fleet: Fleet,
    pool: str,
    cli: CommandLine,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it is ready, and SIGTERM ends it in good order."""
    monkeypatch.delenv("FLEETLOG_LOG_AT")
    monkeypatch.setenv("FLEETLOG_GATEWAY_LISTEN", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("FLEETLOG_DISK_MIN_FREE_BYTES", "0")
    monkeypatch.setenv("FLEETLOG_LOG_PREFIX", f"example-{uuid.uuid4().hex[:8]}")
    if BROKER in example:
        example = example.replace(BROKER, request.getfixturevalue("broker").address)
        prepare_log(cli, example)
    words = shlex.split(re.sub(r"127\.0\.0\.1:8790", f"127.0.0.1:{free_port()}", example))[1:]
    said = tmp_path / "said"
    with said.open("wb") as output:
        running = subprocess.Popen(with_us([PROGRAM, *words]), cwd=tmp_path, stdout=output, stderr=output)
    ready = re.compile(r"serves at http|processor runs|projector runs|Ctrl-C ends it")
    until(lambda: ready.search(said.read_text()) or running.poll() is not None, "ready")
    if words[0] == "robot":
        until(lambda: fleet.robot_state(words[2], pool).get("state") == "IDLE", "the robot's hello")
    running.send_signal(signal.SIGTERM)

    assert running.wait(60) == 0, said.read_text()
    assert "Traceback" not in said.read_text()


def test_watch_goes_on_until_interrupted(pool: str, cli: CommandLine, tmp_path: Path) -> None:
    """Without a terminal: a line for each event, until Ctrl-C."""
    assert cli("pool", "create", pool).code == 0
    said = tmp_path / "said"
    with said.open("wb") as output:
        running = subprocess.Popen(with_us([PROGRAM, "watch"]), stdout=output, stderr=output)

    def told() -> bool:
        assert cli("submit", "k").code == 0
        return "submitted: k" in said.read_text()

    until(told, "an event")
    running.send_signal(signal.SIGINT)

    assert running.wait(60) == 130
    assert "Traceback" not in said.read_text()


def test_each_help_ends_with_its_two_examples(cli: CommandLine) -> None:
    """What the registry holds is what users see at the end of the help."""
    for verb in VERBS:
        told = [line.strip() for line in cli(*verb.words, "--help").lines if line.strip()]
        assert told[-3:] == ["Examples:", *verb.examples], verb.words
        assert len(set(verb.examples)) == 2
        for example in verb.examples:
            assert shlex.split(example)[: len(verb.words) + 1] == ["fleetlog", *verb.words]


PLAYED = "fleetlog demo --files 40 --json"
"""The example that test_demo.py runs, and looks at more closely."""


@pytest.mark.parametrize("example", [e for v, e in EXAMPLES if v.split()[0] in ALONE and e != PLAYED])
def test_an_example_with_a_fleet_of_its_own_ends_well(example: str, tmp_path: Path) -> None:
    """Demonstration and benchmarks, as they stand in the help; with --json the last line is one object."""
    done = program(*shlex.split(example)[1:], cwd=tmp_path, timeout=500)

    assert done.returncode == 0, done.stderr
    if "--json" in example:
        assert json.loads(done.stdout.splitlines()[-1])
