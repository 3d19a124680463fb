"""Lists, counts, cursors, positions and histories, asked through a reader."""

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import events as e
from commands.reasons import Refusal
from projections import limits, queries, scans
from projections.answers import Answer, Count, Page
from projections.cards import TaskCard
from projections.cursors import CURSOR_MS, make_cursor
from projections.filters import Filter
from projections.store import StoreCorrupt
from streams.position import Position, parse_position
from tests.projections.world import POOL, World, filter_of
from tests.support.stored_events import (
    START_AT,
    assigned,
    completed,
    failed,
    leased,
    pool_created,
    submitted,
    write_lives,
)


def refused(answer: Any, reason: str) -> Refusal:
    """The refusal that this answer must be."""
    assert isinstance(answer, Refusal), answer
    assert answer.reason == reason
    return answer


def dead(task: str, **own: Any) -> list[e.Event]:
    """A task that becomes a dead letter."""
    return [submitted(task, **own), assigned(task), leased(task), failed(task, to="DEAD", dead_reason="failed")]


@pytest.fixture
def many(tmp_path: Path) -> Iterator[World]:
    """Some hundred lives in two pools, some of them open."""
    world = World(tmp_path / "many")
    write_lives(world.log, seed=2, tasks=250, pools=(POOL, "hall-b"))
    for number in range(30):
        pool = ("hall-b", POOL)[number % 2]
        kind = "paint" if number % 3 == 0 else "weld"
        # All at the same instant: the order of tasks goes on by pool and sequence.
        world.log.write(pool, submitted(f"w{number:02d}", kind=kind, priority=number % 10), after_ms=0)
    for number in range(6):
        for event in dead(f"d{number}", labels={"line": str(number % 2)}):
            world.log.write(POOL, event)
    world.catch_up()
    yield world
    world.close()


def everything(world: World) -> list[TaskCard]:
    """All cards, oldest first, in one page."""
    page = world.page(sort="submitted", limit=1_000)
    assert page.next is None
    return page.items


@pytest.mark.parametrize(
    "where",
    [
        "",
        "state=WAITING",
        "state!=COMPLETED",
        "kind=weld",
        "kind=w* state=DEAD",
        f"pool={POOL}",
        "pool=hall-b state=WAITING kind=paint",
        "robot=r3",
        "robot=r3 state=COMPLETED",
        "target=dock-2",
        "target=dock-2 priority>=5",
        "label.line=1",
        "pool=nowhere",
        "attempt>=2 older>=0s",
    ],
)
def test_lists_by_index_equal_a_filter_over_everything(many: World, where: str) -> None:
    """Whatever index a filter takes, forwards and backwards, in pages of any size: the tasks that match, in order."""
    filtered, cards = filter_of(where), everything(many)
    expected = [card["id"] for card in cards if filtered.matches(card, many.log.now)]
    assert len(cards) == 286
    for sort, ids in (("submitted", expected), ("-submitted", expected[::-1])):
        for limit in (1_000, 7):
            found: list[str] = []
            cursor = None
            while True:
                page = many.page(where, sort=sort, limit=limit, cursor=cursor)
                found += [card["id"] for card in page.items]
                assert len(page.items) <= limit
                cursor = page.next
                if cursor is None:
                    break
            assert found == ids
    count = many.tables.count(filtered)
    assert isinstance(count, Answer)
    assert count.value == Count(len(expected), True)


