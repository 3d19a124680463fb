"""Runs the test that guards a rule in a process of its own in which the rule is broken."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.mutations.rules import Broken

PYTEST: Final = (
    "-p",
    "tests.mutations.plugin",
    "-p",
    "no:cacheprovider",
    "-n0",
    "-x",
    "-q",
    "--no-header",
    "--timeout=60",
)
TESTS_FAILED: Final = 1
"""What pytest returns then; where a test cannot be found, imported or run, it is something else."""


@dataclass(slots=True, frozen=True)
class Outcome:
    """Whether the test failed, and what pytest said."""

    failed: bool
    text: str


def run(broken: Broken) -> Outcome:
    """The test under the broken rule."""
    command = [sys.executable, "-m", "pytest", *PYTEST, broken.caught_by]
    environment = os.environ | {"FLEETLOG_MUTATION": json.dumps(asdict(broken)), "FLEETLOG_PATIENCE_S": "10"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    return Outcome(done.returncode == TESTS_FAILED, done.stdout + done.stderr)
