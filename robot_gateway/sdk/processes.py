"""One attempt by a handler in a process of its own, which can be killed (see nursery.py)."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from commands.messages import Assign, decode_gateway_message, encode_gateway_message
from robot_gateway.sdk.context import Answered, Link, TaskContext
from robot_gateway.sdk.endings import Ending, Why, completed, failed, raised
from robot_gateway.sdk.nursery import Nursery, Serve, Worker
from robot_gateway.sdk.outbox import Answer
from robot_gateway.sdk.wire import boot_seconds

HandlerCall = Callable[[TaskContext, Any], Any]
Handlers = Mapping[str, tuple[HandlerCall, tuple[type[BaseException], ...]]]


def serving(handlers: Handlers) -> Serve:
    """What the workers of a robot with these handlers do."""
    return partial(_serve, handlers=handlers)


class ProcessRun:
    """One attempt in a worker process; `work` blocks a thread of the pool meanwhile."""

    def __init__(self, assign: Assign, nursery: Nursery, link: Link) -> None:
        self._assign = assign
        self._nursery = nursery
        self._link = link
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._told: Why | None = None
        self._killed = False
        self._deadline: float | None = None

    def until(self, deadline: float) -> None:
        """It is killed then, whatever becomes of the robot, unless the lease is renewed before."""
        with self._lock:
            self._deadline = deadline
            if self._worker is not None:
                self._worker.until(deadline)

    def cancel(self, why: Why) -> None:
        """Tell the handler to end."""
        with self._lock:
            self._told = why
            if self._worker is not None:
                self._worker.send(b"t" + why.encode())

    def kill(self, why: Why) -> None:
        """Kill the process and all that it started."""
        with self._lock:
            self._told, self._killed = why, True
            if self._worker is not None:
                self._worker.kill()

    def work(self) -> Ending:
        """Run the handler; what came of it."""
        try:
            worker = self._nursery.take()
        except OSError:
            return failed("ProcessDied", "the process that starts workers is gone: start the robot again")
        worker.send(b"r" + encode_gateway_message(self._assign))
        with self._lock:
            self._worker = worker
            worker.until(self._deadline)
            if self._killed:
                worker.kill()
            elif self._told is not None:
                worker.send(b"t" + self._told.encode())
        ending = self._follow(worker)
        with self._lock:
            self._worker = None
            killed = self._killed or (self._deadline is not None and boot_seconds() >= self._deadline)
            if killed:
                worker.kill()
            else:
                worker.until(None)
        if ending is not None and not killed:
            self._nursery.give_back(worker)
            return ending
        how = worker.how_it_ended()
        self._nursery.discard(worker)
        return ending or (Ending("stopped") if killed else failed("ProcessDied", f"the handler's process {how}"))

    def _follow(self, worker: Worker) -> Ending | None:
        """Pass on what the worker says until its handler is over; None if the process ended before."""
        while True:
            try:
                said = worker.connection.recv_bytes()
            except (EOFError, OSError):
                return None
            what, rest = said[:1], said[1:]
            if what == b"e":
                return Ending.load(rest)
            if what == b"p":
                percent, _, note = rest.partition(b" ")
                has_note = note[:1] == b"n"
                self._link.progress(int(percent) if percent else None, note[1:].decode() if has_note else None)
            elif what == b"c":
                self._link.checkpoint(rest, lambda answer: worker.send(_pack_answer(answer)))


# ---- inside the worker ----

_Work = tuple[TaskContext, Any]


class _WorkerLink:
    """A context's link from inside the worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.answers: queue.SimpleQueue[Answered] = queue.SimpleQueue()

    def send(self, what: bytes) -> None:
        with self._sending:
            self._connection.send_bytes(what)

    def progress(self, percent: int | None, note: str | None) -> None:
        shown = b"" if percent is None else b"%d" % percent
        self.send(b"p" + shown + (b"" if note is None else b" n" + note.encode()))

    def checkpoint(self, value: bytes, on_answer: Answered) -> None:
        self.answers.put(on_answer)
        self.send(b"c" + value)


def _serve(connection: Connection, handlers: Handlers) -> None:
    """Run attempts one after the other in the main thread; another thread listens to the robot."""
    link = _WorkerLink(connection)
    work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(connection, link, work), daemon=True)
    listener.start()
    while (given := work.get()) is not None:
        context, payload = given
        call, fatal = handlers[context.kind]
        try:
            ending = completed(call(context, payload))
        except BaseException as problem:
            ending = raised(problem, fatal)
        sys.stdout.flush()
        sys.stderr.flush()
        link.send(b"e" + ending.dump())


def _listen(connection: Connection, link: _WorkerLink, work: queue.SimpleQueue[_Work | None]) -> None:
    context: TaskContext | None = None
    while True:
        try:
            said = connection.recv_bytes()
        except (EOFError, OSError):
            work.put(None)
            return
        what, rest = said[:1], said[1:]
        if what == b"r":
            assign: Assign = decode_gateway_message(rest)
            context = TaskContext(assign, link)
            work.put((context, assign.payload))
        elif what == b"t" and context is not None:
            context.tell(rest.decode())  # type: ignore[arg-type]
        elif what == b"a":
            link.answers.get()(decode_gateway_message(rest))


def _pack_answer(answer: Answer) -> bytes:
    return b"a" + encode_gateway_message(answer)
