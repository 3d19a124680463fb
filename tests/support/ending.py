"""Processes of a test that must not outlive it, however pytest ends: Ctrl-C twice, SIGKILL, a time limit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from os import PathLike


def with_us(command: Sequence[str | PathLike[str]]) -> list[str]:
    """The command as one that is killed when this process dies. The process keeps its id; for the main thread.

    Linux tells the child by itself (`setpriv` of util-linux asks for it). Elsewhere the command stays as it is.
    """
    return [*_asked(), *map(str, command)]


@cache
def _asked() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()
