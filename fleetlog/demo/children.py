"""The processes of the demonstration: Fleetlog and the robots, each a session of its own, so that it can be killed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from fleetlog.demo.files import KIND

GRACE_S: Final = 15.0
SHELL_SLOTS: Final = 2
DEFAULT_PORT: Final = 8780


class Child:
    """A process with its own group, and a file for what it says. It can be started again after it ended."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self.said = folder / f"{name}.log"
        self._arguments = arguments
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process; 0 before it was started."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> "Child":
        """Starts it. Its folder holds no settings file, and the variables of this process are not its own."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLOG_")}
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=self._folder,
                env=ours | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        return self

    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to it and everything it started, now; waits until it is gone."""
        if self._process is not None:
            _signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not heeded."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        """The last line that it said."""
        try:
            lines = self.said.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def fleetlog_itself(folder: Path, data: Path, listen: str) -> Child:
    """Everything on the embedded log in `data`."""
    return Child("fleetlog", ["-m", "fleetlog", "up", "--data", str(data), "--listen", listen], folder)


def python_robot(name: str, url: str, pool: str, folder: Path) -> Child:
    """A robot by the SDK."""
    return Child(name, ["-m", "fleetlog.demo.robot", name, url, pool], folder)


def shell_robot(name: str, url: str, pool: str, folder: Path) -> Child:
    """A robot that is a shell command."""
    words = ["robot", "--id", name, "--kind", f"{KIND}={shell_command()}", "--slots", str(SHELL_SLOTS)]
    return Child(name, ["-m", "fleetlog", *words, "--gateway", url, "--pool", pool, "--capability", "shell"], folder)


def shell_command() -> str:
    """Compress and check, as anybody would write it."""
    digest = "sha256sum" if shutil.which("sha256sum") else "shasum -a 256"
    return (
        "f=$(cat); "
        f'back=$(gzip -9 -c < "$f" | gzip -dc | {digest} | cut -c1-64); '
        'small=$(gzip -9 -c < "$f" | wc -c); '
        f'[ "$back" = "$({digest} < "$f" | cut -c1-64)" ] || exit 1; '
        'printf \'{"sha256":"%s","bytes":%d,"compressed":%d}\' "$back" "$(wc -c < "$f")" "$small"'
    )


def listen_address(asked: str | None) -> str:
    """The address that was asked for; else the usual port, or a free one where that is taken, or port 0 was asked for.

    What is killed and begun again needs to come back where its robots look for it.
    """
    if asked is not None and asked != "127.0.0.1:0":
        return asked
    for port in (DEFAULT_PORT, 0) if asked is None else (0,):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return f"127.0.0.1:{trial.getsockname()[1]}"
    return f"127.0.0.1:{DEFAULT_PORT}"
