"""What processes that go on share: signals, the lines they log, and how they say that they are ready."""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

from fleetlog.problems import INTERRUPTED, no_answer

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Stopping:
    """The first SIGTERM or SIGINT sets `asked`, the next one ends the process at once."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.interrupted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            os._exit(128 + number)
        self.interrupted = number == signal.SIGINT
        self.asked.set()

    @property
    def exit_code(self) -> int:
        """0 after SIGTERM, 130 after Ctrl-C."""
        return INTERRUPTED if self.interrupted else 0


def until_it_listens(url: str, ceiling_s: float) -> None:
    """Waits until somebody accepts connections at `url`: what is said to be ready can be used. Raises Problem."""
    parts = urlsplit(url)
    give_up = time.monotonic() + ceiling_s
    while True:
        try:
            socket.create_connection((parts.hostname or "", parts.port or 0), 1.0).close()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise no_answer(f"nobody accepts connections at {url}: see the lines above.") from None
            time.sleep(0.02)


def log_to_stderr(level: str, form: str = "text") -> None:
    """Logger lines go to standard error, as text or one JSON object each. They never hold payloads or tokens."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger("fleetlog")
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    root.propagate = False


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{_at(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
