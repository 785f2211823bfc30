"""The outcomes of several claims are stored by one statement."""

from __future__ import annotations

import uuid

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region

QUEUES = HostQueues("Default")


def claim(box: Box, limit: int) -> tuple[uuid.UUID, list[int]]:
    claim_id = uuid.uuid4()
    rows = QUEUES.dequeue(
        box.connection, claim_id=claim_id, host_instance=1, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    return claim_id, [row.seq for row in rows]


def publish(box: Box, count: int) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(count)])


def test_several_claims_are_completed_together(box: Box) -> None:
    publish(box, 5)
    claims = dict((claim(box, 2), claim(box, 3)))
    assert QUEUES.complete_claims(box.connection, claims) == 5
    assert box.count("queued") == 0
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_a_claim_that_was_taken_over_is_not_completed_and_the_other_claims_are(box: Box) -> None:
    publish(box, 5)
    (lost, seqs), kept = claim(box, 2), claim(box, 3)
    QUEUES.release(box.connection, lost)
    other, again = claim(box, 2)
    assert again == seqs
    assert QUEUES.complete_claims(box.connection, dict(((lost, seqs), kept))) == 3
    assert QUEUES.complete(box.connection, other, seqs) == 2
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0


def test_completed_rows_are_not_completed_again(box: Box) -> None:
    """A host repeats this if the connection breaks before the answer."""
    publish(box, 4)
    claims = dict((claim(box, 2), claim(box, 2)))
    assert QUEUES.complete_claims(box.connection, claims) == 4
    assert QUEUES.complete_claims(box.connection, claims) == 0
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
