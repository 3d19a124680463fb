"""The chain check finds every change of an exported log, and exports hold the bytes as stored."""

import dataclasses
import random
from collections.abc import Callable, Iterable

import pytest

from commands.events import Event, decode_event
from commands.ids import chain_hash
from projections.audit import PROBLEMS_MAX, export_line, import_line, read_events, verify
from streams.port import Record, Topic
from tests.support.stored_events import ListLog, write_lives


@pytest.fixture(scope="module")
def log() -> ListLog:
    """A log of lives of two pools, with gaps between offsets."""
    log = ListLog(gap=2)
    write_lives(log, seed=13, tasks=60)
    return log


def test_a_good_log_verifies(log: ListLog) -> None:
    """All events, each pool's last sequence and hash."""
    report = verify(read_events(log))
    assert report.verified
    assert report.events == sum(map(len, log.rows.values()))
    assert {pool: head.sequence for pool, head in report.heads.items()} == log.sequences
    assert {pool: head.hash for pool, head in report.heads.items()} == log.hashes


def flipped(records: list[Record], at: int) -> list[Record]:
    """One bit of one value is changed."""
    value = bytearray(records[at].value)
    value[len(value) // 2] ^= 1
    return [*records[:at], dataclasses.replace(records[at], value=bytes(value)), *records[at + 1 :]]


def left_out(records: list[Record], at: int) -> list[Record]:
    """One event is missing."""
    return records[:at] + records[at + 1 :]


def twice(records: list[Record], at: int) -> list[Record]:
    """One event stands there twice."""
    return [*records[: at + 1], records[at], *records[at + 1 :]]


def exchanged(records: list[Record], at: int) -> list[Record]:
    """Two events changed places."""
    other = next(i for i in range(at + 1, len(records)) if records[i].key == records[at].key)
    changed = records.copy()
    changed[at], changed[other] = records[other], records[at]
    return changed


def without_hash(records: list[Record], at: int) -> list[Record]:
    """One event has lost its hash."""
    return [*records[:at], dataclasses.replace(records[at], headers=()), *records[at + 1 :]]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (flipped, "chain"),
        (left_out, "sequence"),
        (twice, "duplicate"),
        (exchanged, "sequence"),
        (without_hash, "chain"),
    ],
)
def test_every_change_is_found_where_it_is(
    log: ListLog, change: Callable[[list[Record], int], list[Record]], rule: str
) -> None:
    """Whatever is changed anywhere, the report says so and names the place."""
    records, rng = list(log.records()), random.Random(1)
    for at in rng.sample(range(1, len(records) - 5), 25):
        report = verify(change(records, at))
        assert not report.verified
        assert rule in {problem.rule for problem in report.problems}
        places = {(problem.partition, problem.offset) for problem in report.problems}
        near = [r for r in records[at:] if r.key == records[at].key][:2]
        assert places & {(record.partition, record.offset) for record in near}


def test_one_changed_event_is_one_broken_link(log: ListLog) -> None:
    """The hash after a changed event still fits the stored one before: the rest of the chain is not blamed."""
    records = list(log.records())
    report = verify(flipped(records, 40))
    assert [problem.rule for problem in report.problems].count("chain") == 1


def test_a_rewritten_tail_is_found_by_the_head(log: ListLog) -> None:
    """Somebody who rewrites events and all hashes behind them gets another head: that is what a seal keeps."""
    rows = [row for row in log.records() if row.key == "hall-a"]
    head, changed = verify(rows[:10]).heads["hall-a"].hash, rows[:10]
    for row in rows[10:]:
        value = row.value.replace(b'"weld"', b'"melt"')
        head = chain_hash(head, value)
        changed.append(dataclasses.replace(row, value=value, headers=(("hash", head),)))
    report = verify(changed)
    assert report.verified
    assert report.heads["hall-a"].hash != log.hashes["hall-a"]


def test_a_part_is_verified_from_a_known_head(log: ListLog) -> None:
    """From the heads of the first part on, the second part verifies; without them it does not."""
    records = list(log.records())
    first = verify(records[:50])
    assert verify(records[50:], heads=first.heads).verified
    assert not verify(records[50:]).verified


def test_other_things_that_must_not_be(log: ListLog) -> None:
    """A record that is no event, one under another pool's key, time that falls."""
    other = ListLog()
    write_lives(other, seed=1, tasks=2, pools=("hall-a",))
    other.append("hall-a", b"rubbish")
    other.append("hall-a", next(row.value for row in log.records() if row.key == "hall-b"))
    rules = {problem.rule: problem.text for problem in verify(other.records()).problems}
    assert "this record is no event" in rules["record"] or "has the key" in rules["record"]
    falling = ListLog()
    write_lives(falling, seed=1, tasks=2, pools=("hall-a",))
    falling.now -= 1_000_000
    write_lives(falling, seed=2, tasks=1, pools=("hall-a",))
    assert {problem.rule for problem in verify(falling.records()).problems} == {"time"}


def test_a_report_is_bounded(log: ListLog) -> None:
    """However much is wrong, the report names the first problems and counts the rest."""
    report = verify(dataclasses.replace(record, headers=()) for record in log.records())
    assert report.wrong >= report.events > PROBLEMS_MAX
    assert len(report.problems) == PROBLEMS_MAX


class OnlyWelding:
    """A further check, as the invariants are: every submitted task is of the kind weld."""

    def __init__(self) -> None:
        self.events = 0

    def see(self, record: Record, event: Event) -> Iterable[str]:
        """Looks at submissions."""
        self.events += 1
        if event.name == "TaskSubmitted" and getattr(event, "kind", "weld") != "weld":
            yield f"task {getattr(event, 'task', '')} is not welding"

    def end(self) -> Iterable[str]:
        """Says how many it saw."""
        yield f"{self.events} events seen"


def test_further_checks_are_run_with_it(log: ListLog) -> None:
    """Every event is decoded once for all checks; their sentences are problems with the event's place."""
    report = verify(log.records(), [OnlyWelding()])
    found = [problem for problem in report.problems if problem.rule == "invariant"]
    assert found[0].text.endswith("is not welding")
    assert found[0].offset is not None
    assert report.wrong == 1 + sum(
        decode_event(row.value).name == "TaskSubmitted" and b'"kind":"weld"' not in row.value for row in log.records()
    )


def test_exports_hold_the_bytes_as_stored(log: ListLog) -> None:
    """Each line is JSON, gives the same record again, and the export alone verifies."""
    lines = [export_line(record) for record in log.records()]
    again = [import_line(line) for line in lines]
    assert [(r.partition, r.offset, r.key, r.value, r.appended_at) for r in again] == [
        (r.partition, r.offset, r.key, r.value, r.appended_at) for r in log.records()
    ]
    assert verify(again).verified
    odd = [b'{"a":1,\n"event":2}', b"\xff\x00", b"", b'{"event":{"x":",\\"event\\":"}}']
    for value in odd:
        record = Record(Topic.EVENTS, 1, 7, "hall-a", value, (("type", b"x"), ("hash", b"\1" * 32)), 5)
        line = export_line(record)
        assert line.count(b"\n") == 1
        assert import_line(line) == record
    for line in (b"", b"{}", b'{"pool":"a","event":{}}', b"\xff", lines[0][3:]):
        with pytest.raises(ValueError, match="not one of an export"):
            import_line(line)
