"""Handlers in processes of their own, which can be killed.

Before any thread exists the robot forks one *nursery*; that one forks a worker whenever another is needed. So handlers
need not be picklable or importable, and no process with threads is ever forked. The nursery alone waits for workers
and alone kills them (a process id cannot be somebody else's by then), whole process groups at a time. When the robot
dies, even by SIGKILL, the nursery sees its socket end, kills all workers and ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

from commands.messages import Assign, decode_gateway_message, encode_gateway_message
from robot_gateway.sdk.context import Answered, Link, TaskContext
from robot_gateway.sdk.endings import Ending, Why, completed, failed, raised
from robot_gateway.sdk.outbox import Answer

CONTROL_BYTES: Final = 4096
STATUS_WAIT_S: Final = 5.0

HandlerCall = Callable[[TaskContext, Any], Any]
Handlers = Mapping[str, tuple[HandlerCall, tuple[type[BaseException], ...]]]


class Worker:
    """One worker process as the robot sees it: a connection, and its end when that is known."""

    def __init__(self, number: int, connection: Connection, kill: Callable[[int], None]) -> None:
        self.number = number
        self.connection = connection
        self._kill = kill
        self._sending = threading.Lock()
        self._gone: queue.SimpleQueue[int] = queue.SimpleQueue()

    def send(self, what: bytes) -> None:
        """Send to the worker; a worker that is gone hears nothing."""
        with self._sending, contextlib.suppress(OSError):
            self.connection.send_bytes(what)

    def kill(self) -> None:
        """End the worker and all that it started."""
        self._kill(self.number)

    def gone(self, status: int) -> None:
        """The nursery says how it ended."""
        self._gone.put(status)

    def how_it_ended(self) -> str:
        """In words: by which signal, or with which exit code."""
        try:
            status = self._gone.get(timeout=STATUS_WAIT_S)
        except queue.Empty:
            return "ended"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"


class Nursery:
    """Forked by the constructor, before any thread of the robot exists."""

    def __init__(self, handlers: Handlers) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _end_process_with(lambda: _nurse(theirs, handlers))
        theirs.close()
        self._control = ours
        self._lock = threading.Lock()
        self._workers: dict[int, Worker] = {}
        self._idle: list[Worker] = []
        self._count = 0
        self._listener = threading.Thread(target=self._listen, name="fleetlog-nursery", daemon=True)
        self._listener.start()

    def take(self) -> Worker:
        """An idle worker, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            ours, theirs = socket.socketpair()
            self._count += 1
            worker = Worker(self._count, Connection(ours.detach()), self._kill)
            self._workers[worker.number] = worker
            with theirs:
                socket.send_fds(self._control, [b"spawn %d\n" % worker.number], [theirs.fileno()])
            return worker

    def give_back(self, worker: Worker) -> None:
        """The worker is idle again."""
        with self._lock:
            self._idle.append(worker)

    def discard(self, worker: Worker) -> None:
        """The worker is gone."""
        with self._lock:
            self._workers.pop(worker.number, None)
        worker.connection.close()

    def close(self) -> None:
        """End all workers and the nursery, and wait for that."""
        self._control.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._listener.join()
        self._control.close()

    def _kill(self, number: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._control.send(b"kill %d\n" % number)

    def _listen(self) -> None:
        rest = b""
        while data := self._control.recv(CONTROL_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                number, status = map(int, line.split())
                with self._lock:
                    worker = self._workers.get(number)
                    if worker in self._idle:
                        self._idle.remove(worker)
                if worker is not None:
                    worker.gone(status)


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
            if self._killed:
                worker.kill()
            elif self._told is not None:
                worker.send(b"t" + self._told.encode())
        ending = self._follow(worker)
        with self._lock:
            self._worker = None
            killed = self._killed
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


# ---- inside the nursery ----


def _nurse(control: socket.socket, handlers: Handlers) -> None:
    """Fork workers, kill them, say how they ended; until the robot's end of `control` is closed."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    pids: dict[int, int] = {}
    rest, descriptors = b"", list[int]()
    try:
        while True:
            ready, _, _ = select.select([control, woken], [], [])
            if woken in ready:
                woken.recv(CONTROL_BYTES)
                _reap(control, pids)
            if control in ready:
                data, fds, _, _ = socket.recv_fds(control, CONTROL_BYTES, 64)
                if not data:
                    return
                descriptors += fds
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    verb, number = line.split()
                    if verb == b"spawn":
                        pids[int(number)] = _spawn(descriptors.pop(0), handlers, (control, woken, waking))
                    elif int(number) in pids:
                        _kill_group(pids[int(number)])
    finally:
        for pid in pids.values():
            _kill_group(pid)


def _spawn(descriptor: int, handlers: Handlers, not_theirs: tuple[socket.socket, ...]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for usual in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(usual, signal.SIG_DFL)
        os.setpgid(0, 0)
        for end in not_theirs:
            end.close()
        _end_process_with(lambda: _serve(Connection(descriptor), handlers))
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # both sides do it, so that neither can come too late
    os.close(descriptor)
    return pid


def _reap(control: socket.socket, pids: dict[int, int]) -> None:
    """Collect ended workers, and kill what they left running first, while their group cannot be another's."""
    for number, pid in list(pids.items()):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        _kill_group(pid)
        _, status = os.waitpid(pid, 0)
        del pids[number]
        with contextlib.suppress(OSError):
            control.send(b"%d %d\n" % (number, os.waitstatus_to_exitcode(status)))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _end_process_with(work: Callable[[], None]) -> NoReturn:
    """Do `work` in a forked process and end it there, without what the parent would do at its exit."""
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
