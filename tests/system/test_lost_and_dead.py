"""R6 and F: tasks that fail, lose their robots or are taken away, and who decides about them then. Through HTTP,
WebSocket and the command line, on a clock that stands until it is moved."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlog.cli import run
from robot_gateway import alarm_command, health
from robot_gateway.alarm_command import AlarmCommand
from tests.support.hall import LEASE_S, POOL, WINDOW_S, Hall, Hand
from tests.support.site import until


@pytest.fixture
def hall(request: pytest.FixtureRequest) -> Iterator[Hall]:
    """A pool as it is by default, but for what a test changes."""
    with Hall(**getattr(request, "param", {})) as made:
        yield made


@pytest.mark.parametrize("hall", [{"accept_ms": 600_000}], indirect=True)
def test_r6_retries_are_bounded_and_then_an_operator_decides(hall: Hall) -> None:
    """Six failures, exponential back-off with jitter between them, then DEAD. Why can be seen; it is redriven, or
    discarded, with a reason that is recorded with who gave it."""
    robot = hall.robot("r1", slots=2)
    for task in ("t1", "t2"):
        hall.submit(task, retry={"failures_max": 6, "first_s": 2, "factor": 2, "max_s": 12})
    for _ in range(6):
        for task in ("t1", "t2"):
            robot.accept(task)
            robot.fail(task)
        hall.wait(15, robot)
    waits: dict[str, list[int]] = {}
    for task in ("t1", "t2"):
        *failed, _ = [event for event in hall.events("AttemptFailed") if event.task == task]
        assigned = [event.occurred_at for event in hall.events("TaskAssigned") if event.task == task]
        assert (len(failed), len(assigned)) == (5, 6)
        waits[task] = [event.not_again_before - event.occurred_at for event in failed]
        usual = [2_000, 4_000, 8_000, 12_000, 12_000]
        assert all(0.9 * ms <= wait <= 1.1 * ms for ms, wait in zip(usual, waits[task], strict=True)), waits
        late = [at - event.not_again_before for event, at in zip(failed, assigned[1:], strict=True)]
        assert all(0 <= ms <= 1_000 * WINDOW_S / 2 for ms in late), late
        assert hall.state(task) == "DEAD"
        [hold] = hall.why(task)["holds"]
        assert (hold["reason"], hold["dead_reason"]) == ("dead", "failed")
    assert waits["t1"] != waits["t2"], "no jitter: two tasks that fail alike run again at the same instant"
    hall.verb("t1", "redrive", reason="the link is mended")
    hall.verb("t2", "discard", reason="no longer needed")
    robot.accept("t1")
    robot.complete("t1")
    assert (hall.state("t1"), hall.state("t2")) == ("COMPLETED", "DISCARDED")
    for task, kind, reason in (
        ("t1", "TaskRedriven.v1", "the link is mended"),
        ("t2", "TaskDiscarded.v1", "no longer needed"),
    ):
        [event] = [event for event in hall.history(task) if event["type"] == kind]
        assert (event["reason"], event["actor"]) == (reason, "local")


def test_f02_a_robot_that_never_reports(hall: Hall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the task, lives, and never says a word about it: after five lost attempts DEAD with the reason poison,
    and whoever is on duty is told."""
    for module in (health, alarm_command):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.02)
    paper = tmp_path / "alarms"
    robot = hall.robot("r1")
    hall.submit("t1")
    seen = hall.site.gateway.health
    with AlarmCommand(f"cat >> '{paper}'", "gateway", lambda: seen.seen, list, 60.0):
        for attempt in range(1, 6):
            assert robot.accept("t1") == attempt
            robot.holds.clear()
            hall.wait(LEASE_S + WINDOW_S, robot)
        [*_, alarm] = until(lambda: paper.exists() and paper.read_text().splitlines(), "the alarm")
    assert [event.to for event in hall.events("LeaseExpired")] == ["WAITING"] * 4 + ["DEAD"]
    task = hall.task("t1")
    assert (task["state"], task["dead_reason"], task["lost"], task["failures"]) == ("DEAD", "poison", 5, 0)
    assert (json.loads(alarm)["alarm"], json.loads(alarm)["pool"]) == ("poison", POOL)
    assert robot.beat()["type"] == "heartbeat_ack"


