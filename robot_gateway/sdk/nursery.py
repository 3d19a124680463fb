"""The process that starts, watches and ends the processes of a robot: workers for handlers, and shell commands.

Before any thread exists the robot forks one *nursery*; that one forks its children, a worker or a command, each in a
process group of its own. So handlers need not be picklable or importable, and no process with threads is ever forked.
The nursery alone waits for children and alone signals them (a process id cannot be somebody else's by then), whole
groups at a time. A group ends with its leader. It also ends

- when the robot is gone, even by SIGKILL: the nursery sees its socket end, kills all groups and ends;
- when its deadline has passed, which the robot moves with every renewal of the lease: a robot that is stopped
  (SIGSTOP, a frozen container) cannot end its work, the nursery does.

The nursery has a session of its own, so that what a terminal does to the robot's process group (Ctrl-C, Ctrl-Z, a
`kill` of the group) does not reach it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn, cast

from robot_gateway.sdk.wire import boot_seconds

CONTROL_BYTES: Final = 4096
STATUS_WAIT_S: Final = 5.0
LOOK_AGAIN_S: Final = 1.0
"""How often deadlines are looked at, at the latest: waiting stops while a machine sleeps, deadlines do not."""
CANNOT_START: Final = 71
"""The exit code of a command that the system does not start (EX_OSERR)."""
_PR_SET_PDEATHSIG: Final = 1
_SHELL: Final = "/bin/sh"

Serve = Callable[[Connection], None]


class Child:
    """One process group of the nursery as the robot sees it, and how it ended when that is known."""

    def __init__(self, number: int, tell: Callable[[bytes], None]) -> None:
        self.number = number
        self._tell = tell
        self._status: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def signal(self, what: signal.Signals) -> None:
        """Send a signal to it and all that it started."""
        self._tell(b"signal %d %d\n" % (self.number, what))

    def kill(self) -> None:
        """End it and all that it started."""
        self.signal(signal.SIGKILL)

    def until(self, deadline: float | None) -> None:
        """It is killed at `deadline` (seconds of `boot_seconds`) unless another one, or None, is told before."""
        self._tell(b"until %d %d\n" % (self.number, 0 if deadline is None else max(1, deadline * 1e6)))

    def gone(self, status: int | None) -> None:
        """The nursery says how it ended; None: the nursery itself is gone."""
        self._status.put(status)

    @property
    def has_ended(self) -> bool:
        """Whether its end is known; for the thread that will ask for the status."""
        return not self._status.empty()

    def status(self, wait_s: float | None = None) -> int | None:
        """Its exit status (negative: a signal), waited for; None if nobody knows it (after `wait_s`)."""
        try:
            return self._status.get(timeout=wait_s)
        except queue.Empty:
            return None


class Worker(Child):
    """A worker process: a child with a connection."""

    def __init__(self, number: int, tell: Callable[[bytes], None], connection: Connection) -> None:
        super().__init__(number, tell)
        self.connection = connection
        self._sending = threading.Lock()

    def send(self, what: bytes) -> None:
        """Send to the worker; a worker that is gone hears nothing."""
        with self._sending, contextlib.suppress(OSError):
            self.connection.send_bytes(what)

    def how_it_ended(self) -> str:
        """In words: by which signal, or with which exit code."""
        status = self.status(STATUS_WAIT_S)
        if status is None:
            return "ended"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"


class Nursery:
    """Forked by the constructor, before any thread of the robot exists. `serve` is what a worker does."""

    def __init__(self, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _end_process_with(lambda: _nurse(theirs, serve))
        theirs.close()
        self._control = ours
        self._lock = threading.Lock()
        # Of its own: sending may have to wait for the nursery, and that for our listener, which wants the other one.
        self._sending = threading.Lock()
        self._children: dict[int, Child] = {}
        self._idle: list[Worker] = []
        self._count = 0
        self._listener = threading.Thread(target=self._listen, name="fleetlog-nursery", daemon=True)
        self._listener.start()

    def take(self) -> Worker:
        """An idle worker, or a new one. Raises OSError if the nursery is gone."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        ours, theirs = socket.socketpair()
        worker = Worker(self._next(), self._tell, Connection(ours.detach()))
        with theirs:
            self._start(b"worker", worker, [theirs.fileno()])
        return worker

    def give_back(self, worker: Worker) -> None:
        """The worker is idle again."""
        with self._lock:
            self._idle.append(worker)

    def discard(self, worker: Worker) -> None:
        """The worker is gone."""
        self.forget(worker)
        worker.connection.close()

    def command(self, order: int, stdin: int, stdout: int, stderr: int) -> Child:
        """Start a shell command with these files; `order` is a file with `order_of`. Raises OSError as `take`."""
        child = Child(self._next(), self._tell)
        self._start(b"command", child, [order, stdin, stdout, stderr])
        return child

    def forget(self, child: Child) -> None:
        """The child is gone and its status known."""
        with self._lock:
            self._children.pop(child.number, None)

    def close(self) -> None:
        """End all children and the nursery, and wait for that."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._listener.join()
        self._control.close()

    def _start(self, what: bytes, child: Child, files: Sequence[int]) -> None:
        with self._lock:
            self._children[child.number] = child
        try:
            with self._sending:
                socket.send_fds(self._control, [b"%b %d\n" % (what, child.number)], files)
        except OSError:
            self.forget(child)
            raise

    def _next(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _tell(self, line: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):
            self._control.send(line)

    def _listen(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := self._control.recv(CONTROL_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._ended(*map(int, line.split()))
        with self._lock:
            left = list(self._children.values())
        for child in left:
            child.gone(None)

    def _ended(self, number: int, status: int) -> None:
        with self._lock:
            child = self._children.get(number)
            if isinstance(child, Worker) and child in self._idle:
                self._idle.remove(child)
        if child is not None:
            child.gone(status)


def order_of(command: str, environment: Mapping[str, str]) -> bytes:
    """A command and what its environment has beside the robot's, as the nursery reads it. Raises ValueError."""
    parts = [command, *(f"{name}={value}" for name, value in environment.items())]
    if any("\0" in part for part in parts):
        raise ValueError("neither a command nor its environment can have a null character")
    return b"\0".join(map(os.fsencode, parts))


