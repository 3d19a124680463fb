"""`limit set`, `limit list`, `limit rm`, and what other verbs say of limits; on a running fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleetlog.output import shown, title
from fleetlog.telling import tell
from tests.fleetlog.conftest import CommandLine, objects
from tests.fleetlog.world import World
from tests.support.fleet import Fleet, until


@pytest.fixture
def world(fleet: Fleet, pool: str) -> Iterator[World]:
    """A pool of the running fleet, made."""
    world = World(fleet, pool)
    world.hold("")
    yield world
    world.close()


@pytest.mark.usefixtures("world")
def test_a_limit_from_setting_to_removal(cli: CommandLine) -> None:
    """Said in a sentence, listed, part of the pool; gone after rm."""
    assert cli("limit", "set", "kind", "report", "--running", "4").lines == ["kind report limited: 4 at once"]
    done = cli("limit", "set", "key", "tenant-1", "--rate", "2.5", "--running", "2")
    assert done.lines == ["key tenant-1 limited: 2 at once; 2.5 a second, 1 together"]
    rows = [line.split("\t")[:6] for line in cli("limit", "list").lines]
    assert rows == [["key", "tenant-1", "0", "2", "2.5", "1"], ["kind", "report", "0", "4", "", ""]]
    listed = objects(cli("limit", "list", "--json"))
    assert [limit["name"] for limit in listed] == ["tenant-1", "report"]
    assert objects(cli("pool", "show", listed[0]["pool"], "--json"))[0]["limits"] == listed
    assert objects(cli("limit", "rm", "key", "tenant-1", "--json"))[0]["changed"] is True
    assert cli("limit", "rm", "kind", "report").lines == ["kind report is not limited any more"]
    assert cli("limit", "list").lines == []


def test_what_waits_says_so(cli: CommandLine, world: World, fleet: Fleet, pool: str) -> None:
    """`why` names the limit and how many run; the list counts them."""
    assert cli("limit", "set", "key", "tenant-1", "--running", "1").code == 0
    for task in ("t1", "t2"):
        assert cli("submit", "k", "--id", task, "--limit-key", "tenant-1", "--require", "r1").code == 0
    robot = world.robot("r1")
    robot.ask("ready", n=2)
    assert robot.expect("assign")["task"] == "t1"
    until(lambda: objects(cli("limit", "list", "--json"))[0]["held"] == 1, "the count")
    said = cli("why", "t2").out
    assert "the limit of key tenant-1 is reached: 1 of 1 run" in said


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["set", "kind", "report"], 2, "what is the limit?"),
        (["set", "target", "dock", "--running", "1"], 2, "'target' is not"),
        (["set", "kind", "report", "--running", "0"], 2, "'--running'"),
        (["set", "kind", "report", "--rate", "5000"], 1, "1000"),
        (["set", "kind", "report", "--running", "1", "--burst", "2"], 1, "a burst belongs to a rate"),
        (["rm", "kind", "nothing"], 1, "no limit of kind nothing"),
    ],
)
def test_what_is_wrong_is_said(cli: CommandLine, words: list[str], code: int, sentence: str) -> None:
    """One sentence, and the exit code."""
    done = cli("limit", *words)
    assert (done.code, len(done.err.splitlines())) == (code, 1)
    assert sentence in done.err


def test_a_rate_is_no_duration() -> None:
    """Its name ends as those of seconds do."""
    assert (title("rate_per_s"), shown("rate_per_s", 2.5)) == ("rate per s", "2.5")
    assert (title("lease_s"), shown("lease_s", 2.5)) == ("lease", "2.5 s")


def test_events_say_what_the_limit_is() -> None:
    """In the words of `limit set`."""
    limit: dict[str, Any] = {"type": "LimitSet.v1", "scope": "kind", "name": "report", "actor": "ann"}
    assert tell(limit | {"running": 4}) == "limit of kind report set by ann: 4 at once"
    rate = {"rate_per_s": 2.5, "burst": 10, "running": 4}
    assert tell(limit | rate) == "limit of kind report set by ann: 4 at once; 2.5 a second, 10 together"
