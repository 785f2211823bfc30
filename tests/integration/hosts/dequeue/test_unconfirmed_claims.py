"""A claim that comes too late for the buffer of its host instance does not keep its messages."""

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

from postroom.hosts.dequeue.poller import QueueClaimer
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region


def test_the_messages_of_a_claim_that_came_too_late_are_released(box: Box) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(3)])
    buffer = WorkBuffer(100, 5)
    buffer.unpause()
    claimer = QueueClaimer(
        connect=partial(connect, box.url, user=box.host().role_name),
        queues=HostQueues("Default"),
        host_instance=1,
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        service=Mock(),
        buffer=buffer,
    )
    capacity, generation = buffer.wait_for_capacity(0)
    # The instance loses its lock meanwhile, and gets it again.
    buffer.pause()
    buffer.unpause()
    assert claimer.claim(capacity, generation, limit=capacity) == 3
    assert (box.count("claimed"), buffer.unfinished_count) == (3, 0)
    claimer.release_unconfirmed()
    assert box.count("claimed") == 0
    claimer.close()
