"""Spark tasks publish the inbox as messages."""

from __future__ import annotations

import uuid
from functools import partial

from postroom import pipelines
from postroom.message import FRAGMENT_SIZE, Context
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import inbox
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from tests.spark.conftest import StartStream
from tests.support.box import Box
from tests.support.inbox_location import add_inbox_location
from tests.support.waiting import wait_until


def test_interchanges_stored_while_the_stream_runs_are_published_once(
    box: Box, login: Login, start_stream: StartStream
) -> None:
    box.add_port("Everything", "BTS.ReceivePortName == 'webIn'")
    location = add_inbox_location(box, pipeline=pipelines.PassThrough())
    bodies = [b"first", b"second", bytes(3 * FRAGMENT_SIZE)]
    with connect(login.url, user=login.user) as connection, connect(login.url, user=login.user) as other:
        numbering = InboxReceiveAdapter(connection, location, connect=partial(login.connect, "inbox"))

        def has_published(count: int) -> bool:
            assert query.isActive, query.exception()
            numbering.scan()
            return box.count("messages") == count and not box.count("inbox")

        inbox.store_in_inbox(other, location.location_id, uuid.uuid4(), Context(), [bodies[0]])
        numbering.scan()
        query = start_stream(location)
        wait_until(lambda: has_published(1), what="the first message")
        for body in bodies[1:]:
            inbox.store_in_inbox(other, location.location_id, uuid.uuid4(), Context(), [body])
        wait_until(lambda: has_published(3), what="all messages")
    assert box.queued() == {"Everything": 3}
    assert sorted(part.size for part in box.parts()) == sorted(map(len, bodies))
