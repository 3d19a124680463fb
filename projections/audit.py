"""Proof from the log alone: each pool's chain of hashes, its sequences without a gap, no event twice.

`fleetlog audit verify` calls `verify` with the invariants of the state machine as further `checks`, so that every
event is read and decoded once. An export verifies by itself: it holds the bytes as stored and their hashes.
"""

import json
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any, Final, Protocol

from pydantic_core import from_json

from commands.events import Event, decode_event
from commands.ids import ZERO_HASH, chain_hash
from streams.port import LogReader, Record, Topic
from streams.reading import read_range

PROBLEMS_MAX: Final = 100
"""Problems that a report names; the others are counted."""
_BUCKETS: Final = 256
_BUCKET_BYTES: Final = 64 << 10
_ENTRY_BYTES: Final = 16 + 4 + 8
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")


class Check(Protocol):
    """A further rule that a log is held against; the checker of the invariants is one."""

    def see(self, record: Record, event: Event) -> Iterable[str]:
        """Looks at the next event of its pool; sentences about what is wrong with it."""

    def end(self) -> Iterable[str]:
        """Sentences about what is wrong with the whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and where. `rule`: record, chain, sequence, time, duplicate, or invariant."""

    rule: str
    text: str
    pool: str | None = None
    sequence: int | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class Head:
    """The last event of a pool: sequence, chain hash (32 bytes) and instant. `events` were looked at."""

    sequence: int = 0
    hash: bytes = ZERO_HASH
    occurred_at: int = 0
    events: int = 0


@dataclass(slots=True)
class AuditReport:
    """What `verify` found. `problems` are the first PROBLEMS_MAX of `wrong`."""

    events: int = 0
    wrong: int = 0
    problems: list[Problem] = field(default_factory=list)
    heads: dict[str, Head] = field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether nothing is wrong."""
        return self.wrong == 0

    def add(self, problem: Problem) -> None:
        """One thing more is wrong."""
        self.wrong += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def verify(
    records: Iterable[Record], checks: Sequence[Check] = (), heads: Mapping[str, Head] | None = None
) -> AuditReport:
    """Holds events, in the order of each pool, against the rules of the chain and further `checks`.

    `heads`: where pools stand before the first record, for a part of a log; without it each must begin at its first
    event. Memory is bounded: ids are kept in temporary files beyond some megabytes.
    """
    report = AuditReport(heads={pool: Head(h.sequence, h.hash, h.occurred_at) for pool, h in (heads or {}).items()})
    with ExitStack() as stack:
        seen = _SeenIds(stack)
        for record in records:
            report.events += 1
            event = _look(record, report)
            if event is None:
                continue
            seen.add(event.id, record)
            for check in checks:
                for sentence in check.see(record, event):
                    report.add(_problem("invariant", sentence, record, event.sequence))
        for problem in seen.twice():
            report.add(problem)
    for check in checks:
        for sentence in check.end():
            report.add(Problem("invariant", sentence))
    return report


def _look(record: Record, report: AuditReport) -> Event | None:
    """The chain by the stored bytes, then what the event says of itself; None where it is none."""
    head = report.heads.setdefault(record.key, Head())
    head.events += 1
    expected, stored = chain_hash(head.hash, record.value), record.header("hash")
    if stored != expected:
        said = "has no hash" if stored is None else "does not follow from the event before it and its own bytes"
        report.add(_problem("chain", f"the hash of this event {said}" if stored else f"this event {said}", record))
    # Go on from what is stored, so that one change is one problem and not one for every event behind it.
    head.hash = stored if stored is not None and len(stored) == 32 else expected
    try:
        event = decode_event(record.value)
    except ValueError as error:
        report.add(_problem("record", f"this record is no event: {_first_line(error)}", record))
        head.sequence += 1
        return None
    _compare(record, event, head, report)
    head.sequence, head.occurred_at = event.sequence, max(head.occurred_at, event.occurred_at)
    return event


def _compare(record: Record, event: Event, head: Head, report: AuditReport) -> None:
    if event.pool != record.key:
        text = f"this event of pool {event.pool} has the key {record.key}"
        report.add(_problem("record", text, record, event.sequence))
    if event.sequence != head.sequence + 1:
        text = f"sequence {event.sequence} comes after {head.sequence}"
        report.add(_problem("sequence", text, record, event.sequence))
    if event.occurred_at < head.occurred_at:
        text = f"this event occurred {head.occurred_at - event.occurred_at} ms before the one before it"
        report.add(_problem("time", text, record, event.sequence))


def _problem(rule: str, text: str, record: Record, sequence: int | None = None) -> Problem:
    return Problem(rule, text, record.key, sequence, record.partition, record.offset)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return ", ".join(line.strip() for line in lines[1:3]) or lines[0]


class _SeenIds:
    """Event ids and where they were, in files by their first byte: any number in bounded memory."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._buckets: dict[int, IO[bytes]] = {}

    def add(self, event_id: str, record: Record) -> None:
        """Remembers the id of an event."""
        known = bytes.fromhex(event_id.replace("-", "")) if _UUID.match(event_id) else event_id.encode()[:16].ljust(16)
        bucket = self._buckets.get(known[0])
        if bucket is None:
            spooled = tempfile.SpooledTemporaryFile(max_size=_BUCKET_BYTES)  # noqa: SIM115 (closed by the stack)
            bucket = self._buckets[known[0]] = self._stack.enter_context(spooled)
        bucket.write(known + record.partition.to_bytes(4, "big") + record.offset.to_bytes(8, "big"))

    def twice(self) -> Iterator[Problem]:
        """Each second occurrence of an id."""
        for bucket in self._buckets.values():
            bucket.seek(0)
            content = bucket.read()
            first: dict[bytes, bytes] = {}
            for at in range(0, len(content), _ENTRY_BYTES):
                known, place = content[at : at + 16], content[at + 16 : at + _ENTRY_BYTES]
                former = first.setdefault(known, place)
                if former is not place:
                    yield _twice(known, former, place)


