"""Final reports on disk until they are acknowledged, so that a robot that dies after its work can still say so.

One file of lines, only appended to: `put` with the report, `done` with its id. It is emptied whenever nothing waits.
A torn last line, as a crash or a full disk leaves it, is dropped; a damaged one before it is passed over. A file that
holds something else is left as it is.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from robot_gateway.sdk.errors import FleetlogError
from robot_gateway.sdk.outbox import Message
from robot_gateway.sdk.wire import encode_json

logger = logging.getLogger("fleetlog")

_EMPTY_ABOVE_BYTES: Final = 64 * 1024
_FIRST: Final = (b'{"put":', b'{"done":')
"""How a spool begins."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A report that an earlier process left behind."""

    task: str
    attempt: int
    message: Message


class Spool:
    """The file at `path`; raises FleetlogError where another robot uses it, it is none, or it cannot be written."""

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
        self._on_disk = set(self._waiting)

    def left_behind(self) -> list[Spooled]:
        """Reports without an acknowledgement, oldest first."""
        return list(self._waiting.values())

    def put(self, task: str, attempt: int, message: Message) -> None:
        """Keep a final report; it is on disk when this returns. Raises OSError, as where the disk is full."""
        entry = {"put": message.id, "type": message.type, "task": task, "attempt": attempt}
        line = encode_json(entry | {"body": message.body.decode()})
        with self._lock:
            self._waiting[message.id] = Spooled(task, attempt, message)
            self._append(line)
            os.fsync(self._file.fileno())
            self._on_disk.add(message.id)

    def done(self, message_id: str) -> None:
        """The report was acknowledged (or given up). Without a sync: at worst it is sent once more."""
        with self._lock:
            if self._waiting.pop(message_id, None) is None or message_id not in self._on_disk:
                return
            self._on_disk.remove(message_id)
            try:
                self._append(encode_json({"done": message_id}))
                empty = not self._waiting and self._file.tell() > _EMPTY_ABOVE_BYTES
            except OSError:
                empty = not self._waiting  # a full disk: this needs no room
            if empty:
                self._file.truncate(0)

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            if not self._waiting:
                self._file.truncate(0)
            self._file.close()

    def _append(self, line: bytes) -> None:
        """Writes a line, or nothing of it: what follows must not stand behind half of it."""
        end = self._file.seek(0, os.SEEK_END)
        line += b"\n"
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(end)
            raise

    def _load(self) -> dict[str, Spooled]:
        self._file.seek(0)
        content = self._file.readall()
        if not _may_be_spool(content):
            self._file.close()
            raise FleetlogError(f"{self._path} holds something else than a spool: give another path")
        waiting: dict[str, Spooled] = {}
        lines = content.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                _follow(waiting, json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                if number == len(lines):
                    self._file.truncate(len(content) - len(line))
                else:
                    logger.error("line %d of the spool %s is damaged and passed over", number, self._path)
            else:
                if not line.endswith(b"\n"):
                    self._end_line()
        return waiting

    def _end_line(self) -> None:
        with suppress(OSError):
            self._file.write(b"\n")


def _may_be_spool(content: bytes) -> bool:
    """Whether it begins as a spool does; also one that a crash cut off, or filled with zeros."""
    content = content.lstrip(b"\0")
    return not content or any(content.startswith(first[: len(content)]) for first in _FIRST)


def _follow(waiting: dict[str, Spooled], entry: dict[str, Any]) -> None:
    """What one line says; raises KeyError, TypeError, ValueError where it says nothing."""
    if "done" in entry:
        waiting.pop(entry["done"], None)
        return
    key = (str(entry["task"]), int(entry["attempt"]))
    message = Message(entry["put"], entry["type"], entry["body"].encode(), key)
    waiting[message.id] = Spooled(*key, message)
