"""The pytest plugin, as a project of a user has it: pytest in a process of its own, found by its entry point."""

import os
import subprocess
import sys
from pathlib import Path

PASSES = """
import pytest


def double(ctx, payload):
    return 2 * payload


def test_plain(fleet):
    fleet.robot("r1", kinds={"double": double})
    assert fleet.submit("double", payload=4).wait().result == 8
    assert fleet.seed == 1


@pytest.mark.fleetlog(window_s=1, lease_s=3, seed=9)
def test_marked(fleet):
    robot = fleet.robot("r1", kinds={"double": double}, takes_s=60)
    task = fleet.submit("double", payload=4)
    fleet.advance(2)
    robot.kill()
    fleet.advance(6)
    assert (task.state, fleet.seed) == ("WAITING", 9)


def test_with_faults(fleet_with_faults):
    fleet_with_faults.robot("r1", kinds={"double": double})
    tasks = [fleet_with_faults.submit("double", payload=n) for n in range(5)]
    fleet_with_faults.advance(30)
    fleet_with_faults.settle()
    assert [task.result for task in tasks] == [0, 2, 4, 6, 8]
"""
FAILS = """
def test_wrong(fleet):
    fleet.robot("r1", kinds={"double": lambda ctx, payload: 2 * payload})
    assert fleet.submit("double", payload=4).wait().result == 9


def test_two_at_one_dock(fleet):
    def deaf(ctx, payload):
        fleet.advance(100)

    first = fleet.robot("r1", kinds={"do": deaf})
    fleet.submit("do", target="dock-1")
    fleet.advance(2)
    fleet.robot("r2", kinds={"do": deaf})
    first.cut()
    fleet.advance(40)
"""


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest over one file, in a folder of its own."""
    (folder / "test_mine.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_fixtures_and_mark(tmp_path: Path) -> None:
    """`fleet`, `fleet_with_faults`, and the mark with settings; strict about marks."""
    done = run(tmp_path, PASSES, "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_another_seed(tmp_path: Path) -> None:
    """`--fleetlog-seed` is the seed of every fleet that no mark says otherwise of."""
    done = run(tmp_path, PASSES, "--fleetlog-seed", "4")
    assert done.returncode == 1
    assert "assert 4 == 1" in done.stdout
    assert "2 passed" in done.stdout


def test_failures_tell_the_story(tmp_path: Path) -> None:
    """A test that fails shows the events; one that passes but broke an invariant is an error that shows them too."""
    done = run(tmp_path, FAILS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Story of the fleet (seed 1)" in done.stdout
    assert "completed by r1" in done.stdout
    assert "r2 began task-1 on dock-1 while r1 worked on task-1 (seed 1)" in done.stdout
    assert "1 failed, 1 passed, 1 error" in done.stdout


def test_the_plugin_costs_nothing_where_no_test_asks() -> None:
    """To load it loads pytest, and nothing of the product."""
    code = """
import sys, fleetlog.testing.plugin, fleetlog.testing
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"commands", "streams", "projections", "robot_gateway", "pydantic", "rocksdict", "fastapi"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_says_what_to_install() -> None:
    """A robot's machine has no RocksDB: importing the kit there says so in a sentence."""
    code = """
import sys
sys.modules["rocksdict"] = None
try:
    from fleetlog.testing import Fleet
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "fleetlog.testing runs the whole product: install fleetlog[server]"
