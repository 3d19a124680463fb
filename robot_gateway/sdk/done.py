"""Whether a task was done already: its idempotency key beside its effect, in the same database and transaction."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from robot_gateway.sdk.errors import FleetlogError
from robot_gateway.sdk.wire import encode_json

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


class Cursor(Protocol):
    """What is used of a cursor of Python's DB-API 2."""

    rowcount: int

    def execute(self, statement: str, values: tuple[Any, ...] = ..., /) -> Any:
        """Does one statement."""

    def fetchone(self) -> Any:
        """One row, or None."""

    def close(self) -> None:
        """Frees it."""


class Connection(Protocol):
    """What is used of a connection of Python's DB-API 2: sqlite3, psycopg and others."""

    def cursor(self) -> Any:
        """A cursor."""


@dataclass(frozen=True, slots=True)
class Done:
    """The task was done before. `result`: what was noted then."""

    result: Any


class DoneTable:
    """A table of idempotency keys in the database that holds the effects. `parameter` is how its driver marks values in
    statements ("?": sqlite3, "%s": psycopg). Needs `on conflict do nothing`: SQLite, PostgreSQL and what speaks alike.

    Raises ValueError for a name that is no plain SQL name.
    """

    def __init__(self, name: str = "fleetlog_done", parameter: str = "?") -> None:
        if not _NAME.match(name):
            raise ValueError(f"{name!r} cannot be the name of a table here: use letters, digits and _ (up to 63)")
        if parameter not in ("?", "%s"):
            raise ValueError(f"{parameter!r} marks no value in a statement: use ? or %s")
        self._name, self._parameter = name, parameter

    def create(self, connection: Connection) -> None:
        """Make the table where it is not there yet."""
        self._do(
            connection,
            f"create table if not exists {self._name} (key varchar(64) primary key, result text, "
            "at timestamp not null default current_timestamp)",
        )

    def already(self, connection: Connection, key: str) -> Done | None:
        """Whether a task with this idempotency key was done; None: it is this transaction's to do.

        Ask it first in the transaction of the effect. Another attempt that asks meanwhile waits for the end of that
        transaction: whether it is committed decides. Raises FleetlogError where the connection commits every statement
        by itself.
        """
        insert = f"insert into {self._name} (key) values ({self._parameter}) on conflict (key) do nothing"  # noqa: S608
        if self._do(connection, insert, key) == 1:
            self._require_transaction(connection, key)
            return None
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"select result from {self._name} where key = {self._parameter}", (key,))  # noqa: S608
            row = cursor.fetchone()
        return Done(None if row is None or row[0] is None else json.loads(row[0]))

    def note(self, connection: Connection, key: str, result: Any = None) -> Any:
        """Note what came of it (JSON), for whoever asks later; returns it. Commit afterwards.

        Raises FleetlogError where `already` was not asked in this transaction, NotJson.
        """
        update = f"update {self._name} set result = {self._parameter} where key = {self._parameter}"  # noqa: S608
        if self._do(connection, update, encode_json(result).decode(), key) != 1:
            raise FleetlogError(f"nothing was begun under {key}: ask `already` first, in the same transaction")
        return result

    def _require_transaction(self, connection: Connection, key: str) -> None:
        if getattr(connection, "in_transaction", True):
            return
        self._do(connection, f"delete from {self._name} where key = {self._parameter}", key)  # noqa: S608
        raise FleetlogError("this connection commits every statement by itself: begin a transaction first")

    @staticmethod
    def _do(connection: Connection, statement: str, *values: str) -> int:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement, values)
            return int(cursor.rowcount)
