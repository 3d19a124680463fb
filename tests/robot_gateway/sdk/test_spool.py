"""Final reports on disk until they are acknowledged."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from robot_gateway.conformance.fake_gateway import FakeGateway
from robot_gateway.sdk import FleetlogError
from robot_gateway.sdk.outbox import Message
from robot_gateway.sdk.spool import Spool
from tests.support.robots_under_test import InThisProcess


def message(number: int) -> Message:
    """A final report."""
    body = f'{{"type":"complete","id":"b.{number}","task":"t{number}","attempt":1,"result":"é"}}'
    return Message(f"b.{number}", "complete", body.encode(), (f"t{number}", 1))


def test_what_was_not_acknowledged_is_there_again(tmp_path: Path) -> None:
    """In order, byte for byte; what is done is not."""
    spool = Spool(tmp_path / "spool")
    for number in (1, 2, 3):
        spool.put(f"t{number}", 1, message(number))
    spool.done("b.2")
    spool.close()
    left = Spool(tmp_path / "spool").left_behind()
    assert [(s.task, s.attempt, s.message.id, s.message.body) for s in left] == [
        (f"t{n}", 1, f"b.{n}", message(n).body) for n in (1, 3)
    ]


@pytest.mark.parametrize("torn", [b'{"put":"b.9","type":"comp', b"\xff\xfe", b'{"put":"b.9"'])
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    """As a crash in the middle of a write leaves it; what came before is kept, and writing goes on after it."""
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.put("t1", 1, message(1))
    spool.close()
    path.write_bytes(path.read_bytes() + torn)
    spool = Spool(path)
    assert [s.message.id for s in spool.left_behind()] == ["b.1"]
    spool.put("t2", 1, message(2))
    spool.close()
    assert [s.message.id for s in Spool(path).left_behind()] == ["b.1", "b.2"]


def test_two_robots_cannot_share_a_spool(tmp_path: Path) -> None:
    """A sentence that says what to do."""
    spool = Spool(tmp_path / "spool")
    with pytest.raises(FleetlogError, match="give each robot its own"):
        Spool(tmp_path / "spool")
    spool.close()
    with pytest.raises(FleetlogError, match="cannot be opened"):
        Spool("/proc/nowhere/spool")


def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    """When nothing waits the file is emptied."""
    path = tmp_path / "spool"
    spool = Spool(path)
    for number in range(200):
        spool.put("t", number, Message(f"b.{number}", "complete", b"x" * 1_000, ("t", number)))
        spool.done(f"b.{number}")
    assert 0 < path.stat().st_size < 70_000
    spool.close()
    assert path.stat().st_size == 0


def test_a_damaged_line_costs_nothing_else(tmp_path: Path) -> None:
    """It is passed over; what stands behind it is kept, on disk as well."""
    path = tmp_path / "spool"
    spool = Spool(path)
    for number in (1, 2, 3):
        spool.put(f"t{number}", 1, message(number))
    spool.close()
    for damage in (b'"type":"comp', b'"attempt":1'):
        path.write_bytes(path.read_bytes().replace(damage, b"\0" * len(damage), 1))
        found = [Spool(path).left_behind() for _ in range(2)]
        assert [[s.message.id for s in left] for left in found] == [["b.2", "b.3"]] * 2


def test_a_line_without_its_end_is_whole(tmp_path: Path) -> None:
    """What is written next stands on a line of its own."""
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.put("t1", 1, message(1))
    spool.close()
    path.write_bytes(path.read_bytes().rstrip())
    spool = Spool(path)
    spool.put("t2", 1, message(2))
    spool.close()
    assert [s.message.id for s in Spool(path).left_behind()] == ["b.1", "b.2"]


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b'{"accounts": 7}\n{}\n', b"\x93\n\xff" * 100])
def test_a_file_that_is_no_spool_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    """Somebody gave a wrong path."""
    path = tmp_path / "spool"
    path.write_bytes(content)
    with pytest.raises(FleetlogError, match="something else than a spool: give another path"):
        Spool(path)
    assert path.read_bytes() == content


def test_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    """What cannot be kept is said by an error; acknowledgements go on, and no half line is left behind."""
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.put("t1", 1, message(1))
    size = path.stat().st_size
    with files_up_to(size + 10):
        with pytest.raises(OSError, match="too large"):
            spool.put("t2", 1, message(2))
        assert path.stat().st_size == size
        spool.done("b.2")
        spool.done("b.1")
        assert path.stat().st_size == 0, "an empty spool needs no room"
    spool.put("t3", 1, message(3))
    spool.close()
    assert [s.message.id for s in Spool(path).left_behind()] == ["b.3"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Writing beyond so many bytes of a file fails; part of what is written is then there, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_robot_tells_what_its_former_life_did(gateway: FakeGateway, tmp_path: Path) -> None:
    """The work is done, the robot dies before the ack: the next life names the attempt and sends the same report."""
    first = InThisProcess("thread", "r1", gateway.url, spool=tmp_path / "spool")
    session = gateway.session()
    session.ready()
    session.start("t1")
    complete = session.expect("complete")
    session.answer_beats = False
    first.stop()

    second = InThisProcess("thread", "r1", gateway.url, spool=tmp_path / "spool")
    session = gateway.session()
    assert session.hello["holding"] == [{"task": "t1", "attempt": 1, "started": True}]
    session.welcome(held=[{"task": "t1", "attempt": 1, "verdict": "stop", "reason": "ended"}])
    again = session.expect("complete")
    assert (again["id"], again["result"]) == (complete["id"], complete["result"])
    session.ack(session.expect("ready"))
    session.ack(again)
    session.expect_beat(lambda beat: beat["holding"] == [])
    second.stop()
    assert Spool(tmp_path / "spool").left_behind() == []
