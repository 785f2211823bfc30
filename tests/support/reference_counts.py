"""The tables of messages and of their reference counts, and how many rows these have."""

from __future__ import annotations

from tests.support.box import Box

STORED = ("spool", "parts", "fragments")
COUNTS = (
    "message_ref_count_log_1",
    "message_ref_count_log_2",
    "part_ref_count_log_1",
    "part_ref_count_log_2",
    "message_ref_count_log_totals",
    "part_ref_count_log_totals",
    "message_zero_sum",
    "part_zero_sum",
)


def count_rows(box: Box, *tables: str) -> dict[str, int]:
    """Return the number of rows of each table that is not empty."""
    counts = {table: box.count_rows(table) for table in tables}
    return {table: rows for table, rows in counts.items() if rows}