def _twice(known: bytes, former: bytes, place: bytes) -> Problem:
    partition, offset = int.from_bytes(place[:4], "big"), int.from_bytes(place[4:], "big")
    before = f"partition {int.from_bytes(former[:4], 'big')} offset {int.from_bytes(former[4:], 'big')}"
    return Problem("duplicate", f"event id {known.hex()} was used before, at {before}", None, None, partition, offset)


# ---- reading and exporting ----


def read_events(log: LogReader, partitions: Iterable[int] | None = None) -> Iterator[Record]:
    """All events of these partitions (None: all) up to the end that the log has now, one partition after the other.

    Raises LogFault.
    """
    for partition in range(log.partitions) if partitions is None else partitions:
        end = log.end(Topic.EVENTS, partition)
        yield from read_range(log, Topic.EVENTS, partition, log.beginning(Topic.EVENTS, partition), end)


def export_line(record: Record) -> bytes:
    """One record as a line of JSON whose last field, `event`, is the value byte for byte as stored.

    A value that is not one line of JSON (nothing that Fleetlog writes) stands as base64 in `raw` instead.
    """
    headers = {name: b64encode(value).decode("ascii") for name, value in record.headers if name != "hash"}
    head: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "appended_at": record.appended_at,
        "pool": record.key,
        "hash": (record.header("hash") or b"").hex(),
        "headers": headers,
    }
    if _is_one_line(record.value):
        return json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"event":' + record.value + b"}\n"
    return json.dumps(head | {"raw": b64encode(record.value).decode("ascii")}, separators=(",", ":")).encode() + b"\n"


def _is_one_line(value: bytes) -> bool:
    try:
        return b"\n" not in value and b"\r" not in value and isinstance(from_json(value), dict)
    except ValueError:
        return False


def import_line(line: bytes) -> Record:
    """The record that `export_line` wrote. Raises ValueError with a sentence where the line is none."""
    try:
        head_bytes, marked, rest = line.rstrip(b"\r\n").partition(b',"event":')
        head = json.loads(head_bytes + b"}" if marked else head_bytes)
        value = rest[:-1] if marked else b64decode(head["raw"], validate=True)
        headers = tuple((name, b64decode(text, validate=True)) for name, text in head["headers"].items())
        digest = (("hash", bytes.fromhex(head["hash"])),) if head["hash"] else ()
        return Record(
            Topic.EVENTS,
            int(head["partition"]),
            int(head["offset"]),
            str(head["pool"]),
            value,
            headers + digest,
            int(head["appended_at"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this line is not one of an export of Fleetlog's events ({error})") from error
