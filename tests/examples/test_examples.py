"""Every example does what it says, against the whole product."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_gateway.sdk import Client
from tests.support.fleet import CEILING_S, Fleet, until
from tests.support.robots_under_test import built_c_robot

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"
RUN_BY_TESTS = {
    "README.md",
    "shell_robot.sh",
    "python_robot.py",
    "submit_and_wait.py",
    "checkpoint_and_resume.py",
    "test_a_robot.py",
    "one_per_server.py",
    "scan_servers.py",
    "robot_in_c",
    "plc_gateway.py",
}

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The product; leases are short, so that a killed robot is missed soon."""
    settings = {"window_s": 1, "lease_s": 5, "backoff_first_s": 0.1}
    with Fleet(
        tmp_path_factory.mktemp("fleet") / "data", pool=settings, gateway={"heartbeat_gather_ms": 100}
    ) as running:
        yield running


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> str:
    """A pool for this test alone."""
    return str(request.node.name)


@pytest.fixture
def client(fleet: Fleet, pool: str) -> Iterator[Client]:
    """A client of that pool."""
    with fleet.client(pool) as made:
        yield made


@pytest.fixture
def start(fleet: Fleet, pool: str) -> Iterator[Start]:
    """Starts programs in that pool; those that still run are killed after the test."""
    running: list[subprocess.Popen[str]] = []
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"FLEETLOG_GATEWAY": fleet.url, "FLEETLOG_POOL": pool, "PATH": path}

    def begin(*command: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(command, env=env, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield begin
    for program in running:
        if program.poll() is None:
            program.kill()
        program.communicate()


def python(name: str, *arguments: str) -> list[str]:
    """The command line of a Python example."""
    return [sys.executable, str(EXAMPLES / name), *arguments]


def output(program: subprocess.Popen[str], code: int = 0) -> str:
    """What a program printed when it has ended with this exit code."""
    out, err = program.communicate(timeout=CEILING_S)
    assert program.returncode == code, err
    return out


def leaves(program: subprocess.Popen[str], fleet: Fleet, pool: str, *robots: str) -> None:
    """SIGTERM: it says bye for each of its robots and ends."""
    program.send_signal(signal.SIGTERM)
    assert output(program) is not None
    until(lambda: {fleet.robot_state(robot, pool)["state"] for robot in robots} == {"OFFLINE"}, "bye of all")


def test_every_example_is_run_here() -> None:
    """A new example fails this until it has a test."""
    assert {path.name for path in EXAMPLES.iterdir() if not path.name.startswith("_")} == RUN_BY_TESTS


def test_shell_robot(fleet: Fleet, pool: str, client: Client, start: Start) -> None:
    """A shell command does a kind: bare text in, text or JSON out, exit codes as classes of failure."""
    robot = start(str(EXAMPLES / "shell_robot.sh"), "shell-1")
    text = client.submit("checksum", "hello")
    assert text.result(CEILING_S) == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert client.submit("percent", {"part": 3, "of": 8}).result(CEILING_S) == {"percent": 37, "attempt": 1}
    dead = client.submit("percent", {"part": 3}).wait(CEILING_S)
    assert (dead.state, dead.dead_reason) == ("DEAD", "fatal")
    assert dead.error is not None
    assert "part and of are needed" in dead.error["message"]
    leaves(robot, fleet, pool, "shell-1")


def test_python_robot_and_submit_and_wait(
    fleet: Fleet, pool: str, client: Client, start: Start, tmp_path: Path
) -> None:
    """Both sides: files are compressed, what is missing is a dead letter, progress and classes of failure."""
    robot = start(*python("python_robot.py", "py-1"))
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("hello " * 50_000)
    second.write_text("world")
    printed = output(start(*python("submit_and_wait.py", str(first), str(second), "/nowhere")), code=1)
    assert f"{first}: 300000 -> " in printed
    assert f"{second}: 5 -> " in printed
    assert "/nowhere: fatal: " in printed
    healthy = client.submit("fetch", {"url": f"{fleet.url}/healthz"}).result(CEILING_S)
    assert healthy["status"] == 200
    assert client.submit("fetch", {"url": "ftp://x"}).wait(CEILING_S).dead_reason == "fatal"
    failing = client.submit("fetch", {"url": "http://127.0.0.1:9/"}, retry={"failures_max": 2}).wait(CEILING_S)
    assert (failing.dead_reason, failing.raw["failures"]) == ("failed", 2)
    leaves(robot, fleet, pool, "py-1")


def test_checkpoint_and_resume(client: Client, start: Start) -> None:
    """The robot is killed in the middle; the other one goes on from its last checkpoint, and the sum is right."""
    robots = {name: start(*python("checkpoint_and_resume.py", name)) for name in ("robot-a", "robot-b")}
    handle = client.submit("sum", {"upto": 120, "pause_s": 0.05})
    until(lambda: any(e["type"].startswith("CheckpointSaved") for e in client.history(handle.id)), "a checkpoint")
    victim = handle.task().robot
    assert victim is not None
    robots[victim].kill()
    result = handle.result(CEILING_S)
    assert result["sum"] == 120 * 121 // 2
    assert result["resumed_at"] > 1
    assert (result["attempt"], {victim, result["robot"]}) == (2, {"robot-a", "robot-b"})


def test_a_robot_is_tested_without_robots(start: Start) -> None:
    """The tests of the example pass, as its first lines say; the fixtures come from Fleetlog's pytest plugin."""
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "pytest", "-n0", "examples/test_a_robot.py", "--fleetlog-seed", seed]
        assert "4 passed" in output(start(*command))


def test_one_per_server(start: Start) -> None:
    """Never two at once on one server, all in order."""
    printed = output(start(*python("one_per_server.py", "4", "5"))).splitlines()
    assert printed == [f"server-{n}: at once 1, order [0, 1, 2, 3, 4]" for n in range(4)]


def test_s6_scan_servers(fleet: Fleet, pool: str, start: Start) -> None:
    """S6: a schedule for each server; a slow one piles nothing up and delays no other; servers go while all runs."""
    printed = output(start(*python("scan_servers.py", "12", "1", "3")))
    assert "at once on one server: 1" in printed
    with fleet.client(pool) as client:
        named = [task.id for task in client.tasks(where="kind=scan")]
    assert len(named) == len(set(named)) >= 33
    assert all(re.fullmatch(r"scan-server-\d+@\d{8}T\d{6}Z", name) for name in named)


def test_robot_in_c(fleet: Fleet, pool: str, client: Client, start: Start) -> None:
    """A robot in C by long polling completes, fails, is cancelled, and says bye."""
    robot = start(str(built_c_robot()), fleet.url, pool, "c-1")
    assert client.submit("work", {"ms": 300}).result(CEILING_S) == {"done": True, "ms": 300}
    assert client.submit("work", {"ms": 0, "fail": "fatal"}).wait(CEILING_S).dead_reason == "fatal"
    long = client.submit("work", {"ms": 600_000})
    until(lambda: long.task().state == "RUNNING", "the long task")
    long.cancel("no longer wanted")
    assert long.wait(CEILING_S).state == "CANCELLED"
    longer_than_a_lease = client.submit("work", {"ms": 7_000})
    assert longer_than_a_lease.wait(CEILING_S).attempt == 1
    leaves(robot, fleet, pool, "c-1")


def test_plc_gateway(fleet: Fleet, pool: str, client: Client, start: Start) -> None:
    """Three lifts behind one program share the moves; a cancelled one stops where it is; all say bye."""
    lifts = ("lift-1", "lift-2", "lift-3")
    program = start(*python("plc_gateway.py", *lifts))
    until(lambda: all(fleet.robot_state(lift, pool).get("state") == "IDLE" for lift in lifts), "three lifts")
    moves: list[Any] = [client.submit("move", {"to": 10 * n}) for n in range(1, 7)]
    results = [move.result(CEILING_S) for move in moves]
    assert [result["position"] for result in results] == [10, 20, 30, 40, 50, 60]
    assert len({result["device"] for result in results}) > 1
    far = client.submit("move", {"to": 1_000_000})
    until(lambda: far.task().state == "RUNNING", "the long move")
    far.cancel()
    assert far.wait(CEILING_S).state == "CANCELLED"
    leaves(program, fleet, pool, *lifts)
