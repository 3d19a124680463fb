"""The duties of a robot about its attempts, on a clock that the tests turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commands.messages import (
    Ack,
    Assign,
    AssignCheckpoint,
    AttemptNotice,
    HeartbeatAck,
    Refused,
    Welcome,
    WelcomeHeld,
)
from robot_gateway.sdk.endings import Ending, Why, completed
from robot_gateway.sdk.holdings import Attempt, End, Holdings, Start, Tell, Until
from robot_gateway.sdk.outbox import Outbox


class Handler:
    """A handler that only remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ends_at: float | None = None

    def until(self, deadline: float) -> None:
        self.ends_at = deadline

    def cancel(self, why: Why) -> None:
        self.told.append(f"cancel {why}")

    def kill(self, why: Why) -> None:
        self.told.append(f"kill {why}")


def objection(assign: Assign) -> tuple[str, str] | None:
    return None if assign.kind == "work" else ("cannot", f"this robot has no handler for {assign.kind}")


class Bench:
    """Holdings with an outbox, a clock, and orders carried out as the engine does."""

    def __init__(self, slots: int = 2, grace_s: float | None = 10.0) -> None:
        self.now = 0.0
        self.outbox = Outbox("boot")
        self.outbox.begin(5)
        self.holdings = Holdings(self.outbox, slots, objection, grace_s)
        self.started: dict[str, tuple[Attempt, Handler]] = {}

    def at(self, now: float) -> Bench:
        """Turn the clock."""
        self.now = now
        return self

    def assign(self, task: str = "t1", attempt: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """An assignment; what is said to it."""
        given: dict[str, Any] = {
            "assignment_id": "a",
            "kind": "work",
            "idempotency_key": f"key-{task}",
            "slot_cost": 1,
            "accept_within_ms": 5000,
            "lease_ms": 15000,
            "failures": 0,
            "lost": 0,
        }
        self.holdings.assigned(Assign(task=task, attempt=attempt, **(given | fields)), self.now)
        return self.said()

    def said(self) -> list[dict[str, Any]]:
        """What goes out now, after the orders were carried out."""
        for order in self.holdings.take_orders():
            match order:
                case Start(attempt=attempt):
                    handler = Handler()
                    attempt.run = handler
                    self.started[f"{attempt.task}/{attempt.number}"] = (attempt, handler)
                case End(run=run, why=why, force=force):
                    run.kill(why) if force else run.cancel(why)
                case Until(run=run, deadline=deadline):
                    run.until(deadline)
                case Tell(attempt=attempt, ending=ending):
                    self.holdings.ended(attempt, ending, self.holdings.report_of(attempt, ending), self.now)
        return [json.loads(frame) for frame in self.outbox.take(self.now, 1_000_000)]

    def ack(self, message: dict[str, Any], stop_after_ms: int | None = 10_000) -> list[dict[str, Any]]:
        """An ack; an accept's with its lease."""
        lease: dict[str, Any] = {}
        if message["type"] == "accept":
            lease = {"lease_ms": 10_000, "stop_after_ms": stop_after_ms}
        self.holdings.acknowledged(Ack(of=message["id"], **lease), self.now)
        return self.said()

    def refuse(self, message: dict[str, Any], reason: str, **fields: Any) -> list[dict[str, Any]]:
        """A refusal."""
        self.holdings.refused(Refused(of=message["id"], reason=reason, text=reason, **fields), self.now)
        return self.said()

    def run(self, task: str = "t1", attempt: int = 1, **fields: Any) -> Handler:
        """Assign, accept, ack."""
        [accept] = self.assign(task, attempt, **fields)
        assert accept["type"] == "accept"
        self.ack(accept)
        return self.started[f"{task}/{attempt}"][1]

    def end(self, task: str = "t1", attempt: int = 1, ending: Ending | None = None) -> list[dict[str, Any]]:
        """The handler ends."""
        ended, _ = self.started[f"{task}/{attempt}"]
        outcome = ending or completed({"done": True})
        self.holdings.ended(ended, outcome, self.holdings.report_of(ended, outcome), self.now)
        return self.said()

    def beat(self) -> dict[str, Any]:
        """A heartbeat."""
        self.holdings.heartbeat(self.now)
        [beat] = [m for m in self.said() if m["type"] == "heartbeat"]
        return beat

    def beat_ack(self, beat: dict[str, Any], **lists: Any) -> list[dict[str, Any]]:
        """Its answer."""
        self.holdings.beat_acknowledged(HeartbeatAck(of=beat["id"], heartbeat_every_ms=500, **lists), self.now)
        return self.said()

    def tick(self) -> float | None:
        """Time passes."""
        due = self.holdings.tick(self.now)
        self.said()
        return due


@pytest.fixture
def bench() -> Bench:
    """Two slots, a cancel grace of ten seconds, time 0."""
    return Bench()


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    """Their types."""
    return [message["type"] for message in messages]


def test_nothing_starts_before_the_ack(bench: Bench) -> None:
    """assign -> accept; only the ack starts the handler, once."""
    [accept] = bench.assign()
    assert bench.started == {}
    bench.ack(accept)
    bench.ack(accept)
    assert list(bench.started) == ["t1/1"]


def test_the_own_deadline_runs_from_the_first_sending_of_accept(bench: Bench) -> None:
    """Sent at 0, again at 5, acknowledged at 6 with 10 s: over at 9.5, whatever the second sending."""
    [accept] = bench.assign()
    [again] = bench.at(5).said()
    assert again["id"] == accept["id"]
    bench.at(6).ack(accept)
    handler = bench.started["t1/1"][1]
    assert bench.at(9.4).tick() == 9.5
    assert handler.told == []
    bench.at(9.5).tick()
    assert handler.told == ["kill own_deadline"]
    [stopped] = bench.end(ending=Ending("stopped"))
    assert (stopped["type"], stopped["why"]) == ("stopped", "own_deadline")


def test_an_ack_after_the_deadline_starts_nothing(bench: Bench) -> None:
    """First sent at 0, acknowledged at 9.5 with 10 s."""
    [accept] = bench.assign()
    [stopped] = [m for m in bench.at(9.5).ack(accept) if m["type"] != "accept"]
    assert (stopped["type"], stopped["why"]) == ("stopped", "own_deadline")
    assert bench.started == {}


def test_an_answered_heartbeat_moves_the_deadline_to_its_sending(bench: Bench) -> None:
    """Sent at 3, answered at 8: 12.5; from outside 12.75. An older one answered later moves nothing back."""
    handler = bench.run()
    early, late = bench.at(2).beat(), bench.at(3).beat()
    bench.at(8).beat_ack(late)
    bench.at(9).beat_ack(early)
    assert bench.at(12.4).tick() == 12.5
    assert (handler.told, handler.ends_at) == ([], 12.75)
    bench.at(12.5).tick()
    assert handler.told == ["kill own_deadline"]


def test_a_heartbeat_that_did_not_name_it_moves_nothing(bench: Bench) -> None:
    """Sent before the attempt ran, answered after."""
    beat = bench.beat()
    handler = bench.at(1).run()
    bench.at(5).beat_ack(beat)
    bench.at(10.5).tick()
    assert handler.told == ["kill own_deadline"]


def test_without_stop_after_there_is_no_deadline(bench: Bench) -> None:
    """`ask` and `never`."""
    [accept] = bench.assign()
    bench.ack(accept, stop_after_ms=None)
    assert bench.at(100_000).tick() is None
    assert bench.started["t1/1"][1].told == []


def test_heartbeats_and_hello_name_what_has_no_acknowledged_end(bench: Bench) -> None:
    """Accepting: hello alone, not started. Running and ended: both. Acknowledged: neither."""
    [accept] = bench.assign("t1")
    bench.run("t2")
    assert [(h.task, h.started) for h in bench.holdings.held()] == [("t1", False), ("t2", True)]
    assert [h["task"] for h in bench.beat()["holding"]] == ["t2"]
    bench.ack(accept)
    [report] = bench.end("t2")
    assert [h["task"] for h in bench.beat()["holding"]] == ["t1", "t2"]
    bench.ack(report)
    assert [h["task"] for h in bench.beat()["holding"]] == ["t1"]


def test_slots_count_by_cost(bench: Bench) -> None:
    """Two slots: a task of cost 2 fills them; when its handler is over there is room, its ack may come later."""
    bench.run("t1", slot_cost=2)
    [reject] = bench.assign("t2")
    assert (reject["type"], reject["reason"]) == ("reject", "busy")
    bench.end("t1")
    assert kinds(bench.assign("t3")) == ["accept"]


def test_a_repeated_assign_is_answered_as_before(bench: Bench) -> None:
    """accept for accept, reject for reject, the same ids."""
    [accept] = bench.assign("t1")
    [again] = bench.assign("t1")
    assert again["id"] == accept["id"]
    [reject] = bench.assign("t2", kind="other")
    [again] = bench.assign("t2", kind="other")
    assert (again["id"], again["reason"]) == (reject["id"], "cannot")


def test_a_newer_attempt_waits_for_the_older_one(bench: Bench) -> None:
    """The same idempotency key: the older is stopped, the newer accepted only when it has ended."""
    older = bench.run("t1", 1)
    assert bench.assign("t1", 2) == []
    assert older.told == ["kill stop"]
    said = bench.end("t1", 1, Ending("stopped"))
    assert sorted(kinds(said)) == ["accept", "stopped"]


def test_a_newer_attempt_is_rejected_if_the_older_does_not_end(bench: Bench) -> None:
    """Before its accept time is over (0.8 of 5 s)."""
    bench.run("t1", 1)
    bench.assign("t1", 2)
    assert bench.at(3.9).tick() == 4.0
    bench.at(4.0).holdings.tick(4.0)
    [reject] = bench.said()
    assert (reject["type"], reject["attempt"], reject["reason"]) == ("reject", 2, "busy")


def test_work_that_was_done_is_not_done_again(bench: Bench) -> None:
    """The older attempt completed, its report has no ack: the newer one is completed with the same result."""
    bench.run("t1", 1)
    bench.end("t1", 1, completed({"sha": 1}))
    [accept] = bench.assign("t1", 2)
    [complete] = bench.ack(accept)
    assert (complete["type"], complete["attempt"], complete["result"]) == ("complete", 2, {"sha": 1})
    assert list(bench.started) == ["t1/1"]


def test_cancel_is_polite_and_then_by_force(bench: Bench) -> None:
    """Asked at 1, forced after the grace of 10 s; the report says cancel."""
    [accept] = bench.assign()
    bench.ack(accept, stop_after_ms=None)
    handler = bench.started["t1/1"][1]
    bench.at(1).holdings.cancel(AttemptNotice(task="t1", attempt=1), 1)
    bench.said()
    assert handler.told == ["cancel cancel"]
    assert bench.at(10.9).tick() == 11
    bench.at(11).tick()
    assert handler.told == ["cancel cancel", "kill cancel"]
    [stopped] = bench.end(ending=Ending("stopped"))
    assert stopped["why"] == "cancel"


def test_what_a_cancelled_handler_completes_counts(bench: Bench) -> None:
    """complete after cancel is reported as complete."""
    bench.run()
    bench.holdings.cancel(AttemptNotice(task="t1", attempt=1), 0)
    assert kinds(bench.end()) == ["complete"]


def test_stop_comes_before_cancel(bench: Bench) -> None:
    """A cancelled one that is then stopped is killed at once and says stop."""
    handler = bench.run()
    bench.holdings.cancel(AttemptNotice(task="t1", attempt=1), 0)
    bench.holdings.stop(AttemptNotice(task="t1", attempt=1, reason="released"))
    bench.said()
    assert handler.told == ["cancel cancel", "kill stop"]
    [stopped] = bench.end(ending=Ending("stopped"))
    assert stopped["why"] == "stop"


def test_stops_and_cancels_come_with_heartbeat_acks_too(bench: Bench) -> None:
    """Both lists."""
    first, second = bench.run("t1"), bench.run("t2")
    notices = {"stop": [AttemptNotice(task="t1", attempt=1)], "cancel": [AttemptNotice(task="t2", attempt=1)]}
    bench.beat_ack(bench.beat(), **notices)
    assert (first.told, second.told) == (["kill stop"], ["cancel cancel"])


def test_a_stop_about_another_attempt_is_nobodys(bench: Bench) -> None:
    """Wrong number, unknown task."""
    handler = bench.run()
    bench.holdings.stop(AttemptNotice(task="t1", attempt=2))
    bench.holdings.stop(AttemptNotice(task="t9", attempt=1))
    bench.said()
    assert handler.told == []


def test_a_refused_accept_is_forgotten_and_its_slot_is_free(bench: Bench) -> None:
    """withdrawn; the next assignment is accepted."""
    bench.holdings.slots = 1
    [accept] = bench.assign("t1")
    bench.refuse(accept, "withdrawn")
    assert bench.holdings.held() == []
    assert kinds(bench.assign("t2")) == ["accept"]


def test_a_refused_accept_with_retry_is_sent_again(bench: Bench) -> None:
    """At its time."""
    [accept] = bench.assign()
    assert bench.refuse(accept, "log_unavailable", retry=True, retry_after_ms=700) == []
    assert bench.at(0.6).said() == []
    [again] = bench.at(0.7).said()
    assert again["id"] == accept["id"]


@pytest.mark.parametrize("reason", ["too_large", "invalid_field"])
def test_a_result_that_is_refused_becomes_a_fatal_failure(bench: Bench, reason: str) -> None:
    """Once; if that is refused too, it is given up."""
    bench.run()
    [complete] = bench.end()
    [fail] = bench.refuse(complete, reason)
    assert (fail["type"], fail["class"], fail["error"]["type"]) == ("fail", "fatal", reason)
    assert bench.refuse(fail, reason) == []
    assert bench.holdings.held() == []


def test_a_report_about_somebody_elses_attempt_is_forgotten(bench: Bench) -> None:
    """not_yours, not_accepted, unknown_task."""
    for number, reason in enumerate(("not_yours", "not_accepted", "unknown_task")):
        bench.run(f"t{number}")
        [complete] = bench.end(f"t{number}")
        assert bench.refuse(complete, reason) == []
    assert bench.holdings.held() == []


def test_verdicts_of_welcome(bench: Bench) -> None:
    """stop ends the work, run and accept go on; unanswered messages go again, final reports first."""
    running, stopped = bench.run("t1"), bench.run("t2")
    [report] = bench.end("t1")
    bench.assign("t3")
    held = [
        WelcomeHeld(task="t1", attempt=1, verdict="run"),
        WelcomeHeld(task="t2", attempt=1, verdict="stop", reason="expired"),
        WelcomeHeld(task="t3", attempt=1, verdict="accept"),
    ]
    welcome = Welcome(of="h", epoch=9, window_ms=1, heartbeat_every_ms=1, draining=False, held=held)
    bench.holdings.welcomed(welcome)
    assert [(m["type"], m["task"], m["epoch"]) for m in bench.said()] == [("complete", "t1", 9), ("accept", "t3", 9)]
    assert stopped.told == ["kill stop"]
    assert running.told == []
    assert report["id"] in {m.id for m in bench.outbox.pending()}


def test_a_robot_that_leaves_takes_nothing(bench: Bench) -> None:
    """New assignments are rejected, an ack that comes now starts nothing, what runs is asked to end at the end."""
    running = bench.run("t1")
    [accept] = bench.assign("t2")
    bench.holdings.leave()
    [reject] = bench.assign("t3")
    assert reject["reason"] == "busy"
    [stopped] = bench.ack(accept)
    assert stopped["why"] == "shutdown"
    assert running.told == []
    bench.holdings.end_all(bench.now)
    bench.said()
    assert running.told == ["cancel shutdown"]


def test_checkpoint_numbers_go_on_after_the_last_one(bench: Bench) -> None:
    """The number that came with the assignment, plus one."""
    bench.run("t1", checkpoint=AssignCheckpoint(number=4, value=1))
    bench.holdings.cancel(AttemptNotice(task="t1", attempt=1), 0)
    [stopped] = bench.end("t1", 1, Ending("stopped", b'{"at":7}'))
    assert stopped["checkpoint"] == {"number": 5, "value": {"at": 7}}


def test_a_handler_that_stops_unasked_has_failed(bench: Bench) -> None:
    """stopped needs a why; without one it is a retryable failure."""
    bench.run()
    [fail] = bench.end(ending=Ending("stopped"))
    assert (fail["type"], fail["class"]) == ("fail", "retryable")


def test_what_an_earlier_process_left_is_named_and_sent(bench: Bench) -> None:
    """adopt: in hello as started, in heartbeats, sent after welcome, forgotten when acknowledged."""
    other = Bench()
    other.run("t8", 3)
    other.end("t8", 3)
    [message] = other.outbox.pending()
    bench.holdings.adopt("t8", 3, message)
    assert [(h.task, h.attempt, h.started) for h in bench.holdings.held()] == [("t8", 3, True)]
    [sent] = bench.said()
    assert (sent["id"], sent["type"]) == (message.id, "complete")
    bench.ack(sent)
    assert bench.holdings.held() == []
