"""The tables, folded from the log of random worlds, say what the owner's own state says, after every fault."""

from pathlib import Path
from typing import Any

import pytest

from commands.state import PoolState
from projections.answers import Page
from tests.projections.world import World, filter_of
from tests.support.agents import Turmoil
from tests.support.stored_events import ListLog
from tests.support.world import POOL

STEPS = 200
SEEDS = range(6)


def by_state(state: PoolState) -> dict[str, dict[str, Any]]:
    """What the state says of each open task, in the words of the cards."""
    found: dict[str, dict[str, Any]] = {}
    for task in state.tasks.values():
        current, story = task.current, task.story
        found[task.id] = {
            "state": task.state,
            "kind": task.terms.kind,
            "priority": task.terms.priority,
            "slot_cost": task.terms.slot_cost,
            "requirement": list(task.terms.requirement),
            "target": None if task.target is None else task.target.name,
            "sequence": task.sequence,
            "eligible_at": task.eligible_at,
            "attempt": task.attempt,
            "failures": task.failures,
            "lost": task.lost,
            "robot": None if current is None else current.robot,
            "accept_by": None if current is None or task.state != "ASSIGNED" else current.accept_by,
            "wait_until": None if current is None else current.wait_until,
            "cancel_requested": current is not None and current.cancel_requested,
            "dead_reason": None if story is None else story.dead_reason,
            "checkpoint_number": None if story is None or story.checkpoint is None else story.checkpoint.number,
            "done_twice": story is not None and story.done_twice,
            "redrives": 0 if story is None else story.redrives,
            "paused": ("task", task.id) in state.paused,
            "holds": holds_of(state, task.id),
        }
    return found


def holds_of(state: PoolState, task: str) -> list[tuple[int, str, int | None]]:
    """Attempt, robot and end of what stays held for a task."""
    return sorted((hold.attempt, hold.robot, hold.until) for hold in state.holds.values() if hold.task == task)


def by_card(card: Any) -> dict[str, Any]:
    """The same of a card."""
    held = card["state"] in ("ASSIGNED", "RUNNING", "LOST")
    same = (
        "state",
        "kind",
        "priority",
        "slot_cost",
        "requirement",
        "sequence",
        "eligible_at",
        "attempt",
        "failures",
        "lost",
    )
    return {
        **{name: card[name] for name in same},
        **{name: card.get(name) for name in ("target", "accept_by", "wait_until", "dead_reason", "checkpoint_number")},
        "robot": card.get("robot") if held else None,
        "cancel_requested": held and "cancel_requested" in card,
        "done_twice": card.get("done_twice", False),
        "redrives": card.get("redrives", 0),
        "paused": "paused" in card,
        "holds": sorted((hold["attempt"], hold["robot"], hold.get("until")) for hold in card.get("holds", ())),
    }


def compare(tables: World, state: PoolState) -> None:
    """Tasks, robots, targets and figures of the tables against the state."""
    cards = {card["id"]: card for card in tables.page(limit=1_000).items}
    assert {task: by_card(cards[task]) for task in state.tasks} == by_state(state)
    for task, card in cards.items():
        if task not in state.tasks:
            assert card["state"] in ("COMPLETED", "CANCELLED", "DISCARDED")
            assert by_card(card)["holds"] == holds_of(state, task)
    robots = {
        name: (
            robot.state,
            robot.epoch,
            robot.slots,
            robot.ready,
            robot.used,
            robot.draining,
            robot.fault,
            set(robot.tasks),
        )
        for name, robot in state.robots.items()
    }
    found = tables.tables.robots(filter_of("", "robot"), limit=1_000)
    assert isinstance(found, Page)
    assert robots == {
        card["id"]: (
            card["state"],
            card.get("epoch", 0),
            card["slots"],
            card["ready"],
            card["used"],
            "draining" in card,
            card.get("fault", {}).get("reason"),
            set(card["attempts"]),
        )
        for card in found.items
    }
    for name, target in state.targets.items():
        shown = tables.tables.target(POOL, name).value or {}
        assert shown.get("open", 0) == target.tasks, name
        holder = shown.get("holder")
        assert (None if holder is None else (holder["task"], holder["attempt"])) == target.holder, name
        if shown and target.last_served is not None:
            assert shown.get("last_served_at", target.last_served) == target.last_served
    schedules = tables.tables.schedules(POOL)
    assert isinstance(schedules, Page)
    assert {card["schedule"]: (card["sequence"], card["task"], "paused" in card) for card in schedules.items} == {
        name: (row.sequence, row.task, row.paused) for name, row in state.schedules.rows.items()
    }
    pool = tables.tables.pool(POOL).value
    assert pool is not None
    counted: dict[str, int] = {}
    for card in cards.values():
        counted[card["state"]] = counted.get(card["state"], 0) + 1
    assert pool["tasks"] == counted
    assert pool["progress"]["sequence"] == state.sequence
    assert ("frozen" in pool["card"]) is state.frozen


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tables_say_what_the_state_says(seed: int, tmp_path: Path) -> None:
    """Lost robots, holds, redrives, releases, drained robots, clocks, hand-overs: whatever happened, both agree."""
    turmoil = Turmoil(1_000 + seed, force=seed % 2 == 1)
    log = ListLog()
    tables = World(tmp_path, log, begun=False)
    try:
        for step in range(STEPS):
            turmoil.step()
            if step % 20 == 19:
                for row in turmoil.world.log[log.sequences.get(POOL, 0) :]:
                    log.append(POOL, row.value)
                tables.catch_up()
                compare(tables, turmoil.world.state)
    finally:
        tables.close()
