"""After a SIGKILL at any step of a hand-over, exactly the committed interchanges are published, once."""

from __future__ import annotations

import pytest

from postroom.message import Context
from postroom.messagebox.intake import inbox
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from tests.integration.messagebox.intake.conftest import Connect, waiting
from tests.integration.messagebox.intake.interrupted_receiver import CONTENTS, POINTS, main
from tests.support.box import Box
from tests.support.interrupted_process import run_until_killed
from tests.support.waiting import wait_until


@pytest.mark.parametrize("point", POINTS)
def test_after_a_restart_everything_is_published_once(
    box: Box, location: ReceiveLocation, connect_as_host: Connect, task: SparkReceiveTask, point: str
) -> None:
    run_until_killed(main, box.url, box.host().role_name, location.name, point)
    connection = connect_as_host()
    # A sender without an answer repeats the request with the same idempotency key.
    for interchange_id, content in CONTENTS.items():
        if not inbox.check_if_known(connection, interchange_id):
            inbox.store_in_inbox(connection, location.location_id, interchange_id, Context(), [content])
    numbering = InboxReceiveAdapter(connect_as_host(), location, connect=connect_as_host)
    wait_until(lambda: numbering.scan().active, what="the end of the killed process's session")
    for _ in range(2):
        task.receive(waiting(box, location))
    assert box.queued() == {"Everything": len(CONTENTS)}
    assert box.count("messages") == len(CONTENTS)
    assert box.count("inbox") == box.count("inbox fragments") == 0