@pytest.mark.parametrize(
    "sort", ["priority", "-priority", "eligible", "-since", "-ended", "attempt", "failures", "-ran", "waited"]
)
def test_other_orders_are_sorted(many: World, sort: str) -> None:
    """Sorted by a figure of the card, equal ones by submission, page by page."""
    figure, sign = scans.SORTS[sort.removeprefix("-")], -1 if sort.startswith("-") else 1
    cards = sorted(everything(many), key=lambda card: sign * figure(card))
    found: list[str] = []
    cursor = None
    while True:
        page = many.page("", sort=sort, limit=60, cursor=cursor)
        found += [card["id"] for card in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == [card["id"] for card in cards]


def test_orders_that_cannot_be(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown order is refused with the known ones; too many to sort is refused with what to do."""
    assert "priority" in refused(many.tables.tasks(Filter("task"), sort="colour"), "bad_filter").text
    monkeypatch.setattr(queries, "SORTED_MAX", 100)
    assert "narrow the filter" in refused(many.tables.tasks(Filter("task"), sort="priority"), "bad_filter").text
    monkeypatch.setattr(scans, "RANGES_MAX", 3)
    refused(many.tables.tasks(Filter("task")), "bad_filter")
    refused(many.tables.count(filter_of("priority>3")), "bad_filter")


def test_a_page_looks_at_a_bounded_number_of_cards(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that hardly matches gives short pages and goes on by cursor; a count says that it is not complete."""
    expected = [card["id"] for card in everything(many) if card["id"].startswith("d")]
    monkeypatch.setattr(queries, "EXAMINED_MAX", 40)
    found, pages, cursor = [], 0, None
    while True:
        page = many.page("id=d*", sort="submitted", cursor=cursor)
        found += [card["id"] for card in page.items]
        pages, cursor = pages + 1, page.next
        if cursor is None:
            break
    assert (found, pages) == (expected, 8)
    monkeypatch.setattr(queries, "COUNTED_MAX", 100)
    count = many.tables.count(filter_of("id=*"))
    assert isinstance(count, Answer)
    assert count.value == Count(100, False)


def test_a_list_neither_repeats_nor_misses_while_tasks_move(world: World) -> None:
    """Between two pages tasks change their state and new ones come: what stays in the list is seen exactly once."""
    world.write(*[submitted(f"t{number:02d}") for number in range(40)])
    rng, seen, cursor = random.Random(3), [], None
    while True:
        page = world.page("", sort="submitted", limit=6, cursor=cursor)
        seen += [card["id"] for card in page.items]
        cursor = page.next
        if cursor is None:
            break
        waiting = world.ids("state=WAITING id=t*")
        some = rng.sample(waiting, min(5, len(waiting)))
        world.write(*[assigned(task) for task in some], submitted(f"new{len(seen)}"))
    assert seen[:40] == [f"t{number:02d}" for number in range(40)]
    assert len(seen) == len(set(seen))


def test_only_the_pools_that_one_may_see(many: World) -> None:
    """`pools` limits lists, counts, robots and pools, whatever the filter says."""
    mine = {"hall-b"}
    page = many.tables.tasks(Filter("task"), pools=mine, limit=1_000)
    assert isinstance(page, Page)
    assert {card["pool"] for card in page.items} == mine
    page = many.tables.tasks(filter_of(f"pool={POOL}"), pools=mine)
    assert isinstance(page, Page)
    assert page.items == []
    count = many.tables.count(Filter("task"), pools=mine)
    assert isinstance(count, Answer)
    assert 0 < count.value.count < 286
    robots = many.tables.robots(Filter("robot"), pools=mine)
    assert isinstance(robots, Page)
    assert {card["pool"] for card in robots.items} == mine
    assert [one["progress"]["pool"] for one in many.tables.pools(mine).value] == ["hall-b"]


def test_dead_letters(many: World) -> None:
    """The dead, newest first, with reason and last error; a filter narrows them."""
    page = many.tables.dead_letters(filter_of("label.line=1 reason=failed"))
    assert isinstance(page, Page)
    assert [card["id"] for card in page.items] == ["d5", "d3", "d1"]
    assert page.items[0]["error"]["type"] == "OSError"


def test_cursors(many: World) -> None:
    """A cursor holds for an hour and for its own list; anything else is refused."""
    page = many.page("state=WAITING", limit=3)
    assert page.next is not None
    many.now = many.log.now + CURSOR_MS
    assert many.page("state=WAITING", limit=3, cursor=page.next).items
    many.now = many.log.now + CURSOR_MS + 1
    refused(many.tables.tasks(filter_of("state=WAITING"), cursor=page.next), "cursor_expired")
    many.now = 0
    refused(many.tables.tasks(filter_of("state=DEAD"), cursor=page.next), "bad_cursor")
    refused(many.tables.tasks(filter_of("state=WAITING"), sort="submitted", cursor=page.next), "bad_cursor")
    refused(many.tables.robots(Filter("robot"), cursor=page.next), "bad_cursor")
    for text in ("", "x", "é", "AAAA", page.next[:-3], "!" + page.next, page.next + page.next, "a" * 5_000):
        refused(many.tables.tasks(filter_of("state=WAITING"), cursor=text), "bad_cursor")


@pytest.mark.parametrize(
    "key", [[], [1], ["a", POOL, 3], [1, 2, 3], [1, POOL, 2**70], [-1, POOL, -9], [True, POOL, 1], {}]
)
def test_made_up_cursors_do_no_harm(world: World, key: Any) -> None:
    """A client that forges a cursor gets a refusal, or a page of a list that it may read anyway."""
    cursor = make_cursor("tasks\n\n-submitted", key, world.log.now)
    answer = world.tables.tasks(Filter("task"), cursor=cursor)
    if key == [-1, POOL, -9]:
        assert isinstance(answer, Page)
    else:
        refused(answer, "bad_cursor")


def test_robots_and_targets_page_by_page(many: World) -> None:
    """All robots of all pools once, by pool and id; all targets of a pool once, by name."""
    found, cursor = [], None
    while True:
        page = many.tables.robots(Filter("robot"), limit=5, cursor=cursor)
        assert isinstance(page, Page)
        found += [(card["pool"], card["id"]) for card in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == sorted({(POOL, f"r{n}") for n in range(8)} & set(found) | {("hall-b", f"r{n}") for n in range(8)})
    many.write(*[submitted(f"x{n}", target=f"place-{n}") for n in range(7)])
    names, cursor = [], None
    while True:
        targets = many.tables.targets(POOL, limit=2, cursor=cursor)
        assert isinstance(targets, Page)
        names += [card["name"] for card in targets.items]
        cursor = targets.next
        if cursor is None:
            break
    assert [name for name in names if name.startswith("place")] == [f"place-{n}" for n in range(7)]
    assert names == sorted(set(names))


def test_schedules_limits_requirements(world: World) -> None:
    """What is set is listed by name."""
    world.write(
        e.ScheduleSet(schedule="nightly", cron="0 3 * * *", zone="Europe/Berlin", task={"kind": "weld"}),
        submitted("nightly@1", schedule=e.Firing(id="nightly", instant=START_AT)),
        e.FiringsSkipped(schedule="nightly", first=1, last=5, count=3, reason="overlap"),
        e.LimitSet(scope="kind", name_="weld", running=3),
        e.LimitSet(scope="key", name_="ann", rate_per_s=0.5, burst=2),
        e.LimitSet(scope="key", name_="bob", running=1),
        e.LimitRemoved(scope="key", name_="bob"),
        e.RequirementUnsatisfiable(requirement=["tpu"], slot_cost=1, waiting=4, first_task="t1", missing=["tpu"]),
    )
    found = world.tables.schedules(POOL)
    assert isinstance(found, Page)
    schedule = found.items[0]
    assert world.tables.schedule(POOL, "nightly").value == schedule
    assert world.tables.schedule(POOL, "ghost").value is None
    assert (schedule["schedule"], schedule["fired"], schedule["skipped"], schedule["zone"]) == (
        "nightly",
        1,
        3,
        "Europe/Berlin",
    )
    assert schedule["last_fired"]["task"] == "nightly@1"
    ann, weld = world.tables.limits(POOL).value
    assert (ann["scope"], ann["name"], ann["rate_per_s"], ann["burst"], ann["held"]) == ("key", "ann", 0.5, 2, 0)
    assert (weld["scope"], weld["name"], weld["running"], weld["actor"]) == ("kind", "weld", 3, "fleetlog")
    pool = world.tables.pool(POOL).value
    assert pool is not None
    assert pool["limits"] == [ann, weld]
    assert world.tables.requirements_unmet(POOL).value[0]["missing"] == ["tpu"]


def test_a_limit_says_how_many_are_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assigned, running and lost ones of the kind, or of the key over all kinds; waiting and ended ones not."""
    world.write(
        pool_created(),
        e.LimitSet(scope="kind", name_="weld", running=3),
        e.LimitSet(scope="key", name_="ann", running=2),
    )
    for task, kind, key in (("a1", "weld", "ann"), ("a2", "cut", "ann"), ("b1", "weld", "bob"), ("w1", "weld", "ann")):
        world.write(submitted(task, kind=kind, limit_key=key))
    world.write(assigned("a1"), leased("a1"), assigned("a2"), assigned("b1"), leased("b1"), completed("b1"))
    assert {limit["name"]: limit["held"] for limit in world.tables.limits(POOL).value} == {"weld": 1, "ann": 2}
    monkeypatch.setattr(limits, "HELD_MAX", 1)
    assert {limit["name"]: limit.get("held") for limit in world.tables.limits(POOL).value} == {"weld": 1, "ann": None}


# ---- positions ----


def test_answers_say_how_far_they_are_true(many: World) -> None:
    """An answer about one pool names its partition, one about all names all."""
    ends = many.log.ends
    assert many.tables.positions().offsets == ends
    one = many.tables.task(POOL, "w01").position.offsets
    assert len(one) == 1
    assert all(ends[partition] == offset for partition, offset in one.items())
    assert many.page("state=DEAD").position.offsets == ends
    assert len(many.page(f"pool={POOL}").position.offsets) == 1


def test_waiting_for_a_position(world: World) -> None:
    """Reached, not yet (behind, with the position reached), and of another log; by offset and by sequence."""
    here = world.tables.positions()
    assert world.tables.wait_for(here, 0.0) == here
    assert parse_position(str(here)) == Position(here.log[:8], here.offsets)
    partition = next(p for p, offset in here.offsets.items() if offset)
    later = Position(here.log, {partition: here.offsets[partition] + 1})
    behind = refused(world.tables.wait_for(later, 0.05), "behind")
    assert behind.extra == {"position": str(here)}
    assert world.tables.reached(Position(here.log, {}, {POOL: 4})) is None
    assert world.tables.reached(Position(here.log, {}, {"nowhere": 1})) is None
    world.write(submitted("t1"))
    assert world.tables.wait_for(later, 0.0) == world.tables.positions()
    assert isinstance(world.tables.reached(Position(here.log, {}, {POOL: 4})), Position)
    refused(world.tables.wait_for(Position("99999999", {}), 5.0), "unknown_position")
    refused(world.tables.wait_for(Position(here.log, {99: 1}), 5.0), "unknown_position")


# ---- events ----


def test_a_history_is_the_stored_events_byte_for_byte(many: World) -> None:
    """Every event that names the task in `task`, oldest first, as stored; in pages; and none of another task."""
    for card in everything(many):
        mine = f'"task":"{card["id"]}"'.encode()
        rows = [row for row in many.log.records() if row.key == card["pool"] and mine in row.value]
        expected = [row.value for row in rows if b'"ProgressNoted.v1"' not in row.value]
        history = many.tables.history(card["pool"], card["id"])
        assert [row.value for row in history.value] == expected
        behind, paged = 0, []
        while page := many.tables.history_places(card["pool"], card["id"], behind, limit=2).value:
            paged += page
            behind = page[-1][0]
        assert [offset for _, offset in paged] == [row.offset for row in history.value]
    assert many.tables.history(POOL, "nobody").value == []


def test_events_are_found_by_sequence(many: World) -> None:
    """(pool, sequence) leads to the record; beyond the end, and for unknown pools, to nothing."""
    for pool, last in many.log.sequences.items():
        rows = [row for row in many.log.records() if row.key == pool]
        for sequence in (1, 2, last // 2, last):
            found = many.tables.event(pool, sequence).value
            assert found == rows[sequence - 1]
        assert many.tables.offset_of(pool, last + 1).value is None
        assert many.tables.offset_of(pool, 0).value is None
    assert many.tables.offset_of("hall", 1).value is None


def test_an_event_that_the_log_does_not_have_is_said(world: World) -> None:
    """The tables point to an offset where the log has another pool's event: a sentence, not that event."""
    world.write(submitted("t1"))
    for rows in world.log.rows.values():
        rows[:] = [dataclasses.replace(row, key="hall-x") for row in rows]
    with pytest.raises(StoreCorrupt, match="expect an event of pool hall-a at offset 3"):
        world.tables.history(POOL, "t1")
    for rows in world.log.rows.values():
        rows.clear()
    with pytest.raises(StoreCorrupt, match="the log has none"):
        world.tables.event(POOL, 4)


def test_pools_have_their_settings_and_what_is_wrong(world: World) -> None:
    """The overview of a pool: settings, pause, freeze, owner, quarantine."""
    world.write(
        e.PoolConfigured(changed={"queue_max": 5}, effective_at=START_AT, reason="small"),
        e.DispatchPaused(scope="pool", reason="lunch", until=START_AT + 60_000),
        e.OwnershipTaken(reason="outage", owner="p1", partition=1, software="0.1.0", gap_ms=700),
        e.RecordQuarantined(topic="reports", partition=1, offset=7, digest="ab", error="not JSON"),
        e.PoolFrozen(where="tick", error="KeyError", digest="cd"),
    )
    pool = world.tables.pool(POOL).value
    assert pool is not None
    card = pool["card"]
    assert card["settings"]["queue_max"] == 5
    assert card["settings"]["window_ms"] == 5_000
    assert (card["paused"]["reason"], card["owner"]["owner"], card["frozen"]["where"]) == ("lunch", "p1", "tick")
    assert (card["quarantined"], card["quarantined_last"]["offset"]) == (1, 7)
    world.write(e.DispatchResumed(scope="pool"), e.PoolUnfrozen(reason="mended"))
    pool = world.tables.pool(POOL).value
    assert pool is not None
    assert "paused" not in pool["card"]
    assert "frozen" not in pool["card"]
    assert world.tables.pool("nowhere").value is None
    world.write(pool_created(), pool="hall-z")
    assert [one["progress"]["pool"] for one in world.tables.pools().value] == [POOL, "hall-z"]
    world.write(submitted("t1"), assigned("t1"), leased("t1"), completed("t1"))
