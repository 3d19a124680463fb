"""Submissions over one pipelined WebSocket connection: one message a task (or several), up to 1,024 unanswered."""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, Unpack

from pydantic_core import from_json

from robot_gateway.sdk.calls import Retries, Submitted, entry_of, new_command_id
from robot_gateway.sdk.errors import BY_REASON, FleetlogError, error_of
from robot_gateway.sdk.resources import SubmitOptions, Task, task_body
from robot_gateway.sdk.websocket import (
    WAITING_BYTES_MAX,
    Closed,
    HandshakeRefused,
    Waker,
    WebSocket,
    bearer,
    session_url,
)
from robot_gateway.sdk.wire import boot_seconds, encode_json

logger = logging.getLogger("fleetlog")

PROTOCOL: Final = "fleetlog.submit.v1"
IN_FLIGHT_MAX: Final = 1024
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_WITHIN_S: Final = 60.0
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
RETRY_FOR_S: Final = 60.0
_IDLE_S: Final = 5.0


@dataclass(slots=True, eq=False)
class _Asked:
    """One message without an answer."""

    id: str
    frame: bytes
    tasks: int
    single: bool
    future: Future[Any]
    retries: Retries
    sent_at: float = field(default=0.0)


class Submitter:
    """Submits to `pool` at `gateway` over one connection; `with Submitter(...) as submitter:`.

    `submit` returns a future for the Task as accepted; it waits while `in_flight` tasks (at most 1,024) have no
    answer. A broken connection is opened again, and everything without an answer is sent again under its command id,
    so nothing is submitted twice. What cannot be submitted becomes the future's exception, a FleetlogError.
    """

    def __init__(
        self,
        gateway: str,
        *,
        pool: str = "default",
        token: str | None = None,
        in_flight: int = IN_FLIGHT_MAX,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        if not 1 <= in_flight <= IN_FLIGHT_MAX:
            raise ValueError(f"in_flight is a number from 1 to {IN_FLIGHT_MAX}, not {in_flight}")
        self._url = session_url(gateway, "/v1/submit")
        self._headers = bearer(token)
        self._pool = pool
        self._in_flight = in_flight
        self._retry_for_s = retry_for_s
        self._lock = threading.Condition(threading.Lock())
        self._unanswered: dict[str, _Asked] = {}
        self._open_tasks = 0
        self._queue: deque[_Asked] = deque()
        self._held_back: list[tuple[float, int, _Asked]] = []
        self._order = count()
        self._waker = Waker()
        self._closing = threading.Event()
        self._failed: FleetlogError | None = None
        self._thread = threading.Thread(target=self._run, name="fleetlog-submitter", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        self.close()

    def submit(
        self, kind: str, payload: Any = None, *, command_id: str | None = None, **options: Unpack[SubmitOptions]
    ) -> Future[Task]:
        """Submit one task. The future gives the Task as accepted, or raises a FleetlogError."""
        future: Future[Task] = Future()
        self._ask([{"kind": kind, "payload": payload, **options}], command_id, future, single=True)
        return future

    def submit_many(
        self, submissions: Sequence[Mapping[str, Any]], *, command_id: str | None = None
    ) -> Future[list[Submitted]]:
        """Submit several tasks in one message; the future gives what became of each."""
        future: Future[list[Submitted]] = Future()
        self._ask(submissions, command_id, future, single=False)
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything submitted has its answer. Raises NoAnswer after `timeout_s` seconds."""
        with self._lock:
            if not self._lock.wait_for(lambda: not self._unanswered, timeout_s):
                raise BY_REASON["no_answer"](f"{len(self._unanswered)} submissions have no answer yet")

    def close(self) -> None:
        """Disconnect; what has no answer yet fails with NoAnswer (and may have been accepted)."""
        self._closing.set()
        self._waker.wake()
        self._thread.join()

    # ---- inside ----

    def _ask(
        self, submissions: Sequence[Mapping[str, Any]], command_id: str | None, future: Future[Any], *, single: bool
    ) -> None:
        command = command_id or new_command_id()
        body = {"type": "submit", "id": command, "pool": self._pool, "tasks": [task_body(s) for s in submissions]}
        asked = _Asked(command, encode_json(body), len(submissions), single, future, Retries(self._retry_for_s))
        with self._lock:
            self._lock.wait_for(lambda: self._open_tasks < self._in_flight or self._failed or self._closing.is_set())
            if self._failed is not None or self._closing.is_set():
                raise self._failed or BY_REASON["no_answer"]("this submitter is closed")
            self._unanswered[command] = asked
            self._open_tasks += asked.tasks
            self._queue.append(asked)
        self._waker.wake()

    def _run(self) -> None:
        tries = Retries(float("inf"))
        try:
            while not self._closing.is_set():
                problem, answered = self._connect_once()
                if answered:
                    tries = Retries(float("inf"))
                if not problem.retryable:
                    self._end(problem)
                    return
                if not self._closing.is_set():
                    logger.info("the submitter connects again: %s", problem)
                    self._closing.wait(tries.pause(problem))
            self._end(BY_REASON["no_answer"]("the submitter was closed before an answer came"))
        except Exception as fault:
            logger.exception("a fault of the submitter")
            self._end(FleetlogError(f"a fault of the submitter: {fault}"))
        finally:
            self._waker.close()

    def _connect_once(self) -> tuple[FleetlogError, bool]:
        """One connection until it ends: why it ended, and whether anything was answered on it."""
        try:
            socket = WebSocket.connect(
                self._url,
                subprotocol=PROTOCOL,
                headers=self._headers,
                waker=self._waker,
                timeout_s=CONNECT_TIMEOUT_S,
                max_size=FRAME_BYTES_MAX,
            )
        except HandshakeRefused as refused:
            return refused.error, False
        except OSError as problem:
            return BY_REASON["no_answer"](f"no gateway answers: {problem}"), False
        answered = False
        with self._lock:
            self._queue = deque(self._unanswered.values())
            self._held_back.clear()
        try:
            while not self._closing.is_set():
                frames, wait_s = self._take(WAITING_BYTES_MAX - socket.waiting_bytes)
                socket.send(frames)
                messages, _ = socket.receive(wait_s)
                if messages:
                    answered = True
                    self._answer(messages)
                elif self._is_stuck():
                    return BY_REASON["no_answer"](f"no answer within {ANSWER_WITHIN_S:g} s"), answered
        except Closed as closed:
            reason = "forbidden" if closed.code == 4003 else "no_answer"
            return error_of(reason, f"the connection was {closed}"), answered
        finally:
            socket.close()
        return BY_REASON["no_answer"]("closed"), answered

    def _take(self, bytes_max: int) -> tuple[list[bytes], float]:
        """What is to be sent now, and how long to wait for anything else."""
        now = boot_seconds()
        frames: list[bytes] = []
        size = 0
        with self._lock:
            while self._held_back and self._held_back[0][0] <= now:
                self._queue.append(heapq.heappop(self._held_back)[2])
            while self._queue and size < bytes_max:
                asked = self._queue.popleft()
                if asked.id in self._unanswered:
                    asked.sent_at = now
                    frames.append(asked.frame)
                    size += len(asked.frame)
            due = self._held_back[0][0] - now if self._held_back else _IDLE_S
        return frames, min(_IDLE_S, max(0.0, due))

    def _answer(self, messages: list[bytes]) -> None:
        settled: list[tuple[_Asked, Any]] = []
        with self._lock:
            for raw in messages:
                told: dict[str, Any] = from_json(raw)
                asked = self._unanswered.get(told.get("of", ""))
                if asked is not None:
                    answer = _read(told, asked)
                    if not self._held_again(asked, answer):
                        self._open_tasks -= asked.tasks
                        del self._unanswered[asked.id]
                        settled.append((asked, answer))
                elif told.get("type") == "refused":
                    logger.warning("the gateway refused a message: %s", told.get("text"))
            self._lock.notify_all()
        for asked, answer in settled:
            if isinstance(answer, FleetlogError):
                asked.future.set_exception(answer)
            else:
                asked.future.set_result(answer)

    def _held_again(self, asked: _Asked, answer: Any) -> bool:
        """What may succeed later is sent again then, under the same id."""
        error: FleetlogError | None = answer if isinstance(answer, FleetlogError) else None
        if isinstance(answer, list):
            error = next((a.error for a in answer if a.error is not None and a.error.retryable), None)
        pause = None if error is None else asked.retries.pause(error)
        if pause is None:
            return False
        heapq.heappush(self._held_back, (boot_seconds() + pause, next(self._order), asked))
        return True

    def _is_stuck(self) -> bool:
        """Whether the oldest message waits longer than the gateway ever takes."""
        with self._lock:
            oldest = next(iter(self._unanswered.values()), None)
            held = {asked.id for _, _, asked in self._held_back}
        return oldest is not None and oldest.id not in held and oldest.sent_at + ANSWER_WITHIN_S < boot_seconds()

    def _end(self, problem: FleetlogError) -> None:
        with self._lock:
            self._failed = problem
            left = list(self._unanswered.values())
            self._unanswered.clear()
            self._open_tasks = 0
            self._lock.notify_all()
        for asked in left:
            asked.future.set_exception(problem)


def _read(told: Mapping[str, Any], asked: _Asked) -> Task | list[Submitted] | FleetlogError:
    if told["type"] == "refused":
        return error_of(
            str(told["reason"]), str(told["text"]), retry_after_s=told.get("retry_after_s"), field=told.get("field")
        )
    entries = [entry_of(entry, told.get("position")) for entry in told["tasks"]]
    if not asked.single:
        return entries
    return entries[0].error or entries[0].task or FleetlogError("the answer names no task")
