"""Jobs work on tables that are filled and emptied all the time, so their statistics are always wrong."""

from __future__ import annotations

import pytest

from tests.support.box import Box
from tests.support.plans import reads

MANY = 20_000
KINDS = [("message", "spool", "message_cleanup"), ("part", "parts", "parts_cleanup")]

_MESSAGES = """
    WITH m AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, %(count)s)),
         s AS (INSERT INTO spool (message_id, part_ids, context) SELECT id, ARRAY[id], '{}' FROM m),
         p AS (INSERT INTO parts SELECT id, 'body', 'text/plain', NULL, 1, 'x' FROM m),
         l AS (INSERT INTO message_ref_count_log_1 SELECT id, %(delta)s FROM m)
    INSERT INTO part_ref_count_log_1 SELECT id, %(delta)s FROM m
"""


@pytest.fixture
def stale_box(box: Box) -> Box:
    """Return a box with statistics of an empty box, 20,000 released messages and 20,000 referenced messages."""
    execute = box.connection.execute
    for table in ("spool", "parts", "fragments"):
        execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    for kind, table in ((kind, table) for kind, _, _ in KINDS for table in ("ref_count_log_totals", "zero_sum")):
        execute(f"ALTER TABLE {kind}_{table} SET (autovacuum_enabled = off)")
    execute("VACUUM ANALYZE")
    execute(_MESSAGES, {"count": MANY, "delta": 1})
    for kind, _, _ in KINDS:
        box.one("SELECT fold_ref_count_log(%s, 1::smallint)", kind)
    for kind, _, _ in KINDS:
        execute(f"INSERT INTO {kind}_ref_count_log_1 SELECT {kind}_id, -1, counted_in FROM {kind}_ref_count_log_totals")
    execute(_MESSAGES, {"count": MANY, "delta": 1})
    return box


def test_a_fold_looks_up_the_totals_and_reads_its_log_once(stale_box: Box) -> None:
    for kind, _, _ in KINDS:
        with stale_box.connection.transaction(), reads(stale_box.connection) as read:
            assert stale_box.one("SELECT fold_ref_count_log(%s, 1::smallint)", kind) == 2 * MANY
        assert read.whole(f"{kind}_ref_count_log_1") == 1
        assert read.whole(f"{kind}_ref_count_log_totals", f"{kind}_zero_sum") == 0


def test_a_cleanup_reads_each_log_once_and_looks_up_the_rest(stale_box: Box) -> None:
    for kind, table, cleanup in KINDS:
        stale_box.one("SELECT fold_ref_count_log(%s, 1::smallint)", kind)
        # Log a new reference to every referenced message, and to one released message.
        stale_box.connection.execute(
            f"INSERT INTO {kind}_ref_count_log_2 SELECT {kind}_id, 1 FROM {kind}_ref_count_log_totals WHERE total <> 0"
            f" UNION ALL (SELECT {kind}_id, 1 FROM {kind}_zero_sum LIMIT 1)"
        )
        with stale_box.connection.transaction(), reads(stale_box.connection) as read:
            assert stale_box.one(f"SELECT {cleanup}(%s)", MANY) == MANY - 1
        assert read.whole(f"{kind}_ref_count_log_1") <= 1
        assert read.whole(f"{kind}_ref_count_log_2") <= 1
        assert read.whole(table, f"{kind}_ref_count_log_totals", f"{kind}_zero_sum") == 0
