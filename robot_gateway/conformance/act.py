"""Where the rows for robots are played: one robot under test and a gateway by script for each play."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, Self

from robot_gateway.conformance.fake_gateway import PATIENCE_S, FakeGateway
from robot_gateway.conformance.fake_session import Session

POOL: Final = "default"
ROBOT: Final = "r1"
"""The pool and the id that the robot is started with."""

HANDLERS: Final = "handlers"
"""The mark of rows that touch the work itself: they are played against each way in which a robot can do work."""
RESENDS: Final = "resends"
"""The mark of rows that wait for a message that comes again after 5 s without an answer."""
SIGNALS: Final = "signals"
"""The mark of rows that send a signal, and so need a robot with a process of its own."""


class RobotUnderTest(Protocol):
    """A robot that does the kind `work`: payload {"ms": how long, "fail"?: "retryable" or "fatal"}, result with
    "done": true. It was started with a gateway's address, POOL and ROBOT.
    """

    def stop(self) -> None:
        """End it, whatever it does."""

    def gave_up(self, sentence: str) -> None:
        """The gateway has told it why it must not come back: this sentence."""

    def terminate(self) -> None:
        """SIGTERM."""

    def exit_code(self) -> int:
        """Wait until it has ended by itself. Raises Broken where it does not."""

    def fate(self) -> str | None:
        """How it ended by itself, for people; None while it runs."""


class Act:
    """One play. `begin`: starts the robot, given the gateway's address. `patience_s`: how long is waited for it.

    Where a play fails, `remarks` say what else was seen: messages that are none, and how the robot ended.
    """

    def __init__(self, begin: Callable[[str], RobotUnderTest], patience_s: float = PATIENCE_S) -> None:
        self._begin = begin
        self.gateway = FakeGateway(patience_s)
        self.remarks: list[str] = []
        self._robot: RobotUnderTest | None = None

    def start(self) -> RobotUnderTest:
        """Start the robot."""
        robot = self._robot = self._begin(self.gateway.url)
        self.gateway.robot_is_gone = lambda: robot.fate() is not None
        return robot

    @property
    def robot(self) -> RobotUnderTest:
        """The robot, started if it was not."""
        return self._robot or self.start()

    def begin(self) -> Session:
        """Start the robot; its session, with welcome said and ready heard. Raises Broken."""
        self.start()
        session = self.gateway.session()
        session.ready()
        return session

    def working(self, task: str = "t1", **fields: Any) -> Session:
        """The same, and the robot works on a task. Raises Broken."""
        session = self.begin()
        session.start(task, **fields)
        return session

    def reconnect(self, session: Session) -> Session:
        """Break the session so that the robot says hello anew; its next one. Raises Broken."""
        if session.transport == "polling":
            session.close(1012)  # a lost answer alone does not end a session by long polling
        else:
            session.cut()
        return self.gateway.session()

    def __enter__(self) -> Self:
        self.gateway.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if self._robot is not None:
                if kind is not None:
                    self.remarks = [*self.gateway.violations[:1], *filter(None, [self._robot.fate()])]
                self._robot.stop()
        finally:
            self.gateway.__exit__(kind, *rest)