# ---- inside the nursery ----


@dataclass(slots=True)
class _Children:
    """The process groups by the robot's numbers, and when they end at the latest."""

    pids: dict[int, int] = field(default_factory=dict)
    deadlines: dict[int, float] = field(default_factory=dict)

    def signal(self, number: int, what: int) -> None:
        """To the whole group; one that has ended hears nothing."""
        if number in self.pids:
            _signal_group(self.pids[number], what)

    def until(self, number: int, deadline: float) -> None:
        """Another deadline for one that has not ended; 0: none."""
        self.deadlines.pop(number, None)
        if number in self.pids and deadline:
            self.deadlines[number] = deadline

    def end_those_due(self) -> None:
        """Kill every group whose deadline has passed."""
        now = boot_seconds()
        for number in [number for number, deadline in self.deadlines.items() if deadline <= now]:
            del self.deadlines[number]
            self.signal(number, signal.SIGKILL)

    def wait_s(self) -> float | None:
        """How long nothing is due by the clock."""
        if not self.deadlines:
            return None
        return min(LOOK_AGAIN_S, max(0.0, min(self.deadlines.values()) - boot_seconds()))

    def ended(self) -> list[tuple[int, int]]:
        """Collect the ended ones, and kill what they left running first, while their group cannot be another's."""
        ended = []
        for number, pid in list(self.pids.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _signal_group(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            del self.pids[number]
            self.deadlines.pop(number, None)
            ended.append((number, os.waitstatus_to_exitcode(status)))
        return ended

    def kill_all(self) -> None:
        """The robot is gone."""
        for number in self.pids:
            self.signal(number, signal.SIGKILL)


def _nurse(control: socket.socket, serve: Serve) -> None:
    """Start children, signal them, say how they ended; until the robot's end of `control` is closed."""
    os.setsid()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    children = _Children()
    die_with_parent = _with_parent()
    rest, files = b"", list[int]()
    try:
        while True:
            ready, _, _ = select.select([control, woken], [], [], children.wait_s())
            if woken in ready:
                woken.recv(CONTROL_BYTES)
                for ended in children.ended():
                    with contextlib.suppress(OSError):
                        control.send(b"%d %d\n" % ended)
            if control in ready:
                data, received, _, _ = socket.recv_fds(control, CONTROL_BYTES, 64)
                if not data:
                    return
                for file in received:
                    os.set_inheritable(file, False)
                files += received
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    verb, number, *more = line.split()
                    if verb == b"signal":
                        children.signal(int(number), int(more[0]))
                    elif verb == b"until":
                        children.until(int(number), int(more[0]) / 1e6)
                    else:
                        own, files = files[: _FILES[verb]], files[_FILES[verb] :]
                        others = [control.fileno(), woken.fileno(), waking.fileno(), *files]
                        work = _served(serve, own) if verb == b"worker" else _shell(own)
                        children.pids[int(number)] = _spawn(work, own, others, die_with_parent)
            # After the messages: a robot that comes late with a renewal is heard before it is judged.
            children.end_those_due()
    finally:
        signal.set_wakeup_fd(-1)  # children that die now would write to sockets that are closed
        children.kill_all()


_FILES: Final = {b"worker": 1, b"command": 4}


def _served(serve: Serve, files: Sequence[int]) -> Callable[[], None]:
    return lambda: serve(Connection(files[0]))


def _shell(files: Sequence[int]) -> Callable[[], None]:
    """Become the command of the order in the first file, with the others as its standard files."""

    def become() -> None:
        order, *standard = files
        with open(order, "rb") as file:
            file.seek(0)
            command, *told = file.read().split(b"\0")
        standard = [fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, len(standard)) for given in standard]
        for number, given in enumerate(standard):
            os.dup2(given, number)
        with contextlib.suppress(OSError):
            for name in os.listdir("/dev/fd"):
                _keep_to_ourselves(int(name), len(standard))
        for ignored in _IGNORED_BY_PYTHON:
            signal.signal(ignored, signal.SIG_DFL)
        environment = {**os.environb, **dict(cast("tuple[bytes, bytes]", one.split(b"=", 1)) for one in told)}
        try:
            os.execve(_SHELL, [b"sh", b"-c", command], environment)  # noqa: S606 - it is the shell
        except OSError as problem:
            os.write(2, f"the command cannot be started: {problem.strerror}\n".encode())
            os._exit(CANNOT_START)

    return become


def _keep_to_ourselves(file: int, first: int) -> None:
    """The command gets no file of ours from that number on."""
    if file >= first:
        with contextlib.suppress(OSError):
            os.set_inheritable(file, False)


def _spawn(
    work: Callable[[], None], own: Sequence[int], others: Sequence[int], die_with_parent: Callable[[], None]
) -> int:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for usual in _USUAL_SIGNALS:
            signal.signal(usual, signal.SIG_DFL)
        os.setpgid(0, 0)
        die_with_parent()
        for file in others:
            os.close(file)
        _end_process_with(work)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # both sides do it, so that neither can come too late
    for file in own:
        os.close(file)
    return pid


_USUAL_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def _with_parent() -> Callable[[], None]:
    """What a child does so that it is killed when the nursery is killed; Linux only, and only the leader of a group."""
    if sys.platform != "linux":
        return lambda: None
    library: Any = ctypes.CDLL(None)
    nursery = os.getpid()

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != nursery:
            os._exit(1)

    return ask


def _signal_group(pid: int, what: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, what)


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
