"""The words for the contents of a MessageBox fit its schema. Whoever changes the schema finds out here first."""

from __future__ import annotations

from typing import get_args

import pytest

from postroom.message import Message
from tests.support.box import Box, Region
from tests.support.contents.counts import Countable

READERS = (
    "checkpoint_ids",
    "file_claims",
    "fragments",
    "host_instances",
    "inbox",
    "inbox_fragments",
    "instances",
    "job_runs",
    "journal",
    "messages",
    "open_circuits",
    "orchestration_ids",
    "orchestration_instances",
    "orchestration_messages",
    "parts",
    "receive_attempts",
    "queued_rows",
    "receipts",
    "removed_services",
    "running_locations",
    "running_orchestrations",
    "running_sinks",
    "scheduled_rows",
    "sensitive_properties",
    "sink_attempts",
    "subscriptions",
    "subscriptions_of_orchestrations",
    "suspended_rows",
)


def test_everything_countable_is_counted(box: Box) -> None:
    counts = {what: box.count(what) for what in get_args(Countable)}
    assert (counts["hosts"], counts["applications"], counts["messages"], counts["queued"]) == (1, 1, 0, 0)


@pytest.mark.parametrize("reader", READERS)
def test_everything_is_read_from_a_messagebox_without_messages(box: Box, reader: str) -> None:
    assert isinstance(getattr(box, reader)(), list | set)


def test_messages_are_read_with_their_content_from_every_queue(box: Box) -> None:
    for name, state in (("Stopped", "stopped"), ("Late", "started"), ("Now", "started")):
        box.add_port(name, "Orders.Region == 'EU'", state=state)
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    box.schedule(next(row.instance_id for row in box.queued_rows() if row.port == "Late"))
    queues = {"Now": box.queued_rows(), "Late": box.scheduled_rows(), "Stopped": box.suspended_rows()}
    for port, rows in queues.items():
        [row] = rows
        assert (row.port, row.body, row.context[Region]) == (port, b"an order", "EU")
    assert {one.port for one in box.instances()} == set(queues)
    assert box.bodies() == [b"an order"]
    assert (box.count_references("message"), box.count_references("part")) == (3, 3)
