"""One attempt by a shell command: its process group, what it prints, and what its end means (see shell.py)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

from commands.messages import BODY_BYTES_MAX, Assign
from robot_gateway.sdk.endings import Ending, Why, completed, failed
from robot_gateway.sdk.wire import encode_json, shortened

FATAL_EXITS: Final = frozenset({64, 65, 126, 127})
STDERR_BYTES_KEPT: Final = 4_000
_LOOK_AGAIN_S: Final = 0.5
_CHUNK_BYTES: Final = 64 * 1024


class CommandRun:
    """One attempt by a shell command; `work` blocks a thread of the pool meanwhile."""

    def __init__(self, command: str, assign: Assign) -> None:
        self._command = command
        self._assign = assign
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._signal: signal.Signals | None = None

    def cancel(self, why: Why) -> None:
        """SIGTERM to the command and all that it started."""
        self._send(signal.SIGTERM)

    def kill(self, why: Why) -> None:
        """SIGKILL to the command and all that it started."""
        self._send(signal.SIGKILL)

    def work(self) -> Ending:
        """Run the command; what came of it."""
        with _payload_file(self._assign.payload) as payload:
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=payload,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=os.environ | environment(self._assign),
                    start_new_session=True,
                )
            except OSError as problem:
                return failed("CannotStart", f"the command cannot be started: {problem}")
        with process.stdout or contextlib.nullcontext(), process.stderr or contextlib.nullcontext():
            with self._lock:
                self._process = process
            if self._signal is not None:
                self._send(self._signal)
            out, err, too_much = self._read(process)
            status = self._reap(process, at_once=too_much)
        if too_much:
            return failed("TooLarge", f"the command printed more than {BODY_BYTES_MAX} bytes", fatal=True)
        if self._signal is not None and status != 0:
            return Ending("stopped")
        return ending_of(status, out, err)

    def _read(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, bool]:
        """What the command prints, until it has ended and its output too; and whether it printed too much."""
        out, err = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            for stream, kept in ((process.stdout, out), (process.stderr, err)):
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, kept)
            while selector.get_map():
                ready = selector.select(_LOOK_AGAIN_S)
                for key, _ in ready:
                    stream_file: IO[bytes] = key.fileobj  # type: ignore[assignment]
                    if not (data := os.read(stream_file.fileno(), _CHUNK_BYTES)):
                        selector.unregister(stream_file)
                    key.data.extend(data)
                del err[:-STDERR_BYTES_KEPT]
                if len(out) > BODY_BYTES_MAX + 1:
                    return bytes(out), bytes(err), True
                # Something in the background may hold the output open for ever.
                if not ready and _has_ended(process.pid):
                    break
        return bytes(out), bytes(err), False

    def _reap(self, process: subprocess.Popen[bytes], *, at_once: bool) -> int:
        """Wait for the command, kill what it left behind while the group is still its own, and only then let go."""
        if not at_once:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._ended = True
            _signal_group(process.pid, signal.SIGKILL)
        return process.wait()

    def _send(self, what: signal.Signals) -> None:
        with self._lock:
            self._signal = what
            if self._process is not None and not self._ended:
                _signal_group(self._process.pid, what)


def ending_of(status: int, out: bytes, err: bytes) -> Ending:
    """What an exit status (negative: a signal) and the output mean."""
    if status == 0:
        return completed(result_of(out))
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    tail = err.decode("utf-8", "replace").strip()
    text = f"the command {how}" + (f": {shortened(tail.splitlines()[-1], 500)}" if tail else "")
    detail: dict[str, Any] = {"exit": status}
    if tail:
        detail["stderr"] = tail
    return failed("Exit" if status > 0 else "Signal", text, fatal=status in FATAL_EXITS, detail=detail)


def result_of(out: bytes) -> Any:
    """What a command printed, as a result."""
    text = out.decode("utf-8", "replace").removesuffix("\n")
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text)
    return text or None


def environment(assign: Assign) -> Mapping[str, str]:
    """What a command is told beside its payload."""
    told = {
        "FLEETLOG_TASK": assign.task,
        "FLEETLOG_ATTEMPT": str(assign.attempt),
        "FLEETLOG_KIND": assign.kind,
        "FLEETLOG_IDEMPOTENCY_KEY": assign.idempotency_key,
    }
    if assign.checkpoint is not None:
        told["FLEETLOG_CHECKPOINT"] = encode_json(assign.checkpoint.value).decode()
    return told


@contextlib.contextmanager
def _payload_file(payload: Any) -> Iterator[IO[bytes]]:
    """The payload as a file, so that a command that does not read it blocks nobody."""
    with tempfile.TemporaryFile() as file:
        if isinstance(payload, str):
            file.write(payload.encode("utf-8", "replace"))
        elif payload is not None:
            file.write(encode_json(payload))
        file.seek(0)
        yield file


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _signal_group(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, what)
