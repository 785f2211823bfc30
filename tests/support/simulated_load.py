"""Simulate the load of a MessageBox without queue rows."""

from __future__ import annotations

from postroom.messagebox.connection import Connection
from tests.support.box import Box

_FIXED_LOAD = """
CREATE OR REPLACE FUNCTION messagebox.current_load(
    p_max_age interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queued bigint, spooled bigint, measured_at timestamptz, suspended jsonb)
LANGUAGE sql AS 'SELECT {queued}::bigint, {spooled}::bigint, p_now, jsonb_build_object()'
"""


def set_load(box: Box, *, queued: int = 0, spooled: int = 0) -> None:
    """Fix the load until the end of the test."""
    fix_load(box.connection, queued=queued, spooled=spooled)


def fix_load(connection: Connection, *, queued: int = 0, spooled: int = 0) -> None:
    """Replace the function that measures the load."""
    connection.execute(_FIXED_LOAD.format(queued=queued, spooled=spooled).encode())
