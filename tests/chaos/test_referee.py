"""The referee of chaos can find what it looks for: each promise is broken once in a small log made by hand."""

import ast
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import referee
from tests.chaos.referee import Raw, Verdict, judge, meets, overlaps

Event = dict[str, Any]
POOL = "hall"


def task(name: str, **more: Any) -> Event:
    """A submission of target dock."""
    fields = {"kind": "work", "slot_cost": 1, "requirement": [], "target": "dock", **more}
    return {
        "type": "TaskSubmitted.v1",
        "task": name,
        "from": "none",
        "to": "WAITING",
        "caused_by": f"command:{name}-c",
        **fields,
    }


def assigned(name: str, attempt: int = 1, robot: str = "r1") -> Event:
    """The dispatcher gives it away."""
    return about(name, "TaskAssigned", "WAITING", "ASSIGNED", attempt=attempt, robot=robot)


def about(name: str, type_: str, before: str, after: str, **more: Any) -> Event:
    """A transition."""
    return {"type": f"{type_}.v1", "task": name, "from": before, "to": after, **more}


def life(name: str, attempt: int = 1) -> list[Event]:
    """From the assignment to the end."""
    return [
        assigned(name, attempt),
        about(name, "LeaseStarted", "ASSIGNED", "RUNNING", attempt=attempt, robot="r1"),
        about(name, "TaskCompleted", "RUNNING", "COMPLETED", attempt=attempt, robot="r1"),
    ]


ROBOT: Event = {"type": "RobotSessionStarted.v1", "robot": "r1", "slots": 2, "capabilities": ["gpu=2", "kind:work"]}
GOOD = [{"type": "PoolCreated.v1"}, ROBOT, task("a"), task("b"), *life("a"), *life("b")]


def stored(events: list[Event], spoil: Callable[[list[Event]], None] = lambda rows: None) -> list[Raw]:
    """The events as the log holds them; `spoil` changes envelopes before they are written."""
    rows = [
        {"id": f"id-{n}", "pool": POOL, "sequence": n, "occurred_at": n, "caused_by": "clock", **event}
        for n, event in enumerate(events, 1)
    ]
    spoil(rows)
    chain, found = bytes(32), []
    for number, row in enumerate(rows):
        value = json.dumps(row).encode()
        chain = hashlib.sha256(chain + value).digest()
        found.append(Raw("events", 0, number, POOL, value, {"hash": chain}))
    return found


def commands(*names: str) -> list[Raw]:
    """Who asked for what."""
    rows = [{"type": "submit", "id": f"{name}-c", "pool": POOL, "body": {"task": name}} for name in names]
    return [Raw("commands", 0, n, POOL, json.dumps(row).encode(), {}) for n, row in enumerate(rows)]


def verdict_of(events: list[Raw], **more: Any) -> Verdict:
    """The judgement, where a and b were acknowledged."""
    given = {"acknowledged": {POOL: {"a", "b"}}, "work": [], "answers": [], **more}
    return judge(events, commands("a", "b", "c"), **given)


def test_a_good_log_is_good() -> None:
    """Nothing is found where nothing is wrong."""
    verdict = verdict_of(stored(GOOD), answers=[{"pool": POOL, "id": "a", "state": "COMPLETED", "attempt": 1}])
    assert verdict.good, verdict
    assert (verdict.acknowledged, verdict.events) == (2, len(GOOD))


