"""The log by itself: tail, check, export, import, copy, backup, audit; on the log of a running fleet and on files."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands.settings import FORMAT
from fleetlog.archive import read_archive
from fleetlog.log_work import fill, newest
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import Topic, partition_of
from tests.fleetlog.conftest import CommandLine, objects
from tests.fleetlog.world import World
from tests.support.broker import Broker
from tests.support.fleet import Fleet
from tests.support.site import Site


@pytest.fixture
def world(fleet: Fleet, pool: str) -> Iterator[World]:
    """A pool of the running fleet with a completed and a dead task."""
    world = World(fleet, pool)
    world.hold("order-17 order-19")
    yield world
    world.close()


@pytest.mark.usefixtures("world")
def test_tail_shows_the_newest_records_of_each_stream(cli: CommandLine, pool: str) -> None:
    """Of one pool or of all, oldest first; -n 0 shows none."""
    events = objects(cli("log", "tail", "-n", "3", "--pool", pool, "--json"))
    commands = objects(cli("log", "tail", "--topic", "commands", "--pool", pool, "--json"))

    assert [record["value"]["type"] for record in events][-1] == "AttemptFailed.v1"
    assert {record["pool"] for record in events + commands} == {pool}
    assert [record["value"]["type"] for record in commands] == ["pool_create", "submit", "submit"]
    assert cli("log", "tail", "-n", "0").out == ""
    plain = cli("log", "tail", "-n", "1", "--pool", pool).lines[0].split("\t")
    assert plain[2:4] == [pool, "AttemptFailed"]
    assert plain[4].startswith("order-19: failed on worker (fatal): the link is down, a dead letter (fatal)")


def test_tail_finds_enough_however_thin_a_pool_lies() -> None:
    """The newest of one pool among thousands of others, from a place that is guessed ever earlier."""
    log = MemoryLog(MemoryStore(partitions=1))
    for number in range(3000):
        name = "rare" if number % 1000 == 0 else "common"
        log.append(Topic.EVENTS, name, str(number).encode(), (), lambda fault, offset: None)

    assert [r.value for r in newest(log, Topic.EVENTS, [0], 2, "rare")] == [b"1000", b"2000"]
    assert [r.value for r in newest(log, Topic.EVENTS, [0], 2)] == [b"2998", b"2999"]


@pytest.mark.usefixtures("world")
def test_check_is_silent_about_a_good_log_and_names_what_is_wrong(cli: CommandLine, tmp_path: Path) -> None:
    """A running log is checked beside its process; a folder without one is refused."""
    good = cli("log", "check")
    none = cli("log", "check", "--data", str(tmp_path / "nothing"))

    assert (good.code, "is as it should be: format 1, 2 partitions" in good.out) == (0, True)
    assert none.code == 1
    assert "There is no log in" in none.err


@pytest.mark.usefixtures("world")
def test_an_export_verifies_by_itself_and_one_bit_is_found(cli: CommandLine, pool: str) -> None:
    """Plain or compressed, of one pool or all; whatever is changed or left out is said, and where."""
    assert cli("log", "export", "all.jsonl.gz", "--pool", pool).code == 0
    assert "all.jsonl.gz exists already" in cli("log", "export", "all.jsonl.gz").err
    lines = gzip.decompress(Path("all.jsonl.gz").read_bytes()).splitlines(keepends=True)
    Path("whole.jsonl").write_bytes(b"".join(lines))
    Path("bit.jsonl").write_bytes(b"".join(lines).replace(b"the link is down", b"the link is fine"))
    Path("gap.jsonl").write_bytes(b"".join(lines[:3] + lines[4:]))
    Path("cut.jsonl").write_bytes(b"".join(lines)[:-40])

    whole = objects(cli("audit", "verify", "--export", "whole.jsonl", "--json"))[0]
    assert (whole["verified"], whole["events"], whole["pools"][pool]["sequence"]) == (True, len(lines), len(lines))
    bit, gap, cut = (cli("audit", "verify", "--export", f"{name}.jsonl") for name in ("bit", "gap", "cut"))
    assert (bit.code, "chain: " in bit.out, "the log does not verify" in bit.err) == (1, True, True)
    assert (gap.code, "sequence 5 comes after 3" in gap.out) == (1, True)
    assert (cut.code, "the log does not verify" in cut.err) == (1, True)
    Path("cut.jsonl.gz").write_bytes(Path("all.jsonl.gz").read_bytes()[:-30])
    Path("text.jsonl").write_text("hello\n")
    Path("empty.jsonl").write_text("")
    assert "has no events yet: there is nothing to verify" in cli("audit", "verify", "--export", "empty.jsonl").err
    assert "is damaged after line" in cli("log", "import", "cut.jsonl.gz", "--data", "restored").err
    assert "line 1 of text.jsonl is damaged" in cli("audit", "verify", "--export", "text.jsonl").err


@pytest.mark.usefixtures("world")
def test_the_running_log_verifies(cli: CommandLine, pool: str) -> None:
    """Chain, sequences, ids and invariants, beside the process that writes it."""
    done = cli("audit", "verify", "--pool", pool)

    assert done.code == 0, done
    assert done.out.startswith(f"{pool}\t")


@pytest.mark.usefixtures("world")
def test_a_variable_does_not_make_an_export_a_part(cli: CommandLine, pool: str) -> None:
    """FLEETLOG_POOL names the pool of verbs about one; the whole log stays the whole log."""
    other = f"{pool}-too"
    assert cli("pool", "create", other).code == 0
    cli("log", "export", "all.jsonl")

    assert {pool, other} <= set(objects(cli("audit", "verify", "--json"))[0]["pools"])
    assert {pool, other} <= {record.key for record in read_archive(Path("all.jsonl"))}


@pytest.mark.usefixtures("world")
def test_a_broken_rule_is_found(cli: CommandLine, pool: str) -> None:
    """An export whose chain is whole but whose story is not: a task that was completed without a lease."""
    from commands.ids import ZERO_HASH, chain_hash

    cli("log", "export", "good.jsonl", "--pool", pool)
    chain, sequence, lines = ZERO_HASH, 0, []
    for record in read_archive(Path("good.jsonl")):
        event = json.loads(record.value)
        if event["type"] == "LeaseStarted.v1":
            continue
        sequence += 1
        value = json.dumps(event | {"sequence": sequence}, separators=(",", ":")).encode()
        chain = chain_hash(chain, value)
        lines.append(
            b'{"partition":0,"offset":%d,"appended_at":1,"pool":"%b","hash":"%b","headers":{},"event":%b}\n'
            % (sequence, pool.encode(), chain.hex().encode(), value)
        )
    Path("story.jsonl").write_bytes(b"".join(lines))
    done = cli("audit", "verify", "--export", "story.jsonl")

    assert done.code == 1
    assert "invariant: " in done.out
    assert "chain: " not in done.out


@pytest.mark.usefixtures("world")
def test_an_export_fills_an_empty_log_with_the_same_hashes(cli: CommandLine) -> None:
    """Import, copy, backup: the same heads; a second time writes nothing; another log is refused."""
    assert cli("log", "export", "events.jsonl").code == 0
    first = objects(cli("log", "import", "events.jsonl", "--data", "restored", "--json"))[0]
    again = objects(cli("log", "import", "events.jsonl", "--data", "restored", "--json"))[0]
    heads = objects(cli("audit", "verify", "--export", "events.jsonl", "--json"))[0]["pools"]

    assert (first["written"], first["passed_over"]) == (again["passed_over"], again["written"])
    assert objects(cli("audit", "verify", "--data", "restored", "--json"))[0]["pools"] == heads
    assert cli("log", "copy", "embedded:copied", "--data", "restored").code == 0
    assert objects(cli("audit", "verify", "--data", "copied", "--json"))[0]["pools"] == heads
    backup = objects(cli("log", "backup", "kept", "--data", "copied", "--json"))[0]
    assert objects(cli("audit", "verify", "--export", backup["file"], "--json"))[0]["pools"] == heads


@pytest.mark.usefixtures("world")
def test_a_copy_goes_on_and_refuses_another_log(cli: CommandLine, pool: str) -> None:
    """What came since is added; a log that is another one, or goes on beyond, is not filled."""
    cli("log", "copy", "embedded:copied")
    cli("submit", "k", "--id", "later")
    more = objects(cli("log", "copy", "embedded:copied", "--json"))[0]
    cli("log", "export", "all.jsonl", "--pool", pool)
    lines = Path("all.jsonl").read_bytes().splitlines(keepends=True)
    Path("short.jsonl").write_bytes(b"".join(lines[:-1]))
    shorter = cli("log", "import", "short.jsonl", "--data", "copied")

    assert more["written"] >= 1
    assert (shorter.code, "goes on beyond this one: fill an empty log." in shorter.err) == (1, True)


def test_backups_are_verified_and_older_ones_go(cli: CommandLine, fleet: Fleet, pool: str) -> None:
    """--keep N leaves the newest N of this log and touches nothing else."""
    cli("submit", "k")
    Path("kept").mkdir()
    log = str(objects(cli("log", "check", "--json"))[0]["log_id"])[:8]
    for name in (f"{log}-20200101T000000Z.jsonl.gz", f"{log}-20210101T000000Z.jsonl.gz", "other.jsonl.gz"):
        (Path("kept") / name).touch()
    done = objects(cli("log", "backup", "kept", "--keep", "2", "--json"))[0]

    assert done["removed"] == [f"kept/{log}-20200101T000000Z.jsonl.gz"]
    assert len(list(Path("kept").iterdir())) == 3
    assert Path(done["file"]).stat().st_size == done["bytes"]


@pytest.mark.usefixtures("world")
def test_the_state_of_an_earlier_moment(cli: CommandLine, pool: str) -> None:
    """A pool, a task, tasks and robots as they stood: by sequence, instant or span; from the log or an export."""
    history = objects(cli("history", "order-17", "--json"))
    submitted, ended = history[0], history[-1]
    cli("log", "export", "events.jsonl")

    before = objects(cli("audit", "at", f"#{submitted['sequence']}", "order-17", "--json"))[0]
    after = objects(cli("audit", "at", str(ended["sequence"]), "order-17", "--export", "events.jsonl", "--json"))[0]
    assert (before["state"], after["state"]) == ("WAITING", "COMPLETED")
    assert "tasks.WAITING\t1" in cli("audit", "at", f"#{submitted['sequence']}").lines
    assert cli("audit", "at", "0s", "--where", "state=DEAD").lines[0].startswith("order-19\t")
    assert cli("audit", "at", "0s", "--robots").lines[0].startswith("worker\t")
    assert "there was no task order-17 at #1" in cli("audit", "at", "#1", "order-17").err
    assert "[bad_filter]" in cli("audit", "at", "0s", "--where", "stat=DEAD").err
    assert "show one thing" in cli("audit", "at", "0s", "order-17", "--robots").err


@pytest.mark.usefixtures("world")
def test_the_history_in_the_log_is_that_of_the_tables(cli: CommandLine) -> None:
    """Byte for byte the same events, without gateway and tables."""
    assert objects(cli("audit", "history", "order-19", "--json")) == objects(cli("history", "order-19", "--json"))
    assert "the log has no event of task order-99" in cli("audit", "history", "order-99").err


@pytest.mark.usefixtures("world")
def test_the_clock_is_shown_and_trusted(cli: CommandLine) -> None:
    """Each partition's newest event beside the time at which the log took it."""
    rows = objects(cli("clock", "show", "--json"))

    assert rows
    assert all(row["trusted"] and abs(row["ahead_s"]) < 60 for row in rows)