def test_f03_a_slow_robot_finishes_after_its_lease(hall: Hall, capsys: pytest.CaptureFixture[str]) -> None:
    """Its report is kept and answered as late, the state of the newer attempt stays, `fleetlog history` shows it."""
    slow = hall.robot("r1")
    hall.submit("t1")
    slow.accept("t1")
    hall.wait(LEASE_S + WINDOW_S)
    other = hall.robot("r2")
    assert other.accept("t1") == 2
    before = hall.task("t1")
    answer = slow.complete("t1", result="slow")
    assert (answer["type"], answer["late"]) == ("ack", True)
    after = hall.task("t1")
    assert [after[name] for name in ("state", "attempt", "robot", "done_twice")] == ["RUNNING", 2, "r2", True]
    assert before["state"] == "RUNNING"
    assert run(["history", "t1", "--gateway", hall.site.url, "--pool", POOL]) == 0
    shown = capsys.readouterr().out
    assert "ReportedLate" in shown
    assert other.complete("t1", result="right")["type"] == "ack"
    assert hall.site.client.get(f"/v1/pools/{POOL}/tasks/t1/result").json() == "right"


def test_f13_a_task_that_kills_its_robots(hall: Hall) -> None:
    """Every robot that takes it dies. After five it is a dead letter, poison; no robot is in ERROR for it, and one that
    comes back is given other work."""
    robots = {f"r{number}": hall.robot(f"r{number}", capabilities=(f"r{number}",)) for number in range(6)}
    hall.submit("bomb")
    died: list[str] = []
    while hall.state("bomb") != "DEAD":
        [victim] = [event.robot for event in hall.events("TaskAssigned")][len(died) :]
        robots[victim].accept("bomb")
        robots.pop(victim).leave()
        died.append(victim)
        hall.wait(LEASE_S + WINDOW_S, *robots.values())
    assert len(set(died)) == 5
    assert hall.task("bomb")["dead_reason"] == "poison"
    assert hall.events("RobotFaulted") == []
    assert {hall.robot_card(name)["state"] for name in died} == {"OFFLINE"}
    back = hall.robot(died[0], capabilities=(died[0],))
    assert hall.robot_card(died[0])["state"] == "IDLE"
    hall.submit("t1", requirement=[died[0]])
    back.accept("t1")
    assert back.complete("t1")["type"] == "ack"


def begin(hall: Hall, **key: str) -> tuple[Hand, Hand]:
    """r1 runs t1; t2, which goes before everything else, must wait for it although r2 is free."""
    first, second = hall.robot("r1", capabilities=("one",)), hall.robot("r2", capabilities=("two",))
    hall.submit("t1", requirement=["one"], **key)
    first.accept("t1")
    hall.submit("t2", requirement=["two"], priority=9, **key)
    hall.settle()
    assert hall.state("t2") == "WAITING"
    return first, second


@pytest.mark.parametrize("key", ["target", "limit_key"])
def test_f14_a_killed_robot_frees_its_key_exactly_when_its_lease_ends(hall: Hall, key: str) -> None:
    """A target, or a limit of one at once: not before, and in the same instant."""
    hall.ask("PUT", "/limits/key/dock", running=1)
    first, second = begin(hall, **{key: "dock"})
    first.leave()
    hall.wait(LEASE_S + WINDOW_S, second)
    [expired] = hall.events("LeaseExpired")
    [assigned] = [event for event in hall.events("TaskAssigned") if event.task == "t2"]
    assert assigned.occurred_at == expired.occurred_at


