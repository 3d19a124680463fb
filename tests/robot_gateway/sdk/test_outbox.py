"""Messages on their way: order, numbers, repeats. No clock: the tests say what time it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commands.messages import Accept, Complete, FromRobot, Heartbeat, Ready
from robot_gateway.sdk.outbox import RESEND_AFTER_S, Message, Outbox

ALL = 1_000_000


@pytest.fixture
def outbox() -> Outbox:
    """An outbox in epoch 7."""
    box = Outbox("boot")
    box.begin(7)
    return box


def add(box: Outbox, message: FromRobot, key: tuple[str, int] | None = None) -> Message:
    """Put a message in."""
    made = box.message(message, key)
    box.add(made)
    return made


def complete(box: Outbox, task: str = "t1") -> Message:
    """A final report."""
    return add(box, Complete(id=box.new_id(), task=task, attempt=1), (task, 1))


def accept(box: Outbox, task: str = "t1") -> Message:
    """An accept."""
    return add(box, Accept(id=box.new_id(), task=task, attempt=1), (task, 1))


def taken(box: Outbox, now: float) -> list[dict[str, Any]]:
    """What goes out at `now`."""
    return [json.loads(frame) for frame in box.take(now, ALL)]


def test_resend_after_is_what_the_protocol_says() -> None:
    """Five seconds."""
    assert RESEND_AFTER_S == 5.0


def test_messages_are_numbered_in_their_epoch(outbox: Outbox) -> None:
    """seq 1, 2, 3; ids are the boot id and a counter."""
    accept(outbox), complete(outbox, "t2")
    assert [(m["epoch"], m["seq"], m["id"]) for m in taken(outbox, 0)] == [(7, 1, "boot.1"), (7, 2, "boot.2")]
    assert taken(outbox, 1) == []


def test_without_an_answer_it_goes_again_after_five_seconds(outbox: Outbox) -> None:
    """Same id, next number; the first sending is remembered."""
    message = accept(outbox)
    taken(outbox, 100.0)
    assert outbox.next_due() == 105.0
    assert taken(outbox, 104.9) == []
    [again] = taken(outbox, 105.0)
    assert (again["id"], again["seq"]) == (message.id, 2)
    assert (message.first_sent_at, message.sent_at) == (100.0, 105.0)
    assert taken(outbox, 109.0) == []
    assert len(taken(outbox, 110.0)) == 1


def test_it_is_due_for_what_has_no_answer(outbox: Outbox) -> None:
    """An answered message wakes nobody; something is due when a message is added, or was sent five seconds ago."""
    first, second = accept(outbox), complete(outbox, "t2")
    assert outbox.has_due(100.0)
    taken(outbox, 100.0)
    assert not outbox.has_due(104.9)
    outbox.answered(first.id)
    outbox.again(second)
    assert outbox.has_due(102.0)
    taken(outbox, 102.0)
    assert outbox.next_due() == 107.0
    assert outbox.has_due(107.0)
    outbox.answered(second.id)
    assert outbox.next_due() is None
    assert not outbox.has_due(200.0)


def test_an_answer_ends_the_sending(outbox: Outbox) -> None:
    """Answered once; a second answer is nobody's."""
    message = accept(outbox)
    taken(outbox, 0)
    assert outbox.answered(message.id) is message
    assert outbox.answered(message.id) is None
    assert taken(outbox, 60) == []


def test_held_back_until_its_time(outbox: Outbox) -> None:
    """refused with retry: at that time, not by the five seconds before it."""
    message = accept(outbox)
    taken(outbox, 0)
    outbox.hold_back(message, 20.0)
    assert taken(outbox, 19.9) == []
    assert [m["id"] for m in taken(outbox, 20.0)] == [message.id]


def test_only_the_newest_of_some_types_counts(outbox: Outbox) -> None:
    """ready after ready: the older one is never sent again."""
    add(outbox, Ready(id=outbox.new_id(), n=1))
    taken(outbox, 0)
    newer = add(outbox, Ready(id=outbox.new_id(), n=0))
    assert [m["id"] for m in taken(outbox, 10)] == [newer.id]


def test_a_new_epoch_sends_final_reports_first_and_no_old_ready(outbox: Outbox) -> None:
    """accept, ready, complete were made; complete, accept go out, numbers begin anew."""
    accept(outbox, "t1")
    add(outbox, Ready(id=outbox.new_id(), n=1))
    complete(outbox, "t2")
    taken(outbox, 0)
    outbox.disconnected()
    assert taken(outbox, 1) == []
    outbox.begin(9)
    sent = taken(outbox, 2)
    assert [(m["type"], m["epoch"], m["seq"]) for m in sent] == [("complete", 9, 1), ("accept", 9, 2)]


def test_heartbeats_go_before_everything_and_once(outbox: Outbox) -> None:
    """Never sent again."""
    accept(outbox)
    outbox.add_once(outbox.message(Heartbeat(id=outbox.new_id(), holding=[])))
    assert [m["type"] for m in taken(outbox, 0)] == ["heartbeat", "accept"]
    assert [m["type"] for m in taken(outbox, 60)] == ["accept"]


def test_only_so_many_bytes_at_once(outbox: Outbox) -> None:
    """What does not fit waits for the next time, in order."""
    for number in range(10):
        accept(outbox, f"t{number}")
    first = outbox.take(0, 200)
    assert 1 < len(first) < 10
    rest = outbox.take(0, ALL)
    assert [json.loads(m)["task"] for m in [*first, *rest]] == [f"t{n}" for n in range(10)]


def test_a_dropped_message_is_not_sent(outbox: Outbox) -> None:
    """Neither now nor later."""
    outbox.drop(accept(outbox))
    assert taken(outbox, 0) == []
