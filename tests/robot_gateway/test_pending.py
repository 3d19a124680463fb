"""The table of unanswered commands: answers find who asked, and nobody waits for ever."""

from collections.abc import Callable

from commands.reasons import Refusal
from robot_gateway.pending import Answer, Collected, Pending, refusal_of

ACCEPTED = {"status": "accepted", "answer": {"task": "t"}}


class Asker:
    """Remembers what it was answered."""

    def __init__(self) -> None:
        self.got: list[tuple[int, Answer]] = []

    def answered(self, index: int, answer: Answer) -> None:
        self.got.append((index, answer))


def table(unanswered_max: int = 10) -> tuple[Pending, Callable[[float], None]]:
    now = [0.0]

    def move_to(instant: float) -> None:
        now[0] = instant

    return Pending(unanswered_max, 30.0, lambda: now[0]), move_to


def test_an_answer_reaches_who_asked() -> None:
    """By pool and command id; the same id in another pool is another command."""
    pending, _ = table()
    a, b = Asker(), Asker()
    pending.add("p", "c1", a, 0)
    pending.add("q", "c1", b, 3)

    assert pending.answer("q", "c1", ACCEPTED, "log~q@7")
    assert not pending.answer("q", "c1", ACCEPTED, "log~q@7")

    assert a.got == []
    assert b.got == [(3, Answer("c1", "q", accepted={"task": "t"}, position="log~q@7"))]
    assert len(pending) == 1


def test_the_same_command_twice_is_answered_twice_in_order() -> None:
    """A client that asked again while the first answer was on its way gets both."""
    pending, _ = table()
    first, second = Asker(), Asker()
    pending.add("p", "c1", first, 0)
    pending.add("p", "c1", second, 0)

    pending.answer("p", "c1", ACCEPTED, "log~p@1")
    pending.answer("p", "c1", {"status": "refused", "reason": "queue_full", "text": "full"}, "log~p@1")

    assert first.got[0][1].accepted == {"task": "t"}
    assert second.got[0][1].refusal == Refusal("queue_full", "full")
    assert len(pending) == 0


def test_no_answer_in_time_is_an_answer() -> None:
    """After the time-out, and not before; a late answer finds nobody."""
    pending, move_to = table()
    early, late = Asker(), Asker()
    pending.add("p", "c1", early, 0)
    move_to(10)
    pending.add("p", "c2", late, 0)

    move_to(29.9)
    pending.expire()
    assert early.got == []
    move_to(30)
    pending.expire()

    (answer,) = [answer for _, answer in early.got]
    assert answer.refusal is not None
    assert answer.refusal.reason == "no_answer"
    assert late.got == []
    assert not pending.answer("p", "c1", ACCEPTED, None)
    assert len(pending) == 1


def test_the_table_is_bounded() -> None:
    """More than the limit is refused with a time to come back; answered commands make room."""
    pending, _ = table(unanswered_max=2)
    waiting = pending.add("p", "c1", Asker(), 0)
    assert pending.full_for(1) is None
    refusal = pending.full_for(2)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_ms) == ("gateway_busy", 1000)

    pending.refuse(waiting, Refusal("log_unavailable", "away"))
    assert pending.full_for(2) is None
    pending.refuse(waiting, Refusal("log_unavailable", "away"))
    assert len(pending) == 0


def test_several_answers_are_gathered_in_the_order_of_asking() -> None:
    """Whatever order they come in."""
    pending, _ = table()
    got: list[list[Answer]] = []
    asker = Collected(3, got.append)
    for index in range(3):
        pending.add("p", f"c/{index}", asker, index)

    for index in (2, 0, 1):
        assert got == []
        pending.answer("p", f"c/{index}", ACCEPTED, None)

    assert [answer.command for answer in got[0]] == ["c/0", "c/1", "c/2"]


def test_what_a_refusal_carries_beside_its_reason_is_kept() -> None:
    """Allowed verbs of wrong_state, field and time to come back; an unknown word is a fault of ours."""
    refusal = refusal_of(
        {
            "status": "refused",
            "reason": "wrong_state",
            "text": "no",
            "field": "/x",
            "retry_after_ms": 5,
            "state": "DEAD",
            "allowed": ["redrive"],
        }
    )
    assert refusal == Refusal("wrong_state", "no", "/x", 5, {"state": "DEAD", "allowed": ["redrive"]})
    assert refusal_of({"status": "refused", "reason": "new_word", "text": "?"}).reason == "internal"
