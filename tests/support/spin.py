"""Spin, the model checker: has a check of model/lease.pml compiled and searched, and tells what came out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

MODEL = Path(__file__).parents[2] / "model" / "lease.pml"
MEMORY_MB = 2_000
DEBIAN_PACKAGES = ("spin", "gcc", "libc6-dev")
WHAT_TO_INSTALL = (
    f"The model is checked with Spin and a C compiler (Debian: apt-get install {' '.join(DEBIAN_PACKAGES)})."
)
_SEARCHES = {
    "shortest": ("-DSAFETY", "-DNOREDUCE", "-DBFS"),
    "deep": ("-DSAFETY", "-DNOREDUCE"),
    "compact": ("-DSAFETY", "-DNOREDUCE", "-DHC4"),
    "for ever": ("-DNOREDUCE",),
}


class CannotCheck(Exception):
    """Spin cannot be had, or could not finish; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: the broken property or None, distinct states, seconds, and the story that breaks it."""

    broken: str | None
    states: int
    seconds: float
    story: tuple[str, ...]


def check(switches: dict[str, str | int], search: str = "shortest", optimise: bool = False) -> Found:
    """Search all states of the model under these switches.

    `search`: `shortest` (breadth first, the shortest story), `deep` (depth first), `compact` (as deep, with
    64-bit hashes in place of states), `for ever` (cycles in which a task never ends). Raises CannotCheck.
    """
    _need_spin()
    words = [f"-D{name}={value}" for name, value in switches.items()]
    with TemporaryDirectory(prefix="fleetlog-model-") as scratch:
        folder = Path(scratch)
        shutil.copy(MODEL, folder / "lease.pml")
        _run(folder, "spin", "-a", *words, "lease.pml")
        flags = (*_SEARCHES[search], "-DVECTORSZ=2048", f"-DMEMLIM={MEMORY_MB}", "-O1" if optimise else "-O0")
        _run(folder, "gcc", "-w", *flags, "-o", "pan", "pan.c")
        told = _run(folder, "./pan", "-m1000000", "-w25" if search == "compact" else "-w22", *_also(search))
        return _found(told, folder, words)


def _also(search: str) -> tuple[str, ...]:
    return ("-a",) if search == "for ever" else ()


def _found(told: str, folder: Path, words: list[str]) -> Found:
    if ("Search not completed" in told and "errors: 0" in told) or "max search depth too small" in told:
        raise CannotCheck(f"the search of {' '.join(words)} was not finished: choose smaller sizes.\n{told[-2_000:]}")
    states = re.search(r"(\d+) states, stored", told)
    seconds = re.search(r"elapsed time ([\d.e+-]+) seconds", told)
    if states is None:
        raise CannotCheck(f"Spin did not search {' '.join(words)}:\n{told[-2_000:]}")
    broken = re.search(r"assertion violated +\(?(\w+)|(acceptance cycle)|(invalid end state) \(at", told)
    property_ = None if broken is None else broken[1] or ("every_task_ends" if broken[2] else "time_goes_on")
    story = () if broken is None else _story(folder, words)
    return Found(property_, int(states[1]), float(seconds[1]) if seconds else 0.0, story)


def _story(folder: Path, words: list[str]) -> tuple[str, ...]:
    """The steps of the trail that the search left, as the model prints them."""
    told = _run(folder, "spin", "-t", *words, "lease.pml")
    steps = told.partition("#processes")[0].splitlines()
    return tuple(
        step.strip() for step in steps if step.strip() and not step.startswith(("spin:", "ltl ", "Never claim"))
    )


def _need_spin() -> None:
    if shutil.which("spin") and shutil.which("gcc"):
        return
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise CannotCheck(WHAT_TO_INSTALL)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES]):
        done = subprocess.run(["apt-get", "--quiet", *step], env=quiet, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotCheck(f"{WHAT_TO_INSTALL} (apt-get {step[0]} failed)")


def _run(folder: Path, *command: str) -> str:
    """What the command says; it is the last of all to get a processor."""
    done = subprocess.run(["nice", "-n", "15", *command], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0 and command[0] in ("gcc", "spin") and "-t" not in command:
        raise CannotCheck(f"{' '.join(command[:2])} failed: {(done.stdout + done.stderr)[-1_000:]}")
    return done.stdout
