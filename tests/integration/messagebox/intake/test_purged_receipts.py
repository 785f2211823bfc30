"""An interchange id of an idempotency key comes again after the receipt was purged."""

from __future__ import annotations

import uuid

from postroom.messagebox.maintenance.check import check
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from tests.integration.messagebox.intake.conftest import StoreInterchange, waiting
from tests.support.box import Box


def test_a_key_that_is_used_again_is_another_message_and_another_instance(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    key = uuid.uuid4()
    for _ in range(2):
        store_interchange(interchange_id=key)
        numbering.scan()
        rows = waiting(box, location)
        task.receive(rows)
        task.receive(rows)  # Spark repeats a task
        box.connection.execute("DELETE FROM receipts")
    assert box.queued() == {"Everything": 2}
    assert box.one("SELECT count(DISTINCT instance_id) FROM instances") == box.count("messages") == 2
    assert check(box.connection) == []
