"""The invariants that `fleetlog audit verify` holds a log against, beside chain, sequences and ids."""

from collections.abc import Iterable
from typing import Final

from commands.checker import Checker
from commands.events import Event
from streams.port import Record

SAID_BY_THE_CHAIN: Final = frozenset({"malformed", "pool", "sequence", "chain", "time", "id twice"})
"""Rules that `projections.audit.verify` has said already, with partition and offset."""


class Invariants:
    """A `Check` of the audit: one checker for each pool."""

    def __init__(self) -> None:
        self._checkers: dict[str, Checker] = {}

    def see(self, record: Record, event: Event) -> Iterable[str]:
        """What is wrong with the next event of its pool."""
        checker = self._checkers.get(record.key)
        if checker is None:
            checker = self._checkers[record.key] = Checker(record.key)
        found = checker.event(record.value)
        return [f"{one.rule}: {one.text}" for one in found if one.rule not in SAID_BY_THE_CHAIN] if found else ()

    def end(self) -> Iterable[str]:
        """What is wrong with the end of the log."""
        for pool, checker in self._checkers.items():
            yield from (f"{pool}: {one.rule}: {one.text}" for one in checker.finish())
