"""Simulate the load of a MessageBox without queue rows."""

from __future__ import annotations

from tests.support.box import Box


def set_load(box: Box, *, queued: int = 0, spooled: int = 0) -> None:
    """Store a load that is not measured again until the end of the test."""
    box.connection.execute("UPDATE load SET queued = %s, spooled = %s, measured_at = 'infinity'", (queued, spooled))
