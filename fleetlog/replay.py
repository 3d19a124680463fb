"""The state of a log as of an earlier moment: the projector's own rules over scratch tables."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pydantic_core import from_json

from fleetlog.when import instant
from projections.fold import Fold
from projections.hot_cards import HotCards
from projections.queries import Tables
from projections.store import Folder
from robot_gateway.wire import instant_ms
from streams.port import Record

AT_ONCE: Final = 4_096
FOR_EVER_MS: Final = 1 << 60
_SEQUENCE: Final = re.compile(r"#?(\d+)\Z")

Within = Callable[[Record], bool]


def until(text: str) -> Within:
    """Whether an event had happened by then: an instant, a span back (`2h`), or a sequence (`#17`). Raises Problem."""
    sequence = _SEQUENCE.match(text)
    if sequence is not None:
        number = int(sequence[1])
        return lambda record: int(from_json(record.value)["sequence"]) <= number
    last_ms = instant_ms(instant(text, "WHEN", back=True))
    return lambda record: int(from_json(record.value)["occurred_at"]) <= last_ms


@contextmanager
def tables_of(records: Iterable[Record], clock_ms: int | None = None) -> Iterator[Tables]:
    """Tables of these events, in a folder that is removed afterwards. Raises ProjectionFault, StoreFault."""
    with TemporaryDirectory(prefix="fleetlog-replay-") as scratch:
        folder = Folder(Path(scratch))
        store = folder.begin("replay", 1)
        try:
            cards = HotCards(store, FOR_EVER_MS)
            fold = Fold(cards)
            iterator = iter(records)
            while part := list(islice(iterator, AT_ONCE)):
                fold.fold(part)
                cards.commit({})
        finally:
            store.close()
        tables = Tables(Path(scratch)) if clock_ms is None else Tables(Path(scratch), clock=lambda: clock_ms)
        try:
            yield tables
        finally:
            tables.close()
