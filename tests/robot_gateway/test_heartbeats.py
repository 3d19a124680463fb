"""When a heartbeat may be answered: its record is in the log, and outcomes were followed to a fresh end."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from commands.inputs import Heartbeats, decode_report
from commands.messages import Heartbeat, HeldProgress
from robot_gateway.heartbeats import HeartbeatGather
from streams.port import Appended, Headers, LogFault, LogUnavailable, Topic


class HeldLog:
    """A log whose appends wait until the test makes them."""

    def __init__(self) -> None:
        self.records: list[Heartbeats] = []
        self.sizes: list[int] = []
        self.waiting: list[Appended] = []

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        assert topic is Topic.REPORTS
        record = decode_report(value)
        assert isinstance(record, Heartbeats)
        self.records.append(record)
        self.sizes.append(len(value))
        self.waiting.append(done)

    def settle(self, fault: LogFault | None = None) -> None:
        for done in self.waiting:
            done(fault, -1 if fault else 0)
        self.waiting.clear()


class Robot:
    """What the gathering knows of a session."""

    def __init__(self, robot: str = "r1") -> None:
        self.robot, self.pool = robot, "p"
        self.epoch: int | None = 7
        self.ended = False
        self.window_ms = 1000
        self.answered: list[str] = []
        self.told_away: list[str] = []

    def heartbeat_in_log(self, ids: list[str], named: frozenset[tuple[str, int]]) -> None:
        self.answered += ids

    def log_is_away(self, of: str) -> None:
        self.told_away.append(of)


class Gathering:
    """A gathering on a held log; `followed_at` is the test's to set. Sends only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = HeldLog()
        self.followed_at: float | None = time.monotonic()
        monkeypatch.setattr("robot_gateway.heartbeats.asyncio.get_running_loop", NoLoop)
        log: Any = self.log
        self.gather = HeartbeatGather(log, "g", 0.25, lambda: self.followed_at, call)

    def beat(self, robot: Robot, of: str, *held: tuple[str, int], size: int = 100) -> None:
        message = Heartbeat(
            id=of, epoch=robot.epoch, seq=int(of[1:]), holding=[HeldProgress(task=t, attempt=a) for t, a in held]
        )
        session: Any = robot
        self.gather.add(session, message, size)


class NoLoop:
    """A loop on which time stands still."""

    def call_later(self, delay_s: float, step: Callable[[], None]) -> Any:
        class Timer:
            def cancel(self) -> None:
                """Nothing to cancel."""

        return Timer()


def call(step: Callable[..., None], *arguments: Any) -> None:
    step(*arguments)


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> Gathering:
    """Outcomes are followed to now."""
    return Gathering(monkeypatch)


def test_no_answer_before_the_record_is_in_the_log(gathering: Gathering) -> None:
    """One record for all robots of a pool; the answers come when it is durable."""
    a, b = Robot("a"), Robot("b")
    gathering.beat(a, "h1", ("t", 1))
    gathering.beat(b, "h5")
    assert gathering.log.records == []

    gathering.gather.flush()
    (record,) = gathering.log.records
    assert [(beat.robot, beat.epoch, beat.seq) for beat in record.beats] == [("a", 7, 1), ("b", 7, 5)]
    assert a.answered == []
    gathering.log.settle()
    assert (a.answered, b.answered) == (["h1"], ["h5"])


def test_no_answer_while_outcomes_may_be_unread(gathering: Gathering) -> None:
    """An end asked for longer ago than a window, or never: the answer waits until outcomes were followed on."""
    for followed_at in (None, time.monotonic() - 1.5):
        robot = Robot()
        gathering.followed_at = followed_at
        gathering.beat(robot, "h1")
        gathering.gather.flush()
        gathering.log.settle()
        gathering.gather.moved()
        assert robot.answered == []

        gathering.followed_at = time.monotonic() - 0.5
        gathering.gather.moved()
        assert robot.answered == ["h1"]
        gathering.gather.moved()
        assert robot.answered == ["h1"]


def test_a_record_that_was_not_written_is_said(gathering: Gathering) -> None:
    """The robot learns that this sign of life did not count."""
    robot = Robot()
    gathering.beat(robot, "h1")
    gathering.gather.flush()
    gathering.log.settle(LogUnavailable("away"))

    assert (robot.answered, robot.told_away) == ([], ["h1"])


def test_a_session_that_is_over_gets_no_answer(gathering: Gathering) -> None:
    """Ended, or in another epoch by now."""
    ended, moved_on = Robot("a"), Robot("b")
    gathering.beat(ended, "h1")
    gathering.beat(moved_on, "h1")
    gathering.gather.flush()
    ended.ended = True
    moved_on.epoch = 8
    gathering.log.settle()

    assert (ended.answered, moved_on.answered) == ([], [])


def test_the_newest_heartbeat_counts_and_answers_those_it_includes(gathering: Gathering) -> None:
    """An older one is answered only if the newer names all that it named: its record is all that the owner sees."""
    robot = Robot()
    gathering.beat(robot, "h1", ("t", 1))
    gathering.beat(robot, "h2", ("t", 1), ("u", 1))
    gathering.gather.flush()
    gathering.log.settle()
    assert robot.answered == ["h1", "h2"]

    gathering.beat(robot, "h3", ("t", 1), ("u", 1))
    gathering.beat(robot, "h4", ("u", 1))
    gathering.gather.flush()
    gathering.log.settle()
    assert robot.answered == ["h1", "h2", "h4"]
    assert [len(record.beats) for record in gathering.log.records] == [1, 1]


def test_a_record_never_grows_too_large(gathering: Gathering) -> None:
    """Many or long heartbeats are sent early, in records that a topic takes."""
    for n in range(1, 8):
        robot = Robot(f"r{n}")
        held = [(f"{'t' * 120}{i}", 1) for i in range(2000)]
        gathering.beat(robot, f"h{n}", *held, size=300_001)
    assert len(gathering.log.records) == 7
    assert max(gathering.log.sizes) < 900_000
