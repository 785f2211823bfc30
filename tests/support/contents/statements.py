"""Runs statements on a MessageBox."""

from __future__ import annotations

from typing import Any, LiteralString, TypeVar

from psycopg import sql
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection
from tests.support.contents.counts import TABLES, Countable

_T = TypeVar("_T")


class Statements:
    """Runs statements over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def one(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        row = self.connection.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def count_rows(self, table: str) -> int:
        """Count the rows of a table. Only for tests of SQL objects."""
        return int(self.one(f"SELECT count(*) FROM {table}"))

    def add_trigger(self, name: LiteralString, what: Countable, moment: LiteralString, function: LiteralString) -> None:
        """Call a function at a moment, such as ``AFTER INSERT``, of each statement."""
        trigger = sql.SQL("CREATE TRIGGER {} {} ON {} EXECUTE FUNCTION {}")
        parts = (name, moment, TABLES[what], function)
        self.connection.execute(trigger.format(*map(sql.SQL, parts)))

    def _read(self, kind: type[_T], query: LiteralString, *parameters: object) -> list[_T]:
        with self.connection.cursor(row_factory=class_row(kind)) as cursor:
            return cursor.execute(query, parameters).fetchall()

    def _set(self, table: LiteralString, name: str | None, values: dict[str, Any]) -> None:
        """Change columns of the row of that name or of all rows. A dictionary or a list is stored as JSON."""
        columns = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values)
        stored = [Jsonb(value) if isinstance(value, dict | list) else value for value in values.values()]
        where = sql.SQL(" WHERE name = coalesce(%s, name)")
        statement = sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), columns) + where
        self.connection.execute(statement, (*stored, name))
