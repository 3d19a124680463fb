"""The examples by numbers on the pages are what the core decides, to the millisecond."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commands import inputs as i
from tests.docs.blocks import PROJECT, Block, blocks_of
from tests.support.play import play
from tests.support.world import World

NOON = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * 1_000
"""The examples play within a minute after this."""
ROW = re.compile(r"^\| (12:00:\d\d\.\d{3}) \| `(\w+)` \|", re.MULTILINE)


def rows(page: str) -> list[tuple[str, str]]:
    """Time and event of every row of a page's example."""
    return ROW.findall((PROJECT / "docs" / "understand" / page).read_text())


def clock(instant: int) -> str:
    """The instant as the pages write it."""
    second, ms = divmod(instant - NOON, 1_000)
    return f"12:00:{second:02}.{ms:03}"


def until(world: World, second: float) -> None:
    """The clock goes on to this second after noon."""
    world.wait(second - (world.now - NOON) / 1_000)


def happened(world: World, *names: str) -> list[tuple[str, str]]:
    """Time and event of everything of these types."""
    return [(clock(event.occurred_at), event.name) for event in world.events if event.name in names]


def test_the_lease_that_ends_by_silence() -> None:
    """leases.md: r1 is killed after its heartbeat of 12:00:19.7; its lease ends at 12:00:35, r2 goes on."""
    world = World(now=NOON)
    until(world, 1)
    r1 = world.robot("r1")
    until(world, 2)
    r2 = world.robot("r2")
    until(world, 7)
    world.submit("t1")
    until(world, 7.2)
    r1.accept("t1")
    for tick in range(4, 14):
        until(world, tick * 2.5 - 0.3)
        if world.now <= NOON + 19_700:
            r1.beat()
        r2.beat()
    until(world, 35.1)
    r2.accept("t1")
    told = ("TaskSubmitted", "TaskAssigned", "LeaseStarted", "WindowMissed", "LeaseExpired")
    assert happened(world, *told) == rows("leases.md")
    assert [event.robot for event in world.named("TaskAssigned")] == ["r1", "r2"]
    expired = world.named("LeaseExpired")[0]
    assert (clock(expired.first_window), clock(expired.last_window)) == ("12:00:20.000", "12:00:30.000")
    assert (expired.to, expired.lost) == ("WAITING", 1)
    assert clock(world.named("LeaseStarted")[0].counts_from) == "12:00:10.000"
    assert r1.state == "OFFLINE"
    world.verify()


def test_a_later_heartbeat_moves_the_end_by_a_window() -> None:
    """leases.md: with a last heartbeat at 12:00:20.0 the lease ends at 12:00:40."""
    world = World(now=NOON)
    r1 = world.robot("r1")
    until(world, 7)
    world.submit("t1")
    until(world, 7.2)
    r1.accept("t1")
    for second in (10, 12.5, 15, 17.5, 20):
        until(world, second)
        r1.beat()
    until(world, 50)
    assert happened(world, "LeaseExpired") == [("12:00:40.000", "LeaseExpired")]
    world.verify()


def test_targets_take_turns() -> None:
    """order.md: three tasks of two targets, one robot with one slot."""
    world = World(now=NOON)
    for task, target in (("t11", "server-1"), ("t12", "server-2"), ("t13", "server-1")):
        world.submit(task, target=target)
    until(world, 1)
    r1 = world.robot("r1")
    for second, task in ((2, "t11"), (3, "t12")):
        until(world, second)
        r1.accept(task)
        r1.complete(task)
    assert happened(world, "TaskAssigned") == rows("order.md")
    assert [event.task for event in world.named("TaskAssigned")] == ["t11", "t12", "t13"]
    world.verify()


def test_a_rate_lets_tasks_begin() -> None:
    """limits.md: 2.5 a second, two together; and what `why` says of the third."""
    world = World(now=NOON)
    world.do(i.SetLimit, i.LimitBody(scope="kind", name="report", rate_per_s=2.5, burst=2))
    r1 = world.robot("r1", slots=8)
    world.keep(r1)
    until(world, 1)
    for task in ("t1", "t2", "t3", "t4"):
        world.submit(task, kind="report")
    until(world, 1.1)
    assert "the rate of kind report (2.5 a second) lets the next begin in 300 ms" in world.verb(i.Explain, "t3")["text"]
    until(world, 2)
    for task in r1.assigned():
        r1.accept(task)
    until(world, 5)
    for task in ("t5", "t6", "t7"):
        world.submit(task, kind="report")
    until(world, 6)
    assert happened(world, "TaskAssigned") == rows("limits.md")
    assert r1.assigned() == [f"t{k}" for k in range(1, 8)]
    world.verify()


def tables_of(page: str) -> list[Block]:
    """The scenario tables of a page."""
    blocks = blocks_of(Path("docs/understand") / page)
    return [block for block in blocks if block.language == "text" and block.words[:1] == ("example",)]


@pytest.mark.parametrize("block", tables_of("order.md"), ids=lambda block: block.place.rpartition(":")[2])
def test_a_rule_of_order(block: Block) -> None:
    """order.md: each rule's table is what happens; `ageing=10` after `example` is the pool's ageing interval."""
    options = dict(word.split("=") for word in block.words[1:])
    play(block.text, ageing_ms=1_000 * int(options.get("ageing", "60")))
