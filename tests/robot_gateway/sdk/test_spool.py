"""Final reports on disk until they are acknowledged."""

from __future__ import annotations

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
    for number in range(2000):
        spool._waiting[f"b.{number}"] = spool._waiting.get(f"b.{number}")  # type: ignore[assignment]
        spool.done(f"b.{number}")
    assert path.stat().st_size < 70_000
    spool.close()
    assert path.stat().st_size == 0


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
