"""How much waits in a test's MessageBox, without the rows."""

from __future__ import annotations

from tests.support.box import Box


def set_load(box: Box, *, queued: int = 0, spooled: int = 0) -> None:
    """What everybody is told for the rest of the test: nothing is measured any more."""
    box.connection.execute("UPDATE load SET queued = %s, spooled = %s, measured_at = 'infinity'", (queued, spooled))