@pytest.mark.parametrize("freed_by", ["stopped", "time", "force"])
def test_f14_an_operator_releases_it(hall: Hall, freed_by: str) -> None:
    """The task is taken away at once. Its target is free when the robot says `stopped`; else two windows after its own
    deadline (see docs/understand/leases.md); with force at once. Who did it, and why, is on record."""
    first, second = begin(hall, target="dock")
    at = hall.clock.wall()
    force = {"force": True} if freed_by == "force" else {}
    assert hall.verb("t1", "release", reason="r1 hangs", **force)["state"] == "WAITING"
    assert first.expect("stop")["task"] == "t1"
    first.holds.clear()
    if freed_by == "stopped":
        hall.wait(WINDOW_S, first, second)
        assert hall.state("t2") == "WAITING"
        first.stopped("t1", 1)
    elif freed_by == "time":
        hall.wait(LEASE_S + WINDOW_S, second)
        assert hall.state("t2") == "WAITING"
        hall.wait(WINDOW_S, second)
    second.accept("t2")
    [assigned] = [event for event in hall.events("TaskAssigned") if event.task == "t2"]
    freed_s = {"stopped": WINDOW_S, "time": LEASE_S + 2 * WINDOW_S, "force": 0.0}
    assert assigned.occurred_at - at == 1_000 * freed_s[freed_by]
    [released] = [event for event in hall.history("t1") if event["type"] == "TaskReleased.v1"]
    assert (released["actor"], released["reason"], released.get("force", False)) == ("local", "r1 hangs", bool(force))


VERBS = ("cancel", "redrive", "discard", "resolve", "release", "pause", "resume")


@pytest.mark.parametrize("ended", ["COMPLETED", "CANCELLED", "DISCARDED"])
def test_f16_nothing_leads_out_of_a_terminal_state(hall: Hall, ended: str) -> None:
    """Every report about each attempt and every verb, in an order by chance, with lost sessions and hand-overs between:
    the state stays, nothing is assigned again, and the attempt that was superseded never becomes current."""
    dice = random.Random(ended)
    robot = hall.robot("r1")
    hall.submit("t1")
    robot.accept("t1")
    robot.leave()
    hall.wait(LEASE_S + WINDOW_S)
    robot = hall.robot("r1")
    assert robot.accept("t1") == 2
    anything(hall, robot, dice, attempts=(1,))
    assert [hall.task("t1")[name] for name in ("state", "attempt")] == ["RUNNING", 2]
    if ended == "COMPLETED":
        robot.complete("t1")
    elif ended == "CANCELLED":
        hall.verb("t1", "cancel")
        robot.stopped("t1")
    else:
        robot.fail("t1", "fatal")
        hall.verb("t1", "discard", reason="not needed")
    assert hall.state("t1") == ended
    for _ in range(4):
        anything(hall, robot, dice, attempts=(1, 2, 3))
        for verb in dice.sample(VERBS, len(VERBS)):
            said = {"reason": "by chance"} if verb != "resume" else None
            answer = hall.site.client.post(f"/v1/pools/{POOL}/tasks/t1/{verb}", json=said)
            assert answer.status_code in (200, 409, 422), answer.text
        dice.choice((hall.next_owner, lambda: hall.wait(LEASE_S + WINDOW_S)))()
        robot.leave()
        robot = hall.robot("r1", holding=[{"task": "t1", "attempt": dice.choice((1, 2)), "started": True}])
        assert hall.state("t1") == ended
    assert [event.attempt for event in hall.events("TaskAssigned")] == [1, 2]


def anything(hall: Hall, robot: Hand, dice: random.Random, attempts: tuple[int, ...]) -> None:
    """What a robot can say about the attempts of a task, each once, in an order by chance; each is answered."""
    error = {"error": {"type": "jam", "message": "stuck"}}
    sayings: list[tuple[str, dict[str, Any]]] = [
        ("accept", {}), ("reject", {"reason": "busy"}), ("checkpoint", {"number": 9, "value": 1}),
        ("complete", {"result": 1}), ("fail", {"class": "retryable", **error}), ("fail", {"class": "fatal", **error}),
        ("stopped", {"why": "stop"}), ("heartbeat", {}),
    ]  # fmt: skip
    said = [(kind, {"task": "t1", "attempt": attempt, **more}) for kind, more in sayings for attempt in attempts]
    for kind, fields in dice.sample(said, len(said)):
        answer = robot.ask(kind, **({"holding": [fields]} if kind == "heartbeat" else fields))
        assert answer["type"] in ("ack", "refused", "heartbeat_ack")
    hall.settle()
