"""What is wrong with the fleet is said in words by /readyz and /healthz, and in figures by /metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from commands import pool as pool_module
from robot_gateway import health
from robot_gateway.health import Health, Seen, degraded
from robot_gateway.tokens import new_token, write_tokens
from streams import owner
from streams.memory_log import MemoryLog
from streams.owner_status import Distribution, OwnerStatus
from streams.port import Topic, partition_of
from tests.support.site import Site, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other quickly."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "LOOK_SHARE", 1)


@pytest.fixture
def site() -> Iterator[Site]:
    """A healthy fleet."""
    with Site(partitions=2) as site:
        yield site


def lines(site: Site, **headers: str) -> dict[str, str]:
    """Each part of /readyz, and what is said of it."""
    answer = site.client.get("/readyz", headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(line.split(": ", 1) for line in answer.text.splitlines())


def figures(site: Site) -> dict[str, float]:
    """Each line of /metrics."""
    found = (line.rsplit(" ", 1) for line in site.client.get("/metrics").text.splitlines() if line[0] != "#")
    return {name: float(value) for name, value in found}


def append(site: Site, topic: Topic, pool: str, value: bytes) -> None:
    """A record from somebody else."""
    MemoryLog(site.store).append(topic, pool, value, (), lambda fault, offset: None)


def test_a_healthy_fleet_says_so(site: Site) -> None:
    """One line a part."""
    parts = ("log", "outcomes", "tables", "owners", "clock", "pools", "records", "disk", "load")
    assert lines(site) == dict.fromkeys(parts, "ready")
    assert site.client.get("/healthz").text == "alive\n"


def test_f07_a_record_that_was_set_aside_is_said(site: Site) -> None:
    """F07: the partition goes on, health is degraded: which record, and where to look."""
    site.submit("hall-a")
    append(site, Topic.COMMANDS, "hall-a", b"not json")
    said = until(lambda: (s := lines(site)["records"]) != "ready" and s, "the line")
    place = f"commands, partition {partition_of('hall-a', 2)}, offset 1"
    assert re.fullmatch(
        rf"degraded: 1 set aside in all, the last at \d{{4}}-\S+Z \({place}\): "
        r"see `fleetlog log tail --topic commands` and `fleetlog events --types RecordQuarantined --pool '\*'`",
        said,
    )
    assert site.client.get("/healthz").text == "alive, degraded: records; see /readyz\n"
    assert site.submit("hall-a")["state"] == "WAITING"
    assert until(lambda: figures(site).get('fleetlog_quarantined_total{pool="hall-a"}')) == 1.0


def test_a_frozen_pool_is_said_until_it_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, what that means, and the verb."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "next_assignment", broken)
        site.submit("hall-a")
        said = until(lambda: (s := lines(site)["pools"]) != "ready" and s, "the line")
    assert said == (
        "degraded: frozen: hall-a: after a fault of Fleetlog nothing is assigned there; install a mended version, then "
        "`fleetlog unfreeze --pool POOL --reason ...`"
    )
    assert figures(site)["fleetlog_pools_frozen"] == 1.0
    assert site.client.post("/v1/pools/hall-a/unfreeze", json={"reason": "mended"}).status_code == 200
    until(lambda: lines(site)["pools"] == "ready", "the pool to go on")


class ClockAhead:
    """The module `time` with a wall clock that went on by an hour."""

    def time_ns(self) -> int:
        """The wall clock."""
        return time.time_ns() + 3_600 * 1_000_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_a_clock_that_is_mended_is_trusted_again_without_a_hand(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said while it is off, and no longer once a time service has put it right; nobody does anything here."""
    monkeypatch.setattr(owner, "IDLE_WAIT_S", 0.05)
    site.submit("hall-a")
    with monkeypatch.context() as patch:
        patch.setattr("streams.pool_clock.time", ClockAhead())
        site.submit("hall-a")
        until(lambda: lines(site)["clock"].startswith("degraded: the wall clock is "), "the line")
        assert site.submit("hall-a")["state"] == "WAITING"
    until(lambda: lines(site)["clock"] == "ready", "the clock to be trusted")


