"""Runs the operator's command for each alarm: the alarm as JSON on its standard input, a time limit, one at a time.

All of it happens in a thread of its own, so a command that hangs delays other alarms and nothing else.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from robot_gateway.alarms import Alarm, Alarms
from robot_gateway.health import Seen

logger = logging.getLogger("fleetlog.gateway")

LIMIT_S: Final = 30.0
"""How long the command may take before it is killed with all it started."""
LOOK_EVERY_S: Final = 1.0
STOP_S: Final = 5.0


class AlarmCommand:
    """`with AlarmCommand(...):` tells alarms until the end. `command` is run by /bin/sh.

    `seen` gives the newest look at the fleet, `unready` the lines of readiness that are not ready; both are called
    from the thread of the alarms.
    """

    def __init__(
        self,
        command: str,
        gateway: str,
        seen: Callable[[], Seen],
        unready: Callable[[], Sequence[str]],
        limit_s: float = LIMIT_S,
    ) -> None:
        self._command, self._gateway, self._seen, self._unready = command, gateway, seen, unready
        self._limit_s = limit_s
        self._alarms = Alarms()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="alarms", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(STOP_S)

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            try:
                for alarm in self._alarms.look(self._seen(), self._unready(), time.monotonic()):
                    self._tell(alarm)
            except Exception:
                logger.exception("alarms could not be looked for; the next look comes by itself")

    def _tell(self, alarm: Alarm) -> None:
        if self._stopping.is_set():
            return
        logger.warning("alarm %s: %s", alarm.name, alarm.text)
        told = alarm.as_json(self._gateway, time.time_ns() // 1_000_000)
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            logger.warning("the alarm command cannot be started (%s): correct alarm.command", error.strerror)
            return
        self._finish(process, json.dumps(told).encode() + b"\n")

    def _finish(self, process: "subprocess.Popen[bytes]", text: bytes) -> None:
        """Hands the alarm over and waits; what does not end is killed, whatever it started included."""
        give_up = time.monotonic() + self._limit_s
        # An alarm is far smaller than a pipe holds, so this does not wait for a reader.
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has no use for its input
                process.stdin.write(text)
                process.stdin.close()
        while process.poll() is None:
            if time.monotonic() >= give_up or self._stopping.is_set():
                _end(process)
                if not self._stopping.is_set():
                    logger.warning("the alarm command took more than %g s and was killed", self._limit_s)
                return
            time.sleep(0.02)
        if process.returncode:
            logger.warning("the alarm command ended with %d: try it by hand", process.returncode)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended just now
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
