"""Reads ranges of the MessageBox as tables, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.statements import statement

#: A condition on the columns of a table, and its values.
Condition = tuple[str, list[Any]]


def build_history_query(
    table: str, columns: Sequence[str], conditions: Sequence[Condition], *, max_body: int, limit: str = ""
) -> tuple[str, list[Any]]:
    """Return the query for some columns of a table, and its parameters. Bodies are cut off at ``max_body`` bytes."""
    source = statement(f"queries/history_{table}")
    parameters: list[Any] = []
    if "%(max_body)s" in source:
        source = source.replace("%(max_body)s", "%s")
        parameters.append(max_body)
    where = f" WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
    parameters += [value for _, values in conditions for value in values]
    return f"SELECT {', '.join(columns)} FROM ({source}) AS found{where} {limit}", parameters


def count_spool_pages(connection: Connection) -> int:
    """Return the size of the spool in pages."""
    size = "SELECT pg_relation_size('messagebox.spool') / current_setting('block_size')::bigint"
    return int(read_value(connection, size))


def read_queue_range(connection: Connection) -> tuple[int, int, int]:
    """Return the lowest and the highest number in the queues, and the number of rows. Of empty queues return zeros."""
    row = connection.execute("SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM instances").fetchone()
    assert row is not None
    first, last, rows = row
    return first, last, rows
