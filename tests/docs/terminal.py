"""A shell and what runs beside it, for the commands of one page. Only what was started here is ended."""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.support.ending import with_us

CEILING_S = 120.0
MARK = "=== the command ended with"


class CommandFailed(AssertionError):
    """A command of a page did not do what the page says."""


class Terminal:
    """One bash in a folder: variables, `$!` and jobs in the background last from command to command."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._kept: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self._ended: list[subprocess.Popen[bytes]] = []
        self._shell = subprocess.Popen(
            with_us(["bash", "--norc", "--noprofile"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=self._environment,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """The output of a command that succeeds. Raises CommandFailed."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{{\n{command}\n}} </dev/null\nstatus=$?; echo; echo '{MARK}' $status\n".encode())
        self._shell.stdin.flush()
        output, status = self._read(command)
        if status != 0:
            raise CommandFailed(f"$ {command}\n{output}\nexit code {status}{self.told()}")
        return output

    def _read(self, command: str) -> tuple[str, int]:
        stdout = self._shell.stdout
        assert stdout is not None
        gathered = b""
        give_up = time.monotonic() + CEILING_S
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                found = re.search(rf"\n{MARK} (\d+)\n".encode(), gathered)
                if found:
                    return gathered[: found.start()].decode(errors="replace"), int(found[1])
                if not selector.select(max(0.0, give_up - time.monotonic())):
                    raise CommandFailed(f"$ {command}\n{gathered.decode(errors='replace')}\nno end{self.told()}")
                data = os.read(stdout.fileno(), 65_536)
                if not data:
                    raise CommandFailed(f"$ {command}\n{gathered.decode(errors='replace')}\nthe shell ended")
                gathered += data

    def keep(self, command: str) -> None:
        """Starts a command that goes on running."""
        path = self._folder / f".kept-{len(self._kept) + len(self._ended)}"
        with path.open("wb") as output:
            process = subprocess.Popen(
                with_us(["bash", "--norc", "--noprofile", "-c", f"exec {command}"]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )
        self._kept.append((command, process, path))

    def wait_until_ready(self, url: str) -> None:
        """Waits until the gateway says that every part is ready."""
        give_up = time.monotonic() + CEILING_S
        while time.monotonic() < give_up:
            with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/readyz") as said:
                if said.status == 200:
                    return
            time.sleep(0.05)
        raise CommandFailed(f"{url} was never ready{self.told()}")

    def wait_for_task(self, url: str, task: str, state: str) -> None:
        """Waits until a task of the default pool is in a state."""
        give_up = time.monotonic() + CEILING_S
        while time.monotonic() < give_up:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{url}/v1/pools/default/tasks/{task}") as said,
            ):
                if json.load(said)["state"] == state:
                    return
            time.sleep(0.05)
        raise CommandFailed(f"{task} was never {state}{self.told()}")

    def end_kept(self) -> None:
        """Ctrl-C for everything that was kept running. Raises CommandFailed where something had ended by a fault."""
        failed = [command for command, process, _ in self._kept if process.poll() not in (None, 0, -signal.SIGKILL)]
        said = self.told() if failed else ""
        kept, self._kept = self._kept, []
        for _, process, _ in kept:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for _, process, _ in kept:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            _kill_group(process)
            self._ended.append(process)
        if failed:
            raise CommandFailed(f"{', '.join(failed)} ended by itself{said}")

    def told(self) -> str:
        """What the kept commands have printed, for a failure."""
        return "".join(
            f"\n--- {command}\n{path.read_text(errors='replace')[-3_000:]}" for command, _, path in self._kept
        )

    def close(self) -> None:
        """Ends everything, whatever state it is in."""
        with contextlib.suppress(CommandFailed):
            self.end_kept()
        _kill_group(self._shell)
        for stream in (self._shell.stdin, self._shell.stdout):
            if stream is not None:
                stream.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment_of(folder: Path, **more: str) -> dict[str, str]:
    """The environment of somebody who has installed Fleetlog and sits in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLOG_")}
    path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    return kept | {"PATH": path, "HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "120"} | more
