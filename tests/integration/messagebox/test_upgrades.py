"""A MessageBox of an earlier version is brought to this one."""

from __future__ import annotations

import json
import uuid

from postroom.agent.receiving import read_progress
from postroom.messagebox.migrate import is_current, migrate
from tests.support.box import Box


def test_a_function_that_returns_more_by_now_is_made_anew(box: Box) -> None:
    """And the receipts of then count: they have always said how many documents are bad."""
    unit = uuid.uuid4()
    for chunk, outcome in enumerate(({"last": 4, "done": False, "bad": 2}, {"last": 9, "done": False, "bad": 3})):
        box.connection.execute(
            "INSERT INTO receipts (unit, chunk, outcome) VALUES (%s, %s, %s)", (unit, chunk, json.dumps(outcome))
        )
    box.connection.execute("DROP FUNCTION read_receipts(uuid[])")
    box.connection.execute(
        "CREATE FUNCTION messagebox.read_receipts(p_units uuid[])"
        " RETURNS TABLE (unit uuid, last_chunk integer, last_document bigint, done boolean, outcome jsonb)"
        " LANGUAGE sql AS 'SELECT unit, 1, 9::bigint, false, outcome FROM messagebox.receipts'"
    )
    box.connection.execute("DELETE FROM schema_version WHERE name LIKE '%bad_in_receipts'")
    box.connection.execute("UPDATE schema_version SET procedures = NULL")
    assert not is_current(box.connection)
    migrate(box.url)
    assert is_current(box.connection)
    progress = read_progress(box.connection, [unit])[unit]
    assert (progress.next_chunk, progress.last_document, progress.bad, progress.done) == (2, 9, 5, False)