def test_a_clock_that_is_not_followed_is_said_until_it_is_accepted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how much, in which partitions, and the two ways out."""
    site.submit("hall-a")
    monkeypatch.setattr("streams.pool_clock.time", ClockAhead())
    site.submit("hall-a")
    said = until(lambda: (s := lines(site)["clock"]) != "ready" and s, "the line")
    where = partition_of("hall-a", 2)
    assert re.fullmatch(
        r"degraded: the wall clock is (3599|3600) s ahead of the log's time and is not followed "
        rf"\(partitions {where}\): "
        r"mend the clock, or follow it with `fleetlog clock accept --reason ...`",
        said,
    )
    assert figures(site)[f'fleetlog_owner_clock_offset_seconds{{partition="{where}"}}'] == pytest.approx(3_600, abs=1)
    assert site.client.post("/v1/clock/accept", json={"reason": "moved"}).status_code == 200
    until(lambda: lines(site)["clock"] == "ready", "the clock to be trusted")


def test_tables_that_stay_behind_are_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time; a projector that comes back ends it."""
    monkeypatch.setattr(health, "BEHIND_S", 0.2)
    site.stop_projector()
    site.submit("hall-a")
    said = until(lambda: (s := lines(site)["tables"]) != "ready" and s, "the line")
    assert re.fullmatch(
        r"degraded: they are \d+ s behind the log, and so are answers: see whether the projector .*", said
    )
    found = figures(site)
    assert found["fleetlog_tables_behind_seconds"] > 0.2
    assert found[f'fleetlog_tables_lag{{partition="{partition_of("hall-a", 2)}"}}'] > 0
    site.start_projector()
    until(lambda: lines(site)["tables"] == "ready", "the tables to be at the end")


def test_a_full_disk_is_said(site: Site) -> None:
    """With what still works."""
    site.gateway.health._disk = lambda: "the disk under /data has only 5 bytes free; reports are still taken"
    until(lambda: lines(site)["disk"] != "ready", "the line")
    assert lines(site)["disk"] == (
        "degraded: the disk under /data has only 5 bytes free; reports are still taken; no submissions are taken: "
        "make room"
    )


def test_a_log_that_is_away_is_said_and_makes_it_unready(site: Site) -> None:
    """503, with the line of whoever waits; it goes on by itself."""
    site.store.away = True
    answer = until(lambda: (a := site.client.get("/readyz")).status_code == 503 and a, "unreadiness")
    assert "The log does not answer" in answer.text
    assert site.client.get("/healthz").status_code == 200
    site.store.away = False
    until(lambda: site.client.get("/readyz").status_code == 200, "readiness")


def test_owners_elsewhere_are_known_by_their_events() -> None:
    """A gateway alone learns from the log that a clock is off, and what was frozen or set aside."""
    with Site(partitions=1) as site:
        site.submit("hall-a")
        alone = Health(MemoryLog(site.store), site.tables, lambda: None)
        alone._began_at = 0
        until(lambda: alone.look().pools, "the tables")
        assert list(degraded(alone.look(), with_names=True)) == []
        record = site.store.place(Topic.EVENTS, 0).records[-1]
        late = record.appended_at + 7_200_000
        site.store.place(Topic.EVENTS, 0).records[-1] = type(record)(
            record.topic, 0, record.offset, record.key, record.value, record.headers, late
        )
        alone._newest.clear()
        assert dict(degraded(alone.look(), with_names=True)).keys() == {"clock"}
        assert alone.look().off_ms[0] == pytest.approx(7_200_000, abs=5_000)
        alone._began_at = late + 1
        alone._newest.clear()
        assert alone.look().off_ms == {}


def test_pools_are_named_to_those_who_may_see_them(tmp_path: Any) -> None:
    """Without a token, or with one for some pools, only how many."""
    path = tmp_path / "tokens.toml"
    made = {"all": new_token("all", "viewer", pools=["*"]), "some": new_token("some", "operator", pools=["hall-*"])}
    made["boss"] = new_token("boss", "operator", pools=["*"])
    write_tokens(path, [entry for _, entry in made.values()])
    with Site(partitions=1, tokens=path) as site:
        everywhere = {"Authorization": f"Bearer {made['boss'][0]}"}
        for pool in ("secret", "hall-a"):
            assert site.client.post("/v1/pools", json={"pool": pool}, headers=everywhere).status_code == 201
        site.gateway.health.owners = lambda: [OwnerStatus(0, "deciding", frozen=("secret",))]
        until(lambda: len(site.gateway.health.seen.pools) == 2, "both pools")
        until(lambda: lines(site)["pools"] != "ready", "the line")
        for who, shown in (("all", True), ("some", False), (None, False)):
            headers = {} if who is None else {"Authorization": f"Bearer {made[who][0]}"}
            if who is not None:
                shows = site.client.get("/metrics", headers=headers).text
                assert ('pool="secret"' in shows) is shown
                assert 'pool="hall-a"' in shows
            said = lines(site, **headers)["pools"]
            assert ("secret" in said) is shown
            assert said.startswith("degraded: frozen: " + ("secret" if shown else "1"))


