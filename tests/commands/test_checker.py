"""The checker of invariants: a good log has no findings, and every rule, broken once on purpose, is found."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from commands import checker as checker_module
from commands import checker_model
from commands.checker import RULES, Checker, Finding
from commands.ids import ZERO_HASH, chain_hash
from tests.support.play import play
from tests.support.world import POOL, World

GOOD = """
    t+0   submit   t1 target=dock requirement=gpu policy=ask
    t+0   submit   t2 target=dock requirement=gpu
    t+0   submit   t3 kind=cut not_before=3
    t+0   robot    r1 slots=2 caps=gpu
    t+0   robot    r2 slots=2
    t+0   accept   r1 t1
    t+1   checkpoint r1 t1 1
    t+1   cancel   t1
    t+1   complete r1 t1
    t+3   accept   r2 t3
    t+3   checkpoint r2 t3 1
    t+3   accept   r1 t2
    t+4   fail     r2 t3 fatal
    t+4   submit   t4
    t+4   accept   r2 t4
    t+23  wait
    t+24  robot    r2
    t+24  complete r2 t4 #1
    t+25  release  t2
    t+60  submit   t5
    t+60  robot    r1 caps=gpu
    t+60  accept   r1 t2
    t+61  release  t2
    t+62  fail     r1 t2 #2
    t+63  complete r1 t2 #1
    t+64  submit   t6 requirement=none
    t+70  robot    r3 slots=9
    t+70  submit   t7 target=door
    t+70  accept   r3 t7
    t+71  release  t7
    t+72  complete r3 t7 #1
    t+73  submit   t8 target=door
"""


@dataclass
class Log:
    """Events as JSON, to be altered, and sealed again with numbers and hashes that are right."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def at(self, type_: str, nth: int = 0) -> int:
        """Where the nth event of a type is."""
        return [k for k, event in enumerate(self.events) if event["type"] == f"{type_}.v1"][nth]

    def edit(self, type_: str, nth: int = 0, **values: Any) -> None:
        """Other values of the nth event of a type; None takes a field away."""
        event = self.events[self.at(type_, nth)]
        for name, value in values.items():
            name = name.rstrip("_")
            if value is None:
                event.pop(name)
            else:
                event[name] = value

    def insert(self, index: int, type_: str, **values: Any) -> None:
        """One more event before the one at `index`."""
        near = self.events[min(index, len(self.events) - 1)]
        envelope = {"id": str(uuid.uuid4()), "type": f"{type_}.v1", "pool": POOL, "occurred_at": near["occurred_at"]}
        self.events.insert(index, envelope | {"caused_by": "command:x", "actor": "local"} | values)

    def again(self, type_: str, nth: int = 0, to: int | None = None, **values: Any) -> None:
        """The nth event of a type once more, with another id, right after it or at the end (`to` = -1)."""
        index = self.at(type_, nth)
        copy = dict(self.events[index]) | {"id": str(uuid.uuid4()), "caused_by": "command:x"} | values
        del copy["sequence"]
        last = self.events[-1]["occurred_at"]
        self.events.insert(index + 1 if to is None else len(self.events), copy)
        if to is not None:
            copy["occurred_at"] = last

    def drop(self, type_: str, nth: int = 0) -> None:
        """Without the nth event of a type."""
        del self.events[self.at(type_, nth)]

    def findings(self) -> list[Finding]:
        """What the checker says of the log, numbered and sealed anew."""
        checker = Checker(POOL)
        chain, found = ZERO_HASH, list[Finding]()
        numbers = {event["sequence"]: k for k, event in enumerate(self.events, 1) if "sequence" in event}
        for sequence, event in enumerate(self.events, 1):
            epoch = {"epoch": numbers.get(event["epoch"], 0)} if "epoch" in event else {}
            value = json.dumps(event | epoch | {"sequence": sequence}).encode()
            chain = chain_hash(chain, value)
            # Ids name sequences: where numbers have moved, they are not compared.
            moved = numbers.get(len(numbers)) != len(numbers)
            found += [f for f in checker.event(value, chain) if not (moved and f.rule == "id")]
        return found + checker.finish()


@pytest.fixture(scope="module")
def good() -> World:
    """A log in which everything happens that the rules are about."""
    return play(GOOD)


@pytest.fixture
def log(good: World) -> Log:
    """Its events, to be altered."""
    return Log([json.loads(row.value) for row in good.log])


def test_a_good_log_has_no_findings(log: Log) -> None:
    """Also when it is sealed anew, so that what is found below is found because of the alteration alone."""
    assert log.findings() == []
    names = {event["type"].partition(".")[0] for event in log.events}
    assert names >= {"LeaseExpired", "HoldEnded", "ReportedLate", "WindowMissed", "CancelRequested", "TaskCompleted"}


