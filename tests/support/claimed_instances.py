"""Claimed instances of orchestrations, for tests without a MessageBox."""

from __future__ import annotations

import uuid

from postroom.messagebox.orchestration_instances import ClaimedInstance


def claim() -> ClaimedInstance:
    """Return a claimed instance without a journal."""
    return ClaimedInstance(
        claim_id=uuid.uuid4(),
        instance_id=uuid.uuid4(),
        service_id=uuid.uuid4(),
        journal_length=0,
        journals=0,
        carried=None,
        timers_until=None,
    )
