"""A claim takes messages of all services, or skips excluded services."""

from __future__ import annotations

import uuid

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region

QUEUES = HostQueues("Default")


def test_a_claim_skips_the_messages_of_excluded_services(box: Box) -> None:
    for name in ("EU", "US"):
        box.add_port(name, f"Orders.Region == '{name}'")
    box.agent().publish([Message.of(b"x", promoted={Region: region}) for region in ("EU", "EU", "US", "EU")])
    eu, us = (box.one("SELECT id FROM send_ports WHERE name = %s", name).bytes for name in ("EU", "US"))
    # A row without a service is never skipped.
    box.connection.execute("UPDATE work_queue SET service_id = NULL WHERE seq = (SELECT max(seq) FROM work_queue)")

    def claim(*excluded: bytes) -> list[bytes | None]:
        claim_id = uuid.uuid4()
        rows = QUEUES.dequeue(
            box.connection,
            claim_id=claim_id,
            host_instance=1,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            limit=10,
            excluded=excluded,
        )
        QUEUES.release(box.connection, claim_id)
        return [row.service for row in rows]

    assert claim() == [eu, eu, us, None]
    assert claim(eu) == [us, None]
    assert claim(eu, us) == [None]
