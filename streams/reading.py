"""Reading what lies in a part of a log, on any adapter."""

from collections.abc import Iterator
from typing import Final

from streams.port import LogReader, Record, Topic

RECORDS_AT_ONCE: Final = 2_000
POLL_S: Final = 1.0


def read_range(log: LogReader, topic: Topic, partition: int, start: int, end: int) -> Iterator[Record]:
    """The records from offset `start` to before `end`, in order. Raises LogFault."""
    if start >= end:
        return
    follower = log.follow(topic, {partition: start})
    try:
        while follower.positions()[partition] < end:
            yield from (record for record in follower.poll(RECORDS_AT_ONCE, POLL_S) if record.offset < end)
    finally:
        follower.close()
