"""Alarms: which there are, how often each is told, and a real command that gets them and can do no harm."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import pool as pool_module
from robot_gateway import alarm_command, health
from robot_gateway.alarm_command import AlarmCommand
from robot_gateway.alarms import COUNTED, Alarm, Alarms
from robot_gateway.health import Seen
from tests.support.site import Site, until


def seen(*, lag: int = 0, disk: str | None = None, **totals: int) -> Seen:
    """A look at pool hall-a with these figures."""
    pools: Any = [{"progress": {"pool": "hall-a", "totals": totals}, "card": {}}]
    return Seen(pools=pools, lag={0: lag}, disk=disk, at=1)


def with_total(figure: str, count: int) -> Seen:
    """The same with one figure."""
    totals: Any = {figure: count}
    return seen(**totals)


def told(alarms: Alarms, look: Seen, now_s: float, *unready: str) -> list[tuple[str, str | None, int, bool]]:
    """What is told at that look."""
    return [(alarm.name, alarm.pool, alarm.count, alarm.over) for alarm in alarms.look(look, unready, now_s)]


# ---- how often ----


@pytest.mark.parametrize("alarm", COUNTED)
def test_each_counted_alarm_is_told_when_its_figure_grows(alarm: str) -> None:
    """With the number since it was told last; the sentence names the pool's verb."""
    figures, _ = COUNTED[alarm]
    for figure in figures:
        alarms = Alarms()
        assert told(alarms, with_total(figure, 2), 0) == []
        assert told(alarms, with_total(figure, 5), 1) == [(alarm, "hall-a", 3, False)]
        assert told(alarms, with_total(figure, 5), 100) == []


def test_at_most_once_a_minute_and_nothing_is_lost() -> None:
    """What comes within the minute is told together when it is over."""
    alarms = Alarms()
    assert told(alarms, seen(), 0) == []
    assert told(alarms, seen(dead_poison=1), 10) == [("poison", "hall-a", 1, False)]
    assert told(alarms, seen(dead_poison=3), 20) == []
    assert told(alarms, seen(dead_poison=4), 69) == []
    assert told(alarms, seen(dead_poison=4, dead_fatal=1), 70.5) == [
        ("poison", "hall-a", 3, False),
        ("dead_letter", "hall-a", 1, False),
    ]


def test_old_news_is_not_told() -> None:
    """A gateway that begins tells what comes from now on; tables that are being built are not news either."""
    alarms = Alarms()
    for now_s, (lag, count) in enumerate([(9, 1), (5, 40), (0, 70)]):
        assert told(alarms, seen(lag=lag, done_twice=count), now_s) == []
    assert told(alarms, seen(done_twice=71), 4) == [("done_twice", "hall-a", 1, False)]
    assert told(alarms, seen(lag=60, done_twice=3), 100) == []
    assert told(alarms, seen(done_twice=71), 101) == []
    assert told(alarms, seen(done_twice=72), 102) == [("done_twice", "hall-a", 1, False)]


def test_tables_that_never_come_to_the_end_do_not_silence_alarms() -> None:
    """Under a steady load there is always something to fold: after half a minute figures count all the same."""
    alarms = Alarms()
    assert told(alarms, seen(lag=5, quarantined=7), 0) == []
    assert told(alarms, seen(lag=5, quarantined=8), 30) == []
    assert told(alarms, seen(lag=5, quarantined=9), 31) == [("quarantined", "hall-a", 1, False)]


def test_what_lasts_is_told_when_it_begins_each_hour_and_when_it_is_over() -> None:
    """A full disk: three words, not one each look."""
    alarms = Alarms()
    full = seen(disk="5 bytes are free")
    assert told(alarms, full, 0) == [("disk", None, 1, False)]
    assert [told(alarms, full, now_s) for now_s in (30, 61, 3_599)] == [[], [], []]
    assert told(alarms, full, 3_600) == [("disk", None, 1, False)]
    assert told(alarms, seen(), 3_630) == []
    assert told(alarms, seen(), 3_661) == [("disk", None, 1, True)]
    assert told(alarms, seen(), 3_800) == []


def test_a_gateway_is_unready_for_a_minute_before_that_is_an_alarm() -> None:
    """Take-overs and a log that is away for a moment are not worth a call."""
    alarms = Alarms()
    assert told(alarms, seen(), 0, "owners: partition 1 is being taken over") == []
    assert told(alarms, seen(), 59, "owners: partition 1 is being taken over") == []
    assert told(alarms, seen(), 59.5) == []
    assert told(alarms, seen(), 100, "outcomes: away") == []
    assert told(alarms, seen(), 160, "outcomes: away") == [("not_ready", None, 1, False)]
    (over,) = alarms.look(seen(), [], 300)
    assert (over.over, over.text) == (True, "over: outcomes: away")


# ---- a real command ----


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other quickly."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "LOOK_SHARE", 1)
    monkeypatch.setattr(alarm_command, "LOOK_EVERY_S", 0.02)


@pytest.fixture
def site(quick: None) -> Iterator[Site]:
    """A healthy fleet."""
    with Site(partitions=1) as site:
        yield site