def test_a_look_never_fails() -> None:
    """Tables that are not there and a log that is away leave parts out."""
    with Site(partitions=1, projector=False) as site:
        site.store.away = True
        seen = site.gateway.health.look()
        assert (list(seen.pools), dict(seen.lag), dict(seen.backlog)) == ([], {}, {})
        site.store.away = False


def test_a_look_that_had_to_wait_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was away for long is not said to be behind for twenty times as long."""
    looks: list[float] = []

    def look() -> Seen:
        time.sleep(0.5)
        looks.append(time.monotonic())
        return Seen()

    monkeypatch.setattr(health, "LOOK_SHARE", 1_000)
    nothing: Any = None
    waits = Health(nothing, nothing, lambda: None)
    monkeypatch.setattr(waits, "look", look)
    waits.start()
    until(lambda: len(looks) > 1, "the next look")
    waits.stop()


def test_owners_are_figures(site: Site) -> None:
    """Batches, commits, inputs, backlog: per partition; robots and tasks per pool."""
    task = site.submit("hall-a", payload=1)["id"]
    with site.robot("r1") as robot:
        robot.hello()
        robot.ask("ready", n=1)
        here = {"task": task, "attempt": robot.expect("assign")["attempt"]}
        robot.ask("accept", **here)
        robot.ask("fail", **here, **{"class": "fatal", "error": {"type": "x", "message": "y"}})
        partition = partition_of("hall-a", 2)
        own = f'partition="{partition}"'

        def settled() -> dict[str, float] | None:
            found = figures(site)
            return found if found.get('fleetlog_tasks{pool="hall-a",state="DEAD"}') == 1.0 else None

        found = until(settled, "the dead letter")
    assert found['fleetlog_dead_letters_total{pool="hall-a",reason="fatal"}'] == 1.0
    assert found['fleetlog_robots{pool="hall-a",state="IDLE"}'] == 1.0
    assert found['fleetlog_wait_seconds_count{pool="hall-a"}'] == 1.0
    assert found[f"fleetlog_owner_deciding{{{own}}}"] == 1.0
    assert found[f"fleetlog_owner_events_total{{{own}}}"] >= 6
    commits = found[f"fleetlog_owner_commit_seconds_count{{{own}}}"]
    assert commits == found[f'fleetlog_owner_commit_seconds_bucket{{le="+Inf",{own}}}'] > 0
    assert found[f"fleetlog_owner_batch_inputs_sum{{{own}}}"] >= 5
    assert found[f'fleetlog_owner_backlog{{{own},topic="commands"}}'] == 0.0
    assert found["fleetlog_bad_snapshots_total"] == 0.0
    assert task not in site.client.get("/metrics").text


def test_what_alerts_count_is_there_before_it_happens(site: Site) -> None:
    """Prometheus sees no increase in a figure that begins at 1: the first dead letter would wake nobody."""
    site.submit("hall-a")
    found = until(lambda: {f for f in figures(site).items() if 'pool="hall-a"' in f[0]}, "the pool")
    counted = {name.partition("{")[2]: value for name, value in found if "dead_letters" in name or "deadlines" in name}
    assert counted == {
        **{f'pool="hall-a",reason="{reason}"}}': 0.0 for reason in ("failed", "fatal", "poison", "deadline")},
        **{f'pool="hall-a",then="{then}"}}': 0.0 for then in ("alarm", "dead", "cancel")},
    }


def test_a_distribution_counts_up_to_its_bounds() -> None:
    """A value on a bound belongs to it; one beyond all to the last."""
    seen = Distribution((1, 10))
    for value in (0, 1, 1.5, 10, 11):
        seen.note(value)
    assert (seen.counts, seen.sum) == ([2, 2, 1], 23.5)


def test_an_old_quarantine_is_said_no_more() -> None:
    """A day later; the figure stays."""
    card = {"quarantined": 4, "quarantined_last": {"at": 1_000, "topic": "commands", "partition": 0, "offset": 7}}
    pool: Any = {"card": card, "progress": {"pool": "hall-a"}}
    assert dict(degraded(Seen([pool], at=1_000), with_names=True)).keys() == {"records"}
    assert dict(degraded(Seen([pool], at=1_000 + health.QUARANTINE_SAID_MS), with_names=True)) == {}
