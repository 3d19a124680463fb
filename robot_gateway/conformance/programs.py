"""A robot as a program: any command, told by its arguments and its environment where the gateway is."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from robot_gateway.conformance.act import POOL, ROBOT
from robot_gateway.conformance.checking import Broken, CannotStart

LINE_MAX: Final = 300
TAIL_BYTES: Final = 4096


class Program:
    """A running command, its own process group. Nothing of its standard output is shown; of its standard error the
    last line is told when a row fails.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        patience_s: float = 60.0,
        cwd: Path | None = None,
    ) -> None:
        """Raises OSError where it cannot be started."""
        self._patience_s = patience_s
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Kill it and what it started; a second call does nothing."""
        if self._said.closed:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._said.close()

    def gave_up(self, sentence: str) -> None:
        """Nothing is asked of a program: it may go on, as long as it does not come back."""

    def terminate(self) -> None:
        """SIGTERM to the program that was started."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait until it has ended. Raises Broken."""
        try:
            return self.process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            raise Broken("the end of the program", f"none in {self._patience_s:g} s") from None

    def fate(self) -> str | None:
        """How it ended by itself; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        line = self.last_line()
        return f"the program ended with {how}" + (f": {line}" if line else "")

    def last_line(self) -> str:
        """The last line that it wrote to standard error."""
        said = self._said.fileno()  # its position is the program's: it must not be moved
        tail = os.pread(said, TAIL_BYTES, max(0, os.fstat(said).st_size - TAIL_BYTES))
        lines = tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:LINE_MAX] if lines else ""


def filled_in(command: Sequence[str], gateway: str) -> list[str]:
    """The command with `{gateway}`, `{pool}` and `{robot}` replaced."""
    values = {"{gateway}": gateway, "{pool}": POOL, "{robot}": ROBOT}
    words = list(command)
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words


def environment(gateway: str) -> dict[str, str]:
    """What a command is told by its environment."""
    return {"FLEETLOG_GATEWAY": gateway, "FLEETLOG_POOL": POOL, "FLEETLOG_ROBOT": ROBOT}


def starts(command: Sequence[str], patience_s: float) -> Callable[[str], Program]:
    """A way to start this command for a gateway's address; it raises CannotStart where that cannot be done."""

    def start(gateway: str) -> Program:
        words = filled_in(command, gateway)
        try:
            return Program(words, environment(gateway), patience_s=patience_s)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise CannotStart(f"{words[0]} cannot be started ({why}): correct the command after `--`.") from None

    return start
