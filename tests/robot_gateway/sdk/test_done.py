"""Whether a task was done already, asked of a real database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from robot_gateway.sdk import Done, DoneTable, FleetlogError
from robot_gateway.sdk.errors import NotJson

TABLE = DoneTable("ledger_done")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an account and the table of keys; made twice, as two robots would."""
    path = tmp_path / "ledger.db"
    with transaction(path) as database:
        database.execute("create table account (cents integer not null)")
        database.execute("insert into account values (0)")
    for _ in range(2):
        with transaction(path) as database:
            TABLE.create(database)
    return path


@contextmanager
def transaction(path: Path, **options: Any) -> Iterator[sqlite3.Connection]:
    """One transaction: committed at the end, rolled back by an exception."""
    with closing(sqlite3.connect(path, timeout=60, **options)) as database, database:
        yield database


def book(database: sqlite3.Connection, key: str, cents: int) -> Any:
    """An effect that is done once for a key."""
    before = TABLE.already(database, key)
    if before is not None:
        return before.result
    database.execute("update account set cents = cents + ?", (cents,))
    return TABLE.note(database, key, {"booked": cents})


def cents(path: Path) -> int:
    """What stands in the account."""
    with transaction(path) as database:
        return int(database.execute("select cents from account").fetchone()[0])


def test_what_was_done_is_not_done_again(path: Path) -> None:
    """The second attempt gets the first one's result; another task is another matter."""
    for key, amount in (("k1", 100), ("k1", 999), ("k2", 5)):
        with transaction(path) as database:
            assert book(database, key, amount) == {"booked": 5 if key == "k2" else 100}
    assert cents(path) == 105


def test_what_was_not_committed_was_not_done(path: Path) -> None:
    """An end before the commit takes effect and key back together."""
    with closing(sqlite3.connect(path)) as database:
        book(database, "k", 100)
    assert cents(path) == 0
    with transaction(path) as database:
        assert book(database, "k", 7) == {"booked": 7}
    assert cents(path) == 7


def test_two_attempts_at_once(path: Path) -> None:
    """The second waits until the first has committed, and sees that it was done."""
    answers: list[Any] = []

    def second() -> None:
        with transaction(path) as database:
            answers.append(book(database, "k", 100))

    thread = threading.Thread(target=second)
    with transaction(path) as database:
        book(database, "k", 1)
        thread.start()
        thread.join(0.2)
        assert answers == []
    thread.join(60)
    assert answers == [{"booked": 1}]
    assert cents(path) == 1


def test_a_result_of_nothing_is_not_a_task_to_be_done(path: Path) -> None:
    """Done with None, and done by whoever did not note anything."""
    with transaction(path) as database:
        assert TABLE.already(database, "noted") is None
        TABLE.note(database, "noted")
        assert TABLE.already(database, "not noted") is None
    with transaction(path) as database:
        assert TABLE.already(database, "noted") == TABLE.already(database, "not noted") == Done(None)


def test_a_connection_without_transactions_is_refused(path: Path) -> None:
    """A key that is committed before its effect would lose the effect; nothing is left of it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        with pytest.raises(FleetlogError, match="commits every statement by itself: begin a transaction first"):
            TABLE.already(database, "k")
        database.execute("begin")
        assert TABLE.already(database, "k") is None
        database.execute("rollback")


def test_what_cannot_be_right(path: Path) -> None:
    """Names that are no SQL names, marks, results that are not JSON, and notes that nobody asked for."""
    with pytest.raises(ValueError, match="cannot be the name of a table"):
        DoneTable("done; drop table account")
    with pytest.raises(ValueError, match="marks no value"):
        DoneTable(parameter=":key")
    with transaction(path) as database:
        with pytest.raises(FleetlogError, match="nothing was begun under k"):
            TABLE.note(database, "k", 1)
        TABLE.already(database, "k")
        with pytest.raises(NotJson):
            TABLE.note(database, "k", {1, 2})
