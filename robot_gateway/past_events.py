"""Events that lie in the log, read a page at a time: partition by partition, each in its order, with a bounded scan."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json

from streams.port import LogReader, Record, Topic

SCANNED_MAX: Final = 20_000
SCAN_S: Final = 2.0
POLL_MAX: Final = 1000
POLL_S: Final = 0.2
CLOCKS_DIFFER_MS: Final = 120_000
"""Pools of one partition may differ in time by up to a minute, and steps of a clock come on top."""


@dataclass(slots=True)
class Page:
    """Events as stored, and where to go on: partition -> next offset (empty: nothing is left up to the ends)."""

    items: list[bytes]
    rest: dict[int, int]


def read_page(
    log: LogReader,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    limit: int,
    wanted: Callable[[Record], bytes | None],
) -> Page:
    """Up to `limit` events below `ends`. Blocks for about two seconds at most; raises LogFault."""
    page = Page([], {p: start for p, start in sorted(starts.items()) if start < ends.get(p, 0)})
    give_up = time.monotonic() + SCAN_S
    scanned = 0
    for partition in list(page.rest):
        for record in _records(log, partition, page.rest[partition], ends[partition], give_up):
            scanned += 1
            value = wanted(record)
            if value is not None:
                page.items.append(value)
            page.rest[partition] = record.offset + 1
            if len(page.items) >= limit or scanned >= SCANNED_MAX:
                return page
        if time.monotonic() > give_up:
            return page
        del page.rest[partition]
    return page


def _records(log: LogReader, partition: int, start: int, end: int, give_up: float) -> Iterator[Record]:
    """Records from `start` to below `end`, until `give_up` (`time.monotonic`)."""
    follower = log.follow(Topic.EVENTS, {partition: start})
    try:
        while follower.positions()[partition] < end and time.monotonic() <= give_up:
            for record in follower.poll(POLL_MAX, POLL_S):
                if record.offset >= end:
                    return
                yield record
    finally:
        follower.close()


def first_offset_at(log: LogReader, partition: int, instant: int) -> int:
    """An offset of `events` below which nothing occurred at or after `instant` (ms), found by halving.

    Events of a partition are nearly in order of time, so the search looks for a little earlier.
    """
    low, high = log.beginning(Topic.EVENTS, partition), log.end(Topic.EVENTS, partition)
    sought = instant - CLOCKS_DIFFER_MS
    while low < high:
        middle = (low + high) // 2
        record = _next_record(log, partition, middle, high)
        if record is None or occurred_at(record) >= sought:
            high = middle
        else:
            low = record.offset + 1
    return low


def _next_record(log: LogReader, partition: int, start: int, end: int) -> Record | None:
    follower = log.follow(Topic.EVENTS, {partition: start})
    try:
        give_up = time.monotonic() + SCAN_S
        while follower.positions()[partition] < end and time.monotonic() <= give_up:
            records = follower.poll(1, POLL_S)
            if records:
                return records[0] if records[0].offset < end else None
        return None
    finally:
        follower.close()


def occurred_at(record: Record) -> int:
    """When the event in a record occurred (ms); 0 where it cannot be read."""
    try:
        found = from_json(record.value)["occurred_at"]
    except (ValueError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) else 0