def test_a_step_of_the_clock_is_accepted(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trusted clock is refused; one that jumped by an hour is followed at an operator's word, an event."""
    clock = SteppingClock()
    monkeypatch.setattr("streams.pool_clock.time", clock)
    with Fleet(tmp_path / "data") as fleet:
        ask = ("--gateway", fleet.url)
        assert cli("submit", "k", *ask).code == 0
        trusted = cli("clock", "accept", "--reason", "no need", *ask)
        clock.ahead_s = 3600
        assert cli("submit", "k", *ask).code == 0
        accepted = objects(cli("clock", "accept", "--reason", "moved", "--json", *ask))[0]
        told = objects(cli("events", "--types", "ClockAccepted", "--where", "pool=default", "--json", *ask))

    assert (trusted.code, "[clock_trusted]" in trusted.err) == (1, True)
    assert accepted["partitions"]
    assert [(event["reason"], event["actor"]) for event in told] == [("moved", "local")]
    assert abs(told[0]["to_at"] - told[0]["from_at"] - 3_600_000) < 60_000


class SteppingClock:
    """The module `time` as the owners see it, with a wall clock that can be ahead."""

    ahead_s = 0

    def time_ns(self) -> int:
        """The wall clock."""
        return time.time_ns() + self.ahead_s * 1_000_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_a_pool_of_a_partition_needs_that_partition() -> None:
    """The reserved pools lie on the partition that they name: a log with fewer is refused."""
    source, target = MemoryLog(MemoryStore(partitions=4)), MemoryLog(MemoryStore(partitions=2))
    source.append(Topic.EVENTS, "_log-3", b"{}", (), lambda fault, offset: None)
    record = source.read_at(Topic.EVENTS, partition_of("_log-3", 4), 0)
    assert record is not None

    with pytest.raises(Exception, match="needs a log with more partitions than 2"):
        fill(target, [record])


def test_a_log_on_kafka_is_made_filled_and_checked(
    cli: CommandLine, broker: Broker, fleet: Fleet, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the embedded log to a genuine broker, with other partitions and the same hashes."""
    cli("submit", "k", "--id", "t1")
    monkeypatch.setenv("FLEETLOG_LOG_PREFIX", f"copy-{pool}")
    made = objects(cli("log", "init", "--kafka", broker.address, "--partitions", "3", "--json"))[0]
    filled = objects(cli("log", "copy", f"kafka:{broker.address}", "--json"))[0]
    checked = objects(cli("log", "check", "--kafka", broker.address, "--json"))[0]
    monkeypatch.setenv("FLEETLOG_LOG_PREFIX", "nothing-there")
    missing = cli("log", "check", "--kafka", broker.address)

    assert made["log_id"] == filled["log_id"] == checked["log_id"]
    assert (checked["partitions"], checked["problems"]) == (3, [])
    monkeypatch.setenv("FLEETLOG_LOG_PREFIX", f"copy-{pool}")
    there = objects(cli("audit", "verify", "--kafka", broker.address, "--pool", pool, "--json"))[0]["pools"]
    assert there == objects(cli("audit", "verify", "--pool", pool, "--json"))[0]["pools"]
    assert missing.code == 1
    assert f"run `fleetlog log init --kafka {broker.address}" in missing.err


def test_the_format_is_raised_after_a_question(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown first, refused where nobody can answer, done with --yes in the log and its pools, and never taken back."""
    for module in ("commands.decide.pools", "streams.log_format", "streams.takeover", "projections.fold"):
        monkeypatch.setattr(f"{module}.FORMAT", FORMAT + 1)
    with Site() as site:
        site.submit("hall-a", id="t1")
        ask = ("--gateway", site.url)
        asked = cli("log", "raise-format", *ask)
        unknown = cli("log", "raise-format", "--to", str(FORMAT + 2), "--yes", *ask)
        before = site.client.get("/v1/version").json()["format"]
        raised = objects(cli("log", "raise-format", "--yes", "--json", *ask))[0]
        lower = cli("log", "raise-format", "--to", str(FORMAT), "--yes", *ask)
        again = cli("log", "raise-format", *ask)
        left_behind = cli("log", "raise-format", "--to", str(FORMAT + 1), "--yes", *ask)
        told = objects(cli("events", "--types", "FormatRaised", "--pool", "hall-a", "--json", *ask))
        after = site.client.get("/v1/version").json()["format"]

    assert (asked.code, before, after) == (2, FORMAT, FORMAT + 1)
    assert "say --yes" in asked.err
    assert f"knows formats up to {FORMAT + 1}, not {FORMAT + 2}" in unknown.err
    assert (raised["from_format"], raised["to_format"], raised["changed"]) == (FORMAT, FORMAT + 1, True)
    assert (lower.code, "a format is never lowered" in lower.err) == (1, True)
    assert (again.code, "the newest that its gateway knows" in again.out) == (0, True)
    assert left_behind.code == 0
    assert [(event["from_format"], event["to_format"]) for event in told] == [(FORMAT, FORMAT + 1)]


def test_a_format_that_an_owner_does_not_know_is_refused_by_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner of an older release says so; once it was replaced, the same is asked again."""
    monkeypatch.setattr("streams.log_format.FORMAT", FORMAT + 1)
    with Site() as site:
        site.submit("hall-a", id="t1")
        words = ("log", "raise-format", "--to", str(FORMAT + 1), "--yes", "--gateway", site.url)
        older = cli(*words)
        for module in ("commands.decide.pools", "projections.fold"):
            monkeypatch.setattr(f"{module}.FORMAT", FORMAT + 1)
        newer = cli(*words)

    assert (older.code, f"writes formats up to {FORMAT}; upgrade every process first" in older.err) == (1, True)
    assert newer.code == 0