def watching(site: Site, command: str, limit_s: float = 60.0) -> AlarmCommand:
    """The command on this fleet."""
    health_of = site.gateway.health
    return AlarmCommand(command, site.gateway.name, lambda: health_of.seen, list, limit_s)


def written(path: Path) -> list[dict[str, Any]]:
    """Every whole alarm that the command wrote down."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_a_command_gets_the_alarm_as_json(site: Site, tmp_path: Path) -> None:
    """A dead letter: one line on standard input, with what happened, where and when, and what to do."""
    site.submit("hall-a")
    paper = tmp_path / "alarms"
    with watching(site, f"cat >> '{paper}'"), site.robot("r1") as robot:
        time_to_settle(site)
        robot.hello(slots=1, capabilities=[])
        robot.say("ready", n=1)
        given = robot.expect("assign")
        robot.ask("accept", task=given["task"], attempt=1)
        error = {"type": "jam", "message": "stuck"}
        robot.ask("fail", task=given["task"], attempt=1, error=error, **{"class": "fatal"})
        (alarm,) = until(lambda: written(paper), "the alarm")
    assert alarm.pop("at").endswith("Z")
    assert alarm == {
        "alarm": "dead_letter",
        "pool": "hall-a",
        "text": "1 became dead letters; see `fleetlog dead-letters --pool hall-a`, then redrive, resolve or discard",
        "count": 1,
        "over": False,
        "gateway": site.name,
    }


def time_to_settle(site: Site) -> None:
    """The alarms have seen the tables at the end of the log; only then is anything news."""
    at = site.gateway.health.seen.at
    until(lambda: site.gateway.health.seen.at > at and not any(site.gateway.health.seen.lag.values()), "a look")
    time.sleep(0.2)


def test_a_frozen_pool_is_told_and_that_it_goes_on(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin and end of what lasts, by the command."""
    monkeypatch.setattr("robot_gateway.alarms.TOLD_EVERY_S", 0.1)
    paper = tmp_path / "alarms"

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    with watching(site, f"cat >> '{paper}'"):
        with monkeypatch.context() as patch:
            patch.setattr(pool_module, "next_assignment", broken)
            site.submit("hall-a")
            until(lambda: written(paper), "the alarm")
        assert site.client.post("/v1/pools/hall-a/unfreeze", json={"reason": "mended"}).status_code == 200
        until(lambda: len(written(paper)) == 2, "its end")
    assert [(a["alarm"], a["pool"], a["over"]) for a in written(paper)] == [
        ("frozen", "hall-a", False),
        ("frozen", "hall-a", True),
    ]


def lasting(disk: str) -> Seen:
    """One alarm of the host."""
    return Seen(disk=disk, at=1)


def test_a_command_that_hangs_is_killed_with_all_it_started(
    quick: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After its time it is gone, its children too, and the next alarm is told."""
    pids = tmp_path / "pids"
    looks = [lasting("full")]
    command = f"sleep 600 & echo $! >> '{pids}'; wait"
    with AlarmCommand(command, "g", lambda: looks[-1], list, limit_s=0.3):
        until(lambda: "was killed" in caplog.text, "the end of the command")
        (child,) = pids.read_text().split()
        until(lambda: not alive(child), "the end of its child")
        looks.append(Seen(pools=[frozen("hall-b")], at=2))
        until(lambda: len(pids.read_text().split()) == 2, "the next alarm")


def alive(pid: str) -> bool:
    """Whether this process still runs."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def frozen(pool: str) -> Any:
    """A pool that assigns nothing."""
    return {"progress": {"pool": pool, "totals": {}}, "card": {"frozen": {}}}


@pytest.mark.parametrize(
    ("command", "said"),
    [("exit 3", "ended with 3"), ("/nowhere/at-all", "ended with 127"), ("exec < /dev/null; exit 4", "ended with 4")],
)
def test_a_command_that_fails_is_said(quick: None, command: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """In one line of the log; nothing else happens. One that does not read its input is no exception."""
    with AlarmCommand(command, "g", lambda: lasting("full"), list):
        until(lambda: said in caplog.text, "the line")
    assert "Traceback" not in caplog.text


def test_stopping_does_not_wait_for_a_command(quick: None, tmp_path: Path) -> None:
    """One that runs is killed, so the product ends when it is asked to."""
    pid = tmp_path / "pid"
    with AlarmCommand(f"echo $$ > '{pid}'; exec sleep 600", "g", lambda: lasting("full"), list):
        until(lambda: pid.exists() and pid.read_text().strip(), "the command")
    until(lambda: not alive(pid.read_text().strip()), "its end")


def test_a_look_that_fails_ends_nothing(quick: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next look comes by itself."""
    paper = tmp_path / "alarms"
    looks = iter([None])

    def seen_now() -> Seen:
        return lasting("full") if next(looks, "over") else 1 // 0  # type: ignore[return-value]

    with AlarmCommand(f"cat >> '{paper}'", "g", seen_now, list):
        until(lambda: written(paper), "the alarm")
    assert "could not be looked for" in caplog.text


def test_hosts_have_no_pool() -> None:
    """Null fields are left out."""
    assert "pool" not in Alarm("disk", None, "full").as_json("g", 0)