BROKEN: dict[str, tuple[list[Event], str]] = {
    "1: two at one target": ([*GOOD[:4], assigned("a"), assigned("b")], "1: b is assigned although its target"),
    "1: more than the slots": (
        [*GOOD[:2], task("a", slot_cost=2, target="x"), task("b"), assigned("a"), assigned("b")],
        "1: r1 has 2 slots, 2 used",
    ),
    "1: a target that is still held": (
        [*GOOD[:5], about("a", "TaskCancelled", "ASSIGNED", "CANCELLED", held=True), assigned("b")],
        "1: b is assigned although",
    ),
    "3: out of a terminal state": (
        [*GOOD, about("a", "TaskRedriven", "COMPLETED", "WAITING")], "3: TaskRedriven leads a out of COMPLETED",
    ),
    "3: a transition that is not allowed": (
        [*GOOD[:4], about("a", "TaskCompleted", "WAITING", "DEAD")], "3: TaskCompleted leads a from WAITING to DEAD",
    ),
    "3: from another state": (
        [*GOOD[:4], about("a", "TaskCancelled", "LOST", "CANCELLED")], "3: TaskCancelled says a was LOST",
    ),
    "3: attempts do not grow": (
        [*GOOD[:5], about("a", "AssignmentWithdrawn", "ASSIGNED", "WAITING", attempt=1), assigned("a")],
        "3: attempt 1 of a after 1",
    ),
    "3: about another attempt": (
        [*GOOD[:6], about("a", "TaskCompleted", "RUNNING", "COMPLETED", attempt=7)], "TaskCompleted is about attempt 7",
    ),
    "4: a requirement that is not met": (
        [*GOOD[:2], task("a", requirement=["gpu>2"]), assigned("a")], "4: r1 gets a and lacks",
    ),
    "4: a kind that it does not do": ([*GOOD[:2], task("a", kind="weld"), assigned("a")], "lacks ['kind:weld']"),
    "4: a drained robot": (
        [*GOOD[:4], {"type": "RobotDrained.v1", "robot": "r1"}, assigned("a")], "4: r1 is drained",
    ),
    "4: a paused pool": ([*GOOD[:4], {"type": "DispatchPaused.v1", "scope": "pool"}, assigned("a")], "is paused"),
    "4: a paused target": (
        [*GOOD[:4], {"type": "DispatchPaused.v1", "scope": "target", "name": "dock"}, assigned("a")], "is paused",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_found(what: str) -> None:
    """Each of 1, 3 and 4, broken in an otherwise good log."""
    events, said = BROKEN[what]
    assert any(said in finding for finding in verdict_of(stored(events)).findings)


def set_row(number: int, **fields: Any) -> Callable[[list[Event]], None]:
    """Changes one envelope."""
    return lambda rows: rows[number].update(fields)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (set_row(4, id="id-2"), "7: the id id-2 came before"),
        (set_row(4, sequence=9), "6: sequence 9 where 5 was due"),
        (set_row(4, occurred_at=1), "6: time fell"),
    ],
)
def test_a_broken_record_is_found(spoil: Callable[[list[Event]], None], said: str) -> None:
    """Invariants 6 and 7."""
    assert any(said in finding for finding in verdict_of(stored(GOOD, spoil)).findings)


def test_an_altered_or_missing_event_breaks_the_chain() -> None:
    """6: bytes that are not those that were hashed, and an event taken out."""
    altered = stored(GOOD)
    altered[3].value = altered[3].value.replace(b"dock", b"gate")
    assert any("4: 6: the hash does not follow" in finding for finding in verdict_of(altered).findings)
    events = stored(GOOD)
    assert any("6: the hash does not follow" in finding for finding in verdict_of([*events[:3], *events[4:]]).findings)


def test_what_is_lost_unended_or_never_asked_for_is_named() -> None:
    """2: an acknowledged task without an event, one without an end, one that nobody asked for."""
    verdict = verdict_of(stored([*GOOD, task("c"), task("d")]), acknowledged={POOL: {"a", "z"}, "yard": {"y"}})
    assert verdict.lost == ["hall/z", "yard/y"]
    assert verdict.unended == ["hall/c: WAITING", "hall/d: WAITING"]
    assert verdict.never_asked == ["hall/d"]
    assert not verdict.good


def test_a_gateway_that_shows_something_else_is_found() -> None:
    """5, from outside: another state, another attempt, a task that is in no event."""
    rows = [("a", "WAITING", 1), ("b", "COMPLETED", 2), ("x", "WAITING", 0)]
    answers = [{"pool": POOL, "id": name, "state": state, "attempt": attempt} for name, state, attempt in rows]
    assert len(verdict_of(stored(GOOD), answers=answers).findings) == 3


def test_two_robots_at_one_target_are_found() -> None:
    """By the robots' own records: overlapping work is found, work in turn is not."""
    in_turn = [("a", 1, "dock", 0.0, 1.0), ("b", 1, "dock", 1.0, 2.0), ("c", 1, "gate", 0.5, 3.0)]
    assert overlaps(in_turn) == []
    assert overlaps([*in_turn, ("d", 1, "dock", 1.5, 1.7)]) == [("b/1", "d/1")]


def test_requirements_are_read_as_the_page_says() -> None:
    """Names, values, comparisons; what is no number compares with nothing."""
    own = ["gpu", "mem=16", "zone=b"]
    assert all(meets(text, own) for text in ("gpu", "mem", "mem=16", "mem>=16", "mem<17", "zone=b"))
    assert not any(meets(text, own) for text in ("cpu", "mem=8", "mem>16", "zone>1", "gpu>0"))


def test_the_referee_shares_no_code_with_what_it_judges() -> None:
    """It imports Python's own library and kafka-python, nothing else."""
    tree = ast.parse(Path(referee.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"kafka"}
