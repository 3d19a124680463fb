"""The processes of a peer: each is a session of its own, so that all it started can be ended by their ids."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.broker import guard
from tests.support.ending import with_us

STOP_S: Final = 10.0
LAST_LINES: Final = 6
MOST_CHARS: Final = 600
FOLDERS: Final = re.compile(r"(?<![\w:/])[~.]?(?:/[\w.@+-]+)*/(?=[\w.@+-])")
"""The folders before a file's name."""


class Missing(Exception):
    """A peer cannot be had here: `reason` in one sentence, `remedy` says what would change that."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


class PeerFailed(Exception):
    """A peer did not do what was asked; the message is one sentence, with the end of its own words."""


@dataclass(slots=True)
class Child:
    """One process with all it started; `log` is what it wrote."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    stop_signal: signal.Signals
    guard: "subprocess.Popen[bytes] | None" = None

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its session as well."""
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to it and to everything it started."""
        for pid in {*session_members(self.pid), *([self.pid] if self.running else [])}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(STOP_S)
        if self.guard is not None:
            self.guard.kill()
            self.guard.communicate()
            self.guard = None

    def stop(self) -> None:
        """End it in order; what is left after STOP_S is killed."""
        if self.running:
            self.process.send_signal(self.stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        self.kill()

    def words(self) -> str:
        """The end of what it wrote, on one line."""
        return last_words(self.log.read_text(errors="replace")) if self.log.exists() else ""


class Processes:
    """All that was started; `with Processes(folder) as processes` ends them, the last one first, however it is left."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start(
        self,
        name: str,
        command: Sequence[object],
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        user: str | None = None,
        pass_fds: Sequence[int] = (),
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> Child:
        """Start a command in the background; `user`: run it as that user (for root only)."""
        log = self._logs / f"{name}-{len(self._children)}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        spoken = [str(word) for word in command]
        words = spoken if user else with_us(spoken)
        with log.open("wb") as written:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=folder,
                user=user,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        # Changing the user clears the wish to die with us: then somebody watches.
        watching = guard("kill", "-KILL", str(process.pid)) if user else None
        child = Child(name, process, log, stop_signal, watching)
        self._children.append(child)
        return child

    def stop_all(self) -> None:
        """End everything that still runs."""
        while self._children:
            self._children.pop().stop()


def run(
    command: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user: str | None = None,
    timeout_s: float = 600.0,
) -> str:
    """Run a command to its end and give its output. Raises PeerFailed."""
    name = " ".join(Path(str(word)).name for word in command[:3])
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **(env or {})},
            cwd=folder,
            user=user,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"`{name}` did not end within {timeout_s:g} s") from None
    except OSError as fault:
        raise PeerFailed(f"`{name}` cannot be started: {fault.strerror}") from None
    if done.returncode != 0:
        raise PeerFailed(f"`{name}` ended with {done.returncode}: {last_words(done.stdout + done.stderr)}")
    return done.stdout


def until(condition: Callable[[], bool], what: str, *, within_s: float, child: Child | None = None) -> None:
    """Wait until `condition` is true. Raises PeerFailed after `within_s`, or as soon as `child` has ended."""
    give_up = time.monotonic() + within_s
    while not condition():
        if child is not None and not child.running:
            raise PeerFailed(f"{child.name} ended before {what}: {child.words()}")
        if time.monotonic() > give_up:
            raise PeerFailed(f"not within {within_s:g} s: {what}" + (f" ({child.words()})" if child else ""))
        time.sleep(0.05)


def session_members(session: int) -> list[int]:
    """The ids of the processes of a session that this run made."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,sess="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, members_of in pairs if int(members_of) == session]


def last_words(text: str) -> str:
    """The last lines of an output, as one line; of files only the names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return FOLDERS.sub("", " / ".join(lines[-LAST_LINES:]))[-MOST_CHARS:]


def program(name: str, *folders: Path) -> Path | None:
    """A program on the path, or in one of `folders`."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name)
    return Path(found) if found else None
