"""Where the projector begins, when it builds anew, when it stops with a sentence, and that batches leave no trace."""

import dataclasses
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from commands import events as e
from commands.events import EVENT_TYPES
from projections import store as store_module
from projections.fold import ProjectionFault
from projections.projector import DAY_MS, Projector
from projections.queries import Tables
from projections.rows import FORMAT_KEY, Table, dump
from projections.store import FORMAT, Folder, Store, StoreLocked
from streams.embedded_log import EmbeddedLog
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import LogUnavailable, Output, Record, Seat, Topic
from tests.projections.world import POOL, World, replayed
from tests.support.stored_events import (
    ListLog,
    assigned,
    completed,
    expired,
    hello,
    leased,
    pool_created,
    registered,
    submitted,
    write_lives,
)


@pytest.fixture(scope="module")
def lives() -> ListLog:
    """A log of some thousand events of two pools, with gaps between the offsets."""
    log = ListLog(gap=2)
    write_lives(log, seed=7, tasks=600)
    return log


@pytest.fixture(scope="module")
def clean(lives: ListLog, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a clean replay of `lives`."""
    return replayed(lives, tmp_path_factory.mktemp("clean"))


@pytest.mark.parametrize(
    "how", [{"records_max": 1}, {"records_max": 7}, {"records_max": 500}, {"cards_max": 0}, {"cards_max": 5}], ids=str
)
def test_batches_and_caches_leave_no_trace(lives: ListLog, clean: str, tmp_path: Path, how: dict[str, int]) -> None:
    """F05: however the log is cut into batches and whatever stays in memory, the rows are the same."""
    log = lives
    if how.get("records_max") == 1:
        log = ListLog()
        write_lives(log, seed=8, tasks=60)
        clean = replayed(log, tmp_path / "clean")
    assert replayed(log, tmp_path / "cut", **how) == clean


class Crash(Exception):
    """The process dies here."""


@pytest.mark.parametrize("written", [False, True], ids=["before-the-write", "after-the-write"])
@pytest.mark.parametrize("days", [30.0, 1e-6], ids=["kept", "leaving-at-once"])
def test_f05_a_crash_at_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool, days: float
) -> None:
    """F05: killed before or after each WriteBatch, the projector goes on and makes the rows of a clean replay."""
    log = ListLog(gap=2)
    write_lives(log, seed=9, tasks=80)
    expected = replayed(log, tmp_path / "clean", ended_days=days)
    write = Store.write

    def dying(store: Store, writes: Mapping[Table, Any]) -> None:
        if written:
            write(store, writes)
        raise Crash

    crashes = 0
    while True:
        projector = Projector(log, tmp_path / "killed", days, records_max=23)
        projector.open()
        try:
            monkeypatch.setattr(Store, "write", dying)
            with pytest.raises(Crash):
                projector.step(0)
            crashes += 1
            projector.close()
            monkeypatch.setattr(Store, "write", write)
            projector.open()
            if not written:
                projector.step(0)
            assert projector.status.rebuilds == 0
            if all(here >= end for here, end in projector.lag().values()):
                break
        finally:
            projector.close()
    assert crashes > 10
    assert replayed(log, tmp_path / "killed", ended_days=days) == expected


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A second run folds only what is new."""
    world = World(tmp_path)
    world.write(submitted("t1"))
    world.close()
    again = World(tmp_path, world.log, begun=False)
    assert again.projector.lag() == {p: (end, end) for p, end in world.log.ends.items()}
    again.write(assigned("t1"))
    assert again.projector.status.events == 1
    assert again.task("t1")["state"] == "ASSIGNED"
    assert again.projector.status.rebuilds == 0
    again.close()


def test_a_second_projector_is_refused_with_a_sentence(world: World) -> None:
    """One folder has one projector; the sentence says who has it and what to do."""
    with pytest.raises(StoreLocked, match=r"in use by another projector \(process \d+\): stop it, or give this one"):
        Projector(world.log, world.folder).open()
    world.write(submitted("t1"))
    assert world.task("t1")["state"] == "WAITING"


# ---- rebuilds ----


def rebuilt(folder: Path, log: ListLog, why: str) -> None:
    """A projector on this folder builds anew for this reason and makes the rows of a clean replay."""
    world = World(folder, log, begun=False)
    try:
        assert world.projector.status.rebuilds == 1
        assert world.projector.status.rebuilt is not None
        assert why in world.projector.status.rebuilt
        world.catch_up()
        assert world.tables.digest() == replayed(log, folder.parent / "clean")
        assert len(list(folder.glob("tables-*"))) == 1
    finally:
        world.close()


def projected(folder: Path) -> ListLog:
    """A log and the tables of it in `folder`, closed."""
    world = World(folder)
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    world.close()
    return world.log


def test_another_format_of_the_rows_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of another format than this version writes are never read."""
    log = projected(tmp_path / "tables")
    former, newer = FORMAT, FORMAT + 1
    monkeypatch.setattr(store_module, "FORMAT", newer)
    monkeypatch.setattr("projections.projector.FORMAT", newer)
    rebuilt(tmp_path / "tables", log, f"the rows are of format {former}, this version writes {newer}")


def test_a_damaged_format_row_is_built_anew(tmp_path: Path) -> None:
    """A format row whose checksum is wrong means nothing else can be trusted."""
    log = projected(tmp_path / "tables")
    store = Folder(tmp_path / "tables").open_current()
    assert store is not None
    store._db[FORMAT_KEY] = b"\0\0\0\0" + dump({"format": 1})
    store.close()
    rebuilt(tmp_path / "tables", log, "does not match its checksum")


def test_f23_another_log_is_built_anew(tmp_path: Path) -> None:
    """F23: tables of another log id."""
    projected(tmp_path / "tables")
    other = ListLog(log_id="99999999-2222-4333-8444-555555555555")
    write_lives(other, seed=3, tasks=5)
    rebuilt(tmp_path / "tables", other, "belong to the log 11111111")


def test_f23_an_offset_beyond_the_end_is_built_anew(tmp_path: Path) -> None:
    """F23: the topic was made anew and is shorter: detected, rebuilt, no waiting for ever."""
    projected(tmp_path / "tables")
    shorter = ListLog()
    shorter.write(POOL, pool_created())
    rebuilt(tmp_path / "tables", shorter, "the log ends at 1")


def test_another_event_at_the_last_offset_is_built_anew(tmp_path: Path) -> None:
    """A restored log that went on differently has the same id and a larger end, but other events."""
    projected(tmp_path / "tables")
    other = ListLog()
    for event in (
        pool_created(),
        registered(),
        hello(),
        submitted("x1"),
        submitted("x2"),
        submitted("x3"),
        submitted("x4"),
    ):
        other.write(POOL, event)
    rebuilt(tmp_path / "tables", other, "the log holds another event at offset 5")


def test_another_number_of_partitions_is_built_anew(tmp_path: Path) -> None:
    """Positions of three partitions mean nothing in a log of five."""
    projected(tmp_path / "tables")
    other = ListLog(partitions=5)
    write_lives(other, seed=3, tasks=5)
    rebuilt(tmp_path / "tables", other, "5 partitions")


@pytest.mark.parametrize("goes_on", [False, True], ids=["it ends there", "it went on differently"])
def test_an_embedded_log_that_lost_its_tail_is_met(tmp_path: Path, goes_on: bool) -> None:
    """After a power cut without sync the tables may know more than the log: they are built anew from what is there."""
    source = ListLog(partitions=1)
    write_lives(source, seed=5, tasks=20)
    records = list(source.records())
    folder, half = tmp_path / "log", len(records) // 2

    def project(log: EmbeddedLog) -> tuple[str | None, str]:
        projector = Projector(log, tmp_path / "tables")
        projector.open()
        while any(here < end for here, end in projector.lag().values()):
            projector.step(0)
        why, tables = projector.status.rebuilt, Tables(tmp_path / "tables", log)
        digest = tables.digest()
        tables.close()
        projector.close()
        return why, digest

    def fill(log: EmbeddedLog, some: list[Record]) -> None:
        appended = threading.Semaphore(0)
        for record in some:
            log.append(Topic.EVENTS, record.key, record.value, record.headers, lambda *_: appended.release())
        for _ in some:
            assert appended.acquire(timeout=60)

    log = EmbeddedLog.open(folder, partitions=1)
    fill(log, records[:half])
    _, wanted = project(log)
    log.backup(tmp_path / "kept")
    fill(log, records[half:])
    assert project(log) != (None, wanted)
    log.close()

    log = EmbeddedLog.open(tmp_path / "kept")
    if goes_on:
        other = ListLog(partitions=1)
        for number in range(len(records)):
            other.write("hall-c", pool_created() if number == 0 else submitted(f"x{number}"))
        fill(log, list(other.records()))
    why, digest = project(log)
    log.close()
    assert why is not None
    assert ("the log holds another event" if goes_on else f"the log ends at {half}") in why
    assert (digest == wanted) is not goes_on


# ---- stopping with a sentence ----


def stops(world: World, match: str) -> None:
    """The next step raises ProjectionFault with this sentence."""
    with pytest.raises(ProjectionFault, match=match):
        world.catch_up()


def test_an_unknown_type_stops_it(world: World) -> None:
    """A newer version wrote something: the sentence names the record and what to do."""
    value = {"id": "x", "type": "StageCompleted.v1", "pool": POOL, "sequence": 4, "occurred_at": world.log.now}
    world.log.append(POOL, json.dumps(value).encode())
    stops(world, r"at events\[\d\] offset 3 is of the type StageCompleted.v1, which this version does not know: run")


@pytest.mark.parametrize("event", [pool_created(format=2), EVENT_TYPES["FormatRaised.v1"](from_format=1, to_format=2)])  # type: ignore[call-arg]
def test_a_higher_format_stops_it(world: World, event: Any) -> None:
    """A pool that is written in a newer format is not folded by an older version."""
    world.log.write(POOL, dataclasses.replace(event))
    stops(world, "Pool hall-a is written in format 2, this version knows 1")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (b"not json", r"offset 3 is not JSON"),
        (b"[1]", r"offset 3 is not an object"),
        (b'{"type":"TaskSubmitted.v1"}', r"offset 3 names no pool"),
        (b'{"type":"TaskAssigned.v1","pool":"hall-a","sequence":4}', r"not as its type TaskAssigned.v1 must be"),
        (b'{"type":"TaskSubmitted.v1","pool":"hall-a","sequence":6,"occurred_at":1}', "go from sequence 3 to 6"),
    ],
    ids=["text", "list", "no-pool", "lacking", "gap"],
)
def test_a_record_that_is_no_event_stops_it(world: World, value: bytes, match: str) -> None:
    """What cannot be folded is named; nothing is skipped in silence."""
    world.log.append(POOL, value)
    stops(world, match)


def test_a_corrupt_record_of_the_log_stops_it(world: World) -> None:
    """I5: the log says that a record is damaged; the tables stop at the last good event."""
    world.log.write(POOL, submitted("t1"))
    partition, row = next((p, rows[-1]) for p, rows in world.log.rows.items() if rows)
    world.log.corrupt.add((partition, row.offset))
    stops(world, "The log is damaged .*: restore it from a backup")


def test_what_comes_again_changes_nothing(world: World) -> None:
    """An event that was folded is known by its sequence, whatever offset it comes at."""
    world.write(submitted("t1"))
    digest = world.tables.digest()
    for rows in world.log.rows.values():
        for record in list(rows):
            world.log.append(POOL, record.value)
    world.catch_up()
    assert world.projector.status.repeated == 4
    assert world.tables.digest() == digest


# ---- ended tasks, running ----


def test_ended_tasks_leave_after_their_days_in_event_time(tmp_path: Path) -> None:
    """After `ended_days` of the pool's own time an ended task leaves; its history stays; open and held ones stay."""
    world = World(tmp_path, ended_days=2)
    world.write(submitted("done"), assigned("done"), leased("done"), completed("done"), submitted("open"))
    day = DAY_MS
    world.write(submitted("t1"), after_ms=2 * day - 10)
    assert world.ids() == ["done", "open", "t1"]
    world.write(submitted("t2"), after_ms=100)
    assert world.ids() == ["open", "t1", "t2"]
    assert world.tables.task(POOL, "done").value is None
    assert world.tables.result(POOL, "done").value is None
    assert world.tables.figures(POOL).value[0]["counts"] == {"WAITING": 3}
    assert [record.value for record in world.tables.history(POOL, "done").value] == [
        record.value for record in world.log.records() if b'"task":"done"' in record.value
    ]
    world.close()


def test_a_task_that_holds_something_does_not_leave(tmp_path: Path) -> None:
    """An ended task whose slot is still held stays until that ends, then leaves at once if its days are over."""
    world = World(tmp_path, ended_days=1)
    world.write(submitted("t1"), assigned("t1"), leased("t1"), expired("t1", "CANCELLED", held=True, policy="ask"))
    world.write(submitted("t2"), after_ms=3 * DAY_MS)
    assert world.robot()["used"] == 1
    assert world.ids() == ["t1", "t2"]
    world.write(e.HoldEnded(task="t1", attempt=1, robot="r1", why="stopped"))
    assert world.robot()["used"] == 0
    assert world.ids() == ["t2"]
    world.close()


@pytest.mark.parametrize("records_max", [1, 3, 64])
def test_leaving_does_not_depend_on_batches(tmp_path: Path, records_max: int) -> None:
    """A task that is long gone may be named or begun again within the batch in which it leaves."""
    log = ListLog()
    for event in (pool_created(), registered(), hello()):
        log.write(POOL, event)
    for number in range(12):
        task = f"t{number % 4}"
        for one in (submitted(task), assigned(task), leased(task), completed(task)):
            log.write(POOL, one)
        log.now += DAY_MS // 3
    assert replayed(log, tmp_path / "a", ended_days=1, records_max=records_max) == replayed(
        log, tmp_path / "b", ended_days=1, records_max=5
    )


class Away(ListLog):
    """A log that does not answer at first."""

    calls = 0

    def end(self, topic: Topic, partition: int) -> int:
        """Unavailable three times."""
        self.calls += 1
        if self.calls <= 3:
            raise LogUnavailable("no answer")
        return super().end(topic, partition)


def test_it_waits_for_a_log_that_is_away_and_ends_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is away at the start: no fault, it goes on when the log answers, and `stop` ends it."""
    monkeypatch.setattr("projections.projector.RETRY_S", 0.01)
    first = projected(tmp_path / "tables")
    away = Away(rows=first.rows, ends=first.ends, sequences=first.sequences, hashes=first.hashes)
    away.write(POOL, submitted("t2"))
    projector = Projector(away, tmp_path / "tables")
    thread = threading.Thread(target=projector.run)
    thread.start()
    deadline = threading.Event()
    for _ in range(6_000):
        if projector.status.events:
            break
        deadline.wait(0.01)
    projector.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert projector.status.events == 1
    assert away.calls > 3
    projector.close()


def seats(log: MemoryLog) -> Iterator[Seat]:
    """All seats of a memory log, taken over."""
    taken: list[Seat] = []
    log.own("p1", taken.append, lambda seat: None)
    for seat in taken:
        seat.take_over()
        seat.start()
    yield from taken


def test_on_the_memory_log_with_its_gaps(tmp_path: Path) -> None:
    """The same over the port: commits leave gaps in the offsets, positions reach the end all the same."""
    store = MemoryStore(partitions=2)
    log = MemoryLog(store)
    by_partition = {seat.partition: seat for seat in seats(log)}
    source = ListLog(partitions=2, log_id=log.log_id)
    write_lives(source, seed=4, tasks=20)
    for record in source.records():
        output = Output(Topic.EVENTS, record.key, record.value, record.headers)
        by_partition[record.partition].commit([output], 0, 0)
    projector = Projector(log, tmp_path / "memory", records_max=50)
    projector.open()
    for _ in range(10_000):
        if all(here >= end for here, end in projector.lag().values()):
            break
        projector.step(0.1)
    assert projector.status.events == sum(map(len, source.rows.values()))
    projector.close()
    again = Projector(log, tmp_path / "memory")
    again.open()
    assert again.status.rebuilds == 0
    assert all(here == end for here, end in again.lag().values())
    again.close()
