"""The splits of bulk files: which are started, and how many rows of a file are published."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import NamedTuple

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.statements import statement


class UnfinishedFile(NamedTuple):
    """The progress of a bulk file that is not finished."""

    file: uuid.UUID
    size: int
    rows: int
    bad: int
    bytes_done: int


def start_split(connection: Connection, unit_id: uuid.UUID, file: uuid.UUID, *, start: int, length: int) -> bool:
    """Record that a task publishes the rows of a split. Return False if the file must not be
    read any more."""
    return bool(read_value(connection, "SELECT start_split(%s, %s, %s, %s)", unit_id, file, start, length))


def read_row_counts(connection: Connection, files: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[int, int]]:
    """Return the number of rows that are published, and of bad rows, of each file that has some."""
    found = connection.execute("SELECT interchange_id, row_count, bad_rows FROM split_progress(%s)", (list(files),))
    return {file: (rows, bad) for file, rows, bad in found}


def read_unfinished_files(connection: Connection, location_id: uuid.UUID) -> list[UnfinishedFile]:
    """Return the progress of the claimed files of a bulk location."""
    rows = connection.execute(statement("queries/bulk_progress"), (location_id, location_id)).fetchall()
    return [UnfinishedFile(*row) for row in rows]
