"""One attempt by a shell command: what it prints, and what its end means (see shell.py)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any, Final

from commands.messages import BODY_BYTES_MAX, Assign
from robot_gateway.sdk.endings import Ending, Why, completed, failed
from robot_gateway.sdk.nursery import Child, Nursery, order_of
from robot_gateway.sdk.wire import boot_seconds, encode_json, shortened

FATAL_EXITS: Final = frozenset({64, 65, 126, 127})
STDERR_BYTES_KEPT: Final = 4_000
_LOOK_AGAIN_S: Final = 0.5
_CHUNK_BYTES: Final = 64 * 1024


class CommandRun:
    """One attempt by a shell command; `work` blocks a thread of the pool meanwhile."""

    def __init__(self, command: str, assign: Assign, nursery: Nursery) -> None:
        self._command = command
        self._assign = assign
        self._nursery = nursery
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._signal: signal.Signals | None = None
        self._deadline: float | None = None

    def until(self, deadline: float) -> None:
        """It is killed then, whatever becomes of the robot, unless the lease is renewed before."""
        with self._lock:
            self._deadline = deadline
            if self._child is not None:
                self._child.until(deadline)

    def cancel(self, why: Why) -> None:
        """SIGTERM to the command and all that it started."""
        self._send(signal.SIGTERM)

    def kill(self, why: Why) -> None:
        """SIGKILL to the command and all that it started."""
        self._send(signal.SIGKILL)

    def work(self) -> Ending:
        """Run the command; what came of it."""
        try:
            child, stdout, stderr = self._start()
        except (OSError, ValueError) as problem:
            return failed("CannotStart", f"the command cannot be started: {problem}")
        with self._lock:
            self._child = child
            if self._deadline is not None:
                child.until(self._deadline)
            if self._signal is not None:
                child.signal(self._signal)
        with stdout, stderr:
            out, err, too_much = _read(child, stdout, stderr)
        if too_much:
            child.kill()
        status = child.status()
        self._nursery.forget(child)
        if too_much:
            return failed("TooLarge", f"the command printed more than {BODY_BYTES_MAX} bytes", fatal=True)
        if status is None:
            return failed("ProcessDied", "the process that starts commands is gone: start the robot again")
        if status != 0 and self._was_to_end():
            return Ending("stopped")
        return ending_of(status, out, err)

    def _start(self) -> tuple[Child, IO[bytes], IO[bytes]]:
        """Raises OSError and ValueError where that cannot be."""
        order = order_of(self._command, environment(self._assign))
        with _file_of(order) as told, _file_of(_payload_bytes(self._assign.payload)) as stdin, ExitStack() as kept:
            (stdout, theirs_out), (stderr, theirs_err) = _pipe(kept), _pipe(kept)
            with theirs_out, theirs_err:
                files = (told, stdin, theirs_out, theirs_err)
                child = self._nursery.command(*(file.fileno() for file in files))
            kept.pop_all()
        return child, stdout, stderr

    def _was_to_end(self) -> bool:
        with self._lock:
            return self._signal is not None or (self._deadline is not None and boot_seconds() >= self._deadline)

    def _send(self, what: signal.Signals) -> None:
        with self._lock:
            self._signal = what
            if self._child is not None:
                self._child.signal(what)


def _read(child: Child, stdout: IO[bytes], stderr: IO[bytes]) -> tuple[bytes, bytes, bool]:
    """What the command prints, until it has ended and its output too; and whether it printed too much."""
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((stdout, out), (stderr, err)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, kept)
        while selector.get_map():
            ready = selector.select(_LOOK_AGAIN_S)
            for key, _ in ready:
                if not (data := os.read(key.fd, _CHUNK_BYTES)):
                    selector.unregister(key.fileobj)
                key.data.extend(data)
            del err[:-STDERR_BYTES_KEPT]
            if len(out) > BODY_BYTES_MAX + 1:
                return bytes(out), bytes(err), True
            # What has left the process group may hold the output open for ever.
            if not ready and child.has_ended:
                break
    return bytes(out), bytes(err), False


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


def _payload_bytes(payload: Any) -> bytes:
    """The payload as the command reads it."""
    if payload is None:
        return b""
    return payload.encode("utf-8", "replace") if isinstance(payload, str) else encode_json(payload)


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[IO[bytes]]:
    """A file, so that a reader that does not read it blocks nobody."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


def _pipe(kept: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Both ends of a pipe: the reading one belongs to `kept`."""
    reading, writing = os.pipe()
    return kept.enter_context(open(reading, "rb", buffering=0)), open(writing, "wb", buffering=0)
