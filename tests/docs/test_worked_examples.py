"""The examples by numbers on the pages are what the core decides, to the millisecond."""

import re
from pathlib import Path

from commands import messages as m
from tests.docs.played import Played, clock

PAGES = Path(__file__).parents[2] / "docs" / "understand"
ROW = re.compile(r"^\| (\d\d:\d\d:\d\d\.\d{3}) \| `(\w+)` \|", re.MULTILINE)


def rows(page: str) -> list[tuple[str, str]]:
    """Time and event of every row of the page's example."""
    return ROW.findall((PAGES / page).read_text())


def happened(played: Played, *names: str) -> list[tuple[str, str]]:
    """Time and event of everything of these types."""
    return [(clock(event.occurred_at), event.name) for event in played.events if event.name in names]


def test_the_lease_that_ends_by_silence() -> None:
    """leases.md: r1 is killed after its heartbeat of 12:00:19.7; its lease ends at 12:00:35, r2 goes on."""
    played = Played("12:00:00")
    played.hello("12:00:01", "r1")
    played.hello("12:00:02", "r2")
    played.submit("12:00:07", "t1")
    played.say("12:00:07.200", "r1", m.Accept, task="t1", attempt=1)
    for tick in range(4, 21):
        second = tick * 2.5 - 0.3
        if second < 20:
            played.beat(f"12:00:{second:06.3f}", "r1", ("t1", 1))
        if second < 35:
            played.beat(f"12:00:{second:06.3f}", "r2")
    played.say("12:00:35.100", "r2", m.Accept, task="t1", attempt=2)
    told = ("TaskSubmitted", "TaskAssigned", "LeaseStarted", "WindowMissed", "LeaseExpired")
    assert happened(played, *told) == rows("leases.md")
    assert [event.robot for event in played.of("TaskAssigned")] == ["r1", "r2"]
    expired = played.of("LeaseExpired")[0]
    assert (clock(expired.first_window), clock(expired.last_window)) == ("12:00:20.000", "12:00:30.000")
    assert (expired.to, expired.lost) == ("WAITING", 1)
    assert clock(played.of("LeaseStarted")[0].counts_from) == "12:00:10.000"
    assert played.pool.state.robots["r1"].offline


def test_a_later_heartbeat_moves_the_end_by_a_window() -> None:
    """leases.md: with a last heartbeat at 12:00:20.0 the lease ends at 12:00:40."""
    played = Played("12:00:00")
    played.hello("12:00:01", "r1")
    played.submit("12:00:07", "t1")
    played.say("12:00:07.200", "r1", m.Accept, task="t1", attempt=1)
    for second in (10, 12.5, 15, 17.5, 20):
        played.beat(f"12:00:{second:06.3f}", "r1", ("t1", 1))
    played.wait("12:00:50")
    assert [clock(event.occurred_at) for event in played.of("LeaseExpired")] == ["12:00:40.000"]


def test_targets_take_turns() -> None:
    """order.md: three tasks of two targets, one robot with one slot."""
    played = Played("12:00:00")
    for task, target in (("t11", "server-1"), ("t12", "server-2"), ("t13", "server-1")):
        played.submit("12:00:00.500", task, target=target)
    played.hello("12:00:01", "r1")
    for second, task in ((2, "t11"), (3, "t12")):
        played.say(f"12:00:0{second}", "r1", m.Accept, task=task, attempt=1)
        played.say(f"12:00:0{second}", "r1", m.Complete, task=task, attempt=1)
    assert happened(played, "TaskAssigned") == rows("order.md")
    assert [event.task for event in played.of("TaskAssigned")] == ["t11", "t12", "t13"]