def before(log: Log, type_: str, nth: int, inserted: str, **values: Any) -> None:
    """Inserts an event before the nth of a type."""
    log.insert(log.at(type_, nth), inserted, **values)


def paused(**scope: Any) -> Callable[[Log], None]:
    """Pauses something just before its task is assigned."""
    return lambda log: before(log, "TaskAssigned", 0, "DispatchPaused", **scope)


def limited(**limit: Any) -> Callable[[Log], None]:
    """Limits something just before the first assignment."""
    return lambda log: before(log, "TaskAssigned", 0, "LimitSet", **limit)


def limited_key(log: Log) -> None:
    """Limits the key that two tasks have, of which one begins while the other runs."""
    for nth in (1, 3):
        log.edit("TaskSubmitted", nth, limit_key="ann")
    limited(scope="key", name="ann", running=1)(log)


def firings(*instants: int) -> Callable[[Log], None]:
    """A schedule of old, and at the end one skipped firing for each instant."""

    def alter(log: Log) -> None:
        before(log, "TaskSubmitted", 0, "ScheduleSet", schedule="s", every_ms=1_000, task={"kind": "weld"})
        for instant in instants:
            skipped = {"schedule": "s", "first": instant, "last": instant, "count": 1, "reason": "overlap"}
            log.insert(len(log.events), "FiringsSkipped", **skipped, caused_by="clock")

    return alter


