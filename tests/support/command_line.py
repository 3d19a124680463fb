"""Reading Fleetlog's command lines out of files and comparing them with what `--help` says exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

FLEETLOG = Path(sys.executable).parent / "fleetlog"


@cache
def help_of(*command: str) -> str:
    """What `fleetlog COMMAND --help` prints; fails when there is no such command."""
    plain = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run([FLEETLOG, *command, "--help"], env=plain, capture_output=True, text=True)
    assert done.returncode == 0, f"fleetlog {' '.join(command)} --help:\n{done.stdout}{done.stderr}"
    return done.stdout


def untrue(arguments: Sequence[str]) -> list[str]:
    """The options in these arguments of `fleetlog` that their command's `--help` does not name."""
    command: list[str] = []
    for word in arguments:
        if word.startswith("-") or not re.search(rf"^\W*{re.escape(word)}\s", help_of(*command), re.MULTILINE):
            break
        command.append(word)
    told = help_of(*command)
    is_a_group = re.search(r"Usage: .* COMMAND \[ARGS\]", told)
    assert not is_a_group, f"fleetlog has no command {' '.join(arguments)}"
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    return [option for option in options if not re.search(rf"{option}(?![\w-])", told)]
