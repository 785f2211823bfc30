"""Simulate the load of a MessageBox without queue rows."""

from __future__ import annotations

from postroom.messagebox.connection import Connection
from tests.support.box import Box

_FIXED_LOAD = """
CREATE OR REPLACE FUNCTION messagebox.current_load(
    p_max_age interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queued bigint, spooled bigint, measured_at timestamptz, suspended jsonb,
               incoming bigint, outgoing bigint, sessions bigint)
LANGUAGE sql AS 'SELECT {queued}::bigint, {spooled}::bigint, p_now, jsonb_build_object(),
                        {incoming}::bigint, {outgoing}::bigint, {sessions}::bigint'
"""


def set_load(box: Box, **load: int) -> None:
    """Fix the load until the end of the test. What is not given is 0."""
    fix_load(box.connection, **load)


def fix_load(connection: Connection, **load: int) -> None:
    """Replace the function that measures the load."""
    values = dict.fromkeys(("queued", "spooled", "incoming", "outgoing", "sessions"), 0) | load
    connection.execute(_FIXED_LOAD.format(**values).encode())
