"""Playing rows and saying what came of each. No row raises: whatever goes wrong in it is its result."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from robot_gateway.conformance.act import Act
from robot_gateway.conformance.checking import Broken, NotReady
from robot_gateway.conformance.programs import Program, starts
from robot_gateway.conformance.raw_robot import Closed
from robot_gateway.conformance.row import Row
from robot_gateway.conformance.scene import GatewayUnderTest, Scene
from robot_gateway.sdk.errors import FleetlogError

ENDING_S: Final = 5.0
TELL: Final = "tell your program where the gateway is: {gateway}, {pool} and {robot} in its arguments are replaced"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a row. `transport`: the one it was played over, for gateways. `problem`: None where it passed."""

    row: str
    transport: str | None
    rule: str
    problem: str | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the rule was kept."""
        return self.problem is None


def play_gateway(gateway: GatewayUnderTest, rows: Sequence[tuple[str, Row[Scene]]], at_once: int) -> Iterator[Result]:
    """Plays (transport, row), so many at once; the results in order."""

    def job(transport: str, row: Row[Scene]) -> Callable[[], Result]:
        def play() -> None:
            with Scene(gateway, transport) as scene:
                row.play(scene)

        return lambda: _played(row, transport, play, list)

    yield from _in_order([job(transport, row) for transport, row in rows], at_once)


def play_robot(command: Sequence[str], rows: Sequence[Row[Act]], at_once: int, patience_s: float) -> Iterator[Result]:
    """Plays rows against a command, started anew for each, so many at once; the results in order.

    Raises NotReady where the command cannot be started or says no hello at all.
    """
    programs = _Programs(starts(command, patience_s))

    def job(row: Row[Act]) -> Callable[[], Result]:
        def played() -> Result:
            act = Act(programs.start, patience_s)

            def play() -> None:
                with act:
                    row.play(act)

            return _played(row, None, play, lambda: act.remarks)

        return played

    try:
        _beside(partial(_meet, programs.start, patience_s))
        yield from _in_order([job(row) for row in rows], at_once, programs.end)
    finally:
        programs.end()


def _beside(step: Callable[[], None]) -> None:
    """Does `step` in a thread of its own: Ctrl-C, which comes to the main one, never falls between the start of a
    program and the noting of it."""
    done = Future[None]()

    def work() -> None:
        try:
            step()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="first meeting", daemon=True).start()
    done.result()


class _Programs:
    """The programs that run; end() ends them all, and lets no further one start."""

    def __init__(self, start: Callable[[str], Program]) -> None:
        self._start = start
        self._running: list[Program] = []
        self._lock = threading.Lock()
        self._over = False

    def start(self, gateway: str) -> Program:
        with self._lock:
            if self._over:
                raise NotReady("the suite was interrupted.")
            self._running = [program for program in self._running if program.process.returncode is None]
            program = self._start(gateway)
            self._running.append(program)
        return program

    def end(self) -> None:
        with self._lock:
            self._over = True
            for program in self._running:
                program.stop()


def _meet(start: Callable[[str], Program], patience_s: float) -> None:
    """The command comes and says hello; else no row could say more than that. Raises NotReady."""
    act = Act(start, patience_s)
    try:
        with act:
            act.start()
            act.gateway.session()
    except Broken:
        if act.gateway.violations:
            raise NotReady(f"the robot's first message is no hello: {act.gateway.violations[0]}.") from None
        fate = next(iter(act.remarks), None)
        came = fate or f"no robot said hello in {patience_s:g} s"
        raise NotReady(f"{came}; {TELL}.") from None


def _played(row: Row[Any], transport: str | None, play: Callable[[], None], remarks: Callable[[], list[str]]) -> Result:
    begun = time.monotonic()
    problem = None
    try:
        play()
    except Exception as error:
        problem = "; ".join([_sentence(error), *remarks()])
    return Result(row.name, transport, row.rule, problem, time.monotonic() - begun)


def _sentence(error: Exception) -> str:
    """What went wrong in a row, for people."""
    if isinstance(error, Broken | NotReady):
        return str(error)
    if isinstance(error, Closed):
        return f"the session was closed with {error}".strip()
    if isinstance(error, FleetlogError):
        return f"a request was refused: {error.text.rstrip('.')} [{error.reason}]"
    return f"what came could not be read ({type(error).__name__}: {error})"


def _in_order(
    jobs: Sequence[Callable[[], Result]], at_once: int, cut_short: Callable[[], None] = lambda: None
) -> Iterator[Result]:
    """The results of the jobs, in order. Where nobody wants more of them, no further job is begun, `cut_short` is
    called, and those that run have a little time to put things in order.
    """
    waiting = queue.SimpleQueue[tuple[Callable[[], Result], Future[Result]]]()
    futures = [Future[Result]() for _ in jobs]
    for pair in zip(jobs, futures, strict=True):
        waiting.put(pair)

    def work() -> None:
        while True:
            try:
                job, future = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

    threads = [threading.Thread(target=work, name="rows", daemon=True) for _ in range(min(at_once, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for future in futures:
            yield future.result()
    finally:
        while not waiting.empty():
            with suppress(queue.Empty):
                waiting.get_nowait()
        cut_short()
        give_up = time.monotonic() + ENDING_S
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))
