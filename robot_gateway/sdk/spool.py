"""Final reports on disk until they are acknowledged, so that a robot that dies after its work can still say so.

One file of lines, only appended to: `put` with the report, `done` with its id. It is emptied whenever nothing waits.
A torn last line, as a crash leaves it, is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from robot_gateway.sdk.errors import FleetlogError
from robot_gateway.sdk.outbox import Message
from robot_gateway.sdk.wire import encode_json

_EMPTY_ABOVE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Spooled:
    """A report that an earlier process left behind."""

    task: str
    attempt: int
    message: Message


class Spool:
    """The file at `path`; raises FleetlogError if another robot uses it or it cannot be written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b", buffering=0)
        except OSError as problem:
            raise FleetlogError(f"the spool {path} cannot be opened ({problem.strerror}): give another path") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise FleetlogError(f"the spool {path} is used by another robot: give each robot its own") from None
        self._lock = threading.Lock()
        self._waiting = self._load()

    def left_behind(self) -> list[Spooled]:
        """Reports without an acknowledgement, oldest first."""
        return list(self._waiting.values())

    def put(self, task: str, attempt: int, message: Message) -> None:
        """Keep a final report; it is on disk when this returns."""
        entry = {"put": message.id, "type": message.type, "task": task, "attempt": attempt}
        line = encode_json(entry | {"body": message.body.decode()})
        with self._lock:
            self._waiting[message.id] = Spooled(task, attempt, message)
            self._file.write(line + b"\n")
            os.fsync(self._file.fileno())

    def done(self, message_id: str) -> None:
        """The report was acknowledged (or given up). Without a sync: at worst it is sent once more."""
        with self._lock:
            if self._waiting.pop(message_id, None) is None:
                return
            self._file.write(encode_json({"done": message_id}) + b"\n")
            if not self._waiting and self._file.tell() > _EMPTY_ABOVE_BYTES:
                self._file.truncate(0)

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            if not self._waiting:
                self._file.truncate(0)
            self._file.close()

    def _load(self) -> dict[str, Spooled]:
        self._file.seek(0)
        waiting: dict[str, Spooled] = {}
        whole = 0
        for line in self._file.readall().splitlines(keepends=True):
            try:
                entry = json.loads(line)
            except ValueError:
                break
            whole += len(line)
            if "done" in entry:
                waiting.pop(entry["done"], None)
                continue
            key = (str(entry["task"]), int(entry["attempt"]))
            message = Message(entry["put"], entry["type"], entry["body"].encode(), key)
            waiting[message.id] = Spooled(*key, message)
        self._file.truncate(whole)
        return waiting
