"""Helpers of the tests that end processes do so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ending import _asked
from tests.support.fleet import until

PROJECT = Path(__file__).parents[2]
PARENT = """
import subprocess, sys, time
from tests.support.ending import with_us
child = subprocess.Popen(with_us(["sleep", "600"]))
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not _asked(), reason="only Linux tells a child that its parent died")
def test_a_process_ends_with_the_one_that_began_it() -> None:
    """Also when that one is killed and can say nothing any more."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=PROJECT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "the child to have asked")
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    def gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone, "the child's end")