ALTERATIONS: dict[str, tuple[str, Callable[[Log], None]]] = {
    "a field is missing": ("malformed", lambda log: log.edit("LeaseStarted", to=None)),
    "another pool": ("pool", lambda log: log.edit("TaskSubmitted", pool="other")),
    "no PoolCreated": ("sequence", lambda log: log.drop("PoolCreated")),
    "time falls": ("time", lambda log: log.edit("LeaseStarted", occurred_at=1)),
    "an id of its own making": ("id", lambda log: log.edit("TaskAssigned", id=str(uuid.uuid4()))),
    "an id of a lease": ("id", lambda log: log.edit("LeaseExpired", id=str(uuid.uuid4()))),
    "an id of a window": ("id", lambda log: log.edit("WindowMissed", id=str(uuid.uuid4()))),
    "an id of a notice": ("id", lambda log: log.edit("RequirementUnsatisfiable", id=str(uuid.uuid4()))),
    "an id twice": ("id twice", lambda log: log.edit("TaskSubmitted", 1, id=log.events[log.at("TaskSubmitted")]["id"])),
    "a part is missing": ("parts", lambda log: log.edit("WindowMissed", parts=2)),
    "the last part is missing": ("parts", lambda log: log.again("WindowMissed", to=-1, part=1, parts=2, attempts=[])),
    "a part without its first": ("parts", lambda log: log.edit("WindowMissed", part=2, parts=2)),
    "a transition that is none": ("transition", lambda log: log.edit("LeaseStarted", to="COMPLETED")),
    "from another state": ("transition", lambda log: log.edit("AttemptFailed", from_="LOST")),
    "two starts of one lease": ("transition", lambda log: log.again("LeaseStarted")),
    "two assignments": ("transition", lambda log: log.again("TaskAssigned", attempt=2)),
    "an unknown task": ("transition", lambda log: log.edit("AttemptFailed", task="ghost")),
    "out of a terminal state": ("terminal", lambda log: log.again("TaskCompleted", to=-1)),
    "redriven after completion": (
        "terminal",
        lambda log: log.insert(
            len(log.events), "TaskRedriven", task="t1", to="WAITING", reason="x", **{"from": "DEAD"}
        ),
    ),
    "a task submitted twice": ("submitted twice", lambda log: log.again("TaskSubmitted")),
    "an ended task submitted again": ("submitted twice", lambda log: log.again("TaskSubmitted", to=-1)),
    "DEAD without a reason": ("dead reason", lambda log: log.edit("AttemptFailed", dead_reason=None)),
    "a reason without DEAD": ("dead reason", lambda log: log.edit("TaskReleased", dead_reason="failed")),
    "an attempt is left out": ("attempt", lambda log: log.edit("TaskAssigned", attempt=2)),
    "an attempt falls": ("attempt", lambda log: log.edit("TaskAssigned", 4, attempt=1)),
    "a lease of another attempt": ("attempt", lambda log: log.edit("LeaseStarted", attempt=2)),
    "an end of another attempt": ("attempt", lambda log: log.edit("AttemptFailed", attempt=2)),
    "somebody else's lease": ("robot", lambda log: log.edit("LeaseStarted", robot="r2")),
    "an old session's lease": ("robot", lambda log: log.edit("LeaseStarted", epoch=1)),
    "an epoch that is no sequence": ("robot", lambda log: log.edit("RobotSessionStarted", epoch=1)),
    "registered twice": ("robot", lambda log: log.again("RobotRegistered")),
    "late while it runs": ("late", lambda log: log.edit("TaskCompleted", late=True)),
    "in time though nobody runs it": ("late", lambda log: log.edit("TaskCompleted", 1, late=False)),
    "an operator completes what runs": ("late", lambda log: log.edit("TaskCompleted", by="operator")),
    "a robot completes a dead letter": (
        "late",
        lambda log: log.insert(
            log.at("AttemptFailed") + 1,
            "TaskCompleted",
            task="t3", to="COMPLETED", by="robot", late=False, attempt=1, **{"from": "DEAD"},
        ),
    ),
    "a late report of what runs": ("late", lambda log: log.edit("ReportedLate", attempt=9)),
    "a checkpoint's number falls": ("checkpoint", lambda log: log.again("CheckpointSaved")),
    "a checkpoint of what does not run": ("checkpoint", lambda log: log.again("CheckpointSaved", to=-1)),
    "a checkpoint of another robot": ("checkpoint", lambda log: log.edit("CheckpointSaved", robot="r2")),
    "cancelled twice": ("cancel", lambda log: log.again("CancelRequested")),
    "cancelled while it does not run": ("cancel", lambda log: log.again("CancelRequested", to=-1)),
    "a lease ends early": ("lease", lambda log: log.drop("WindowMissed", 2)),
    "a lease ends by other windows": ("lease", lambda log: log.edit("LeaseExpired", first_window=0)),
    "a window is left out": ("lease", lambda log: log.drop("WindowMissed", 1)),
    "a window of what does not run": (
        "lease",
        lambda log: log.edit("WindowMissed", attempts=[{"task": "t3", "attempt": 1, "missed": 1}]),
    ),
    "counts go on over a hand-over": (
        "lease",
        lambda log: before(
            log, "WindowMissed", 2, "OwnershipTaken", reason="hand_over", owner="x", partition=0, gap_ms=0
        ),
    ),
    "a late report twice": ("reported twice", lambda log: log.again("ReportedLate")),
    "a target held twice": ("target", lambda log: log.edit("TaskSubmitted", 2, target="dock")),
    "a hold that frees nothing": ("target", lambda log: log.drop("HoldEnded", 1)),
    "another cost than the task's": ("slots", lambda log: log.edit("TaskAssigned", slot_cost=2)),
    "more than its slots": ("slots", lambda log: log.edit("RobotSessionStarted", 1, slots=0)),
    "more than it is ready for": ("slots", lambda log: log.edit("RobotReadyChanged", n=0)),
    "a requirement not met": ("requirement", lambda log: log.edit("RobotSessionStarted", capabilities=[])),
    "a drained robot": ("not able", lambda log: before(log, "TaskAssigned", 0, "RobotDrained", robot="r1")),
    "a robot in ERROR": (
        "not able",
        lambda log: before(log, "TaskAssigned", 0, "RobotFaulted", robot="r1", epoch=1, reason="reported"),
    ),
    "a robot without a session": (
        "not able",
        lambda log: before(log, "TaskAssigned", 0, "RobotSessionEnded", robot="r1", epoch=1, reason="bye"),
    ),
    "a silent robot": (
        "not able",
        lambda log: before(
            log, "TaskAssigned", 0, "WindowMissed",
            start=0, length_ms=1, attempts=[], robots=[{"robot": "r1", "missed": 1}], returned=[], part=1, parts=1,
        ),
    ),
    "a robot that is not registered": ("not able", lambda log: log.edit("TaskAssigned", robot="ghost")),
    "another session": ("not able", lambda log: log.edit("TaskAssigned", epoch=1)),
    "a paused pool": ("paused", paused(scope="pool")),
    "a paused kind": ("paused", paused(scope="kind", name="weld")),
    "a paused task": ("paused", paused(scope="task", name="t1")),
    "a paused target": ("paused", paused(scope="target", name="dock")),
    "more at once than a kind may": ("limit", limited(scope="kind", name="weld", running=1)),
    "more at once than a key may": ("limit", limited_key),
    "more in a time than a rate lets begin": ("limit", limited(scope="kind", name="weld", rate_per_s=0.1, burst=2)),
    "an instant fires twice": ("firing", firings(1_790_000_050_000, 1_790_000_050_000)),
    "an instant after a later one": ("firing", firings(1_790_000_050_000, 1_790_000_040_000)),
    "an instant that has not come": ("firing", firings(2**52)),
    "a firing of no schedule": ("firing", lambda log: log.edit("TaskSubmitted", schedule={"id": "x", "instant": 1})),
    "an instant before the schedule": ("firing", firings(1_000)),
    "a frozen pool": (
        "paused",
        lambda log: before(log, "TaskAssigned", 0, "PoolFrozen", where="tick", error="x", digest="x"),
    ),
    "before its time": ("too early", lambda log: log.edit("TaskSubmitted", not_before=2**52)),
    "a hold of another robot": ("hold", lambda log: log.edit("HoldEnded", robot="r9")),
    "a hold that was none": ("hold", lambda log: log.edit("TaskReleased", held=False)),
    "a hold ends twice": ("hold", lambda log: log.again("HoldEnded")),
    "a robot retired with attempts": (
        "retired",
        lambda log: log.insert(log.at("LeaseStarted") + 1, "RobotRetired", robot="r1", reason="x"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERATIONS)
def test_each_alteration_is_found(name: str, log: Log) -> None:
    """By its rule; the log is otherwise whole, with numbers and hashes that are right."""
    rule, alter = ALTERATIONS[name]
    alter(log)
    found = log.findings()
    assert rule in {finding.rule for finding in found}, found
    assert all(finding.text and finding.rule in RULES for finding in found)


def test_every_rule_was_broken_once() -> None:
    """The table above, and the chain below."""
    assert {rule for rule, _ in ALTERATIONS.values()} | {"chain"} == set(RULES)


def test_a_gap_is_found_once(good: World) -> None:
    """An event that is not there breaks number and chain, and the checker goes on behind it."""
    checker = Checker(POOL)
    found = []
    for row in [*good.log[:5], *good.log[6:]]:
        found += checker.event(row.value, row.hash)
    assert [finding.rule for finding in found if finding.rule in ("sequence", "chain")] == ["chain", "sequence"]
    assert {finding.sequence for finding in found if finding.rule in ("sequence", "chain")} <= {6, 7}
    assert checker.sequence == good.log[-1].event.sequence


@pytest.mark.parametrize("at", [0, 3, -1])
def test_one_altered_byte_is_found(at: int, good: World) -> None:
    """Anywhere in the log."""
    checker = Checker(POOL)
    target = good.log[at]
    found = []
    for row in good.log:
        value = row.value
        if row is target:
            value = value.replace(b'"actor":"', b'"actor":"X', 1)
        found += checker.event(value, row.hash)
    assert [(finding.rule, finding.sequence) for finding in found] == [("chain", target.event.sequence)]


@pytest.mark.parametrize("value", [b"", b"\x00\xff", b"[]", b"7", b'"x"', b"{}", b'{"sequence": 1}', b'{"type": 5}'])
def test_what_is_no_event_is_said(value: bytes) -> None:
    """Nothing that may stand in a log makes the checker fail."""
    checker = Checker(POOL)
    assert "malformed" in {finding.rule for finding in checker.event(value, None)}


def test_without_hashes_all_else_is_checked(good: World) -> None:
    """An export without headers can be checked too; the chain that it would have is computed."""
    checker = Checker(POOL)
    assert [finding for row in good.log for finding in checker.event(row.value)] == []
    assert checker.chain == good.log[-1].hash
    assert checker.open_tasks == {name: task.state for name, task in good.state.tasks.items()}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and ended tasks are kept up to a number, and found within it."""
    monkeypatch.setattr(checker_module, "IDS_KEPT", 50)
    monkeypatch.setattr(checker_model, "ENDED_KEPT", 20)
    world = World()
    robot = world.robot("r1")
    for k in range(100):
        world.submit(f"t{k}")
        robot.accept(f"t{k}")
        robot.complete(f"t{k}")
    world.verify()
    judge = world.checker
    assert len(judge._ids) + len(judge._older_ids) <= 100
    assert len(judge._model.ended) == 20
    recent = world.log[-40]
    assert "id twice" in {finding.rule for finding in judge.event(recent.value)}


def test_it_imports_nothing_of_what_it_judges() -> None:
    """An independent judge: not decide, evolve, queue, state, dispatch nor windows."""
    import ast
    from pathlib import Path

    judged = {"decide", "evolve", "queue", "state", "dispatch", "windows", "clockwork", "heartbeats", "pool", "rows"}
    for module in (checker_module, checker_model):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not {name for name in names if name.removeprefix("commands.").partition(".")[0] in judged}
