"""Slow send ports do not keep a host from serving its other send ports."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from postroom import adapters
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box, Region
from tests.support.http_receiver import Handler, http_receiver
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until


def orders(region: str, count: int) -> list[Message]:
    return [Message.of(str(number).encode(), promoted={Region: region}) for number in range(count)]


class BlockedPorts:
    """A behaviour: the attempts of these ports wait until ``released`` is set."""

    def __init__(self, *names: str) -> None:
        self.released = threading.Event()
        self._names = names

    def __call__(self, message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] in self._names and not self.released.wait(PATIENCE):
            raise DeliveryFailure("The test did not release the attempt.")


def count_sent(recorder: RecordingAdapter, port: str) -> int:
    return len([message for message in recorder.sent if message.port == port])


def test_a_fast_receiver_is_served_while_a_dripping_receiver_has_a_backlog(box: Box, tmp_path: Path) -> None:
    def drip(handler: Handler) -> None:
        handler.take()
        handler.drip(b"HTTP/1.1 200 OK\r\nX-Drip: ")

    with http_receiver() as slow, http_receiver() as fast:
        slow.behave = drip
        for name, receiver, region in (("Slow", slow, "EU"), ("Fast", fast, "US")):
            definition = adapters.Http(receiver.url, timeout=PATIENCE, connections=7)
            box.add_port(name, f"Orders.Region == '{region}'", adapter=definition.model_dump(mode="json"))
        box.agent().publish(orders("EU", 200))
        box.agent().publish(orders("US", 200))
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
            wait_until(lambda: len(fast.accepted) == 200, what="all messages of the fast receiver")
            assert len(slow.requests) == 7, "the messages of the slow receiver wait without a thread"
            wait_until(lambda: instance.counts["completed"] == 200)
            assert box.queued() == {"Slow": 200}
            slow.released.set()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_backlog_of_a_slow_port_is_delivered_later(box: Box, start_host: StartHost, threads: int) -> None:
    box.set_dequeuing(threads=threads)
    box.add_port("Slow", "Orders.Region == 'EU'")
    box.add_port("Fast", "Orders.Region == 'US'")
    box.agent().publish(orders("EU", 300))
    blocked = BlockedPorts("Slow")
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    wait_until(lambda: len(recorder.attempts) == threads)
    for number in range(1, 4):
        box.agent().publish(orders("US", 100))
        wait_until(lambda expected=100 * number: count_sent(recorder, "Fast") == expected)  # type: ignore[misc]
    assert count_sent(recorder, "Slow") == 0
    blocked.released.set()
    wait_until(lambda: instance.counts["completed"] == 600)
    assert len({attempt.attempt.instance_id for attempt in recorder.attempts}) == len(recorder.attempts) == 600
    assert box.count("queued") == 0
    assert check(box.connection) == []


def test_several_slow_ports_leave_a_thread_for_a_fast_port(box: Box, start_host: StartHost) -> None:
    for name in ("Slow1", "Slow2", "Slow3", "Fast"):
        box.add_port(name, f"Orders.Region == '{name}'")
    for name in ("Slow1", "Slow2", "Slow3"):
        box.agent().publish(orders(name, 100))
    box.agent().publish(orders("Fast", 100))
    blocked = BlockedPorts("Slow1", "Slow2", "Slow3")
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    wait_until(lambda: count_sent(recorder, "Fast") == 100)
    assert len(recorder.sent) == 100
    blocked.released.set()
    wait_until(lambda: instance.counts["completed"] == 400)


def test_queued_messages_for_the_spare_threads_are_released_when_the_host_stops(
    box: Box, start_host: StartHost
) -> None:
    box.set_dequeuing(threads=1)
    for name in ("Slow1", "Slow2", "Fast"):
        box.add_port(name, f"Orders.Region == '{name}'")
    blocked = BlockedPorts("Slow1", "Slow2", "Fast")
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    for name in ("Slow1", "Slow2", "Fast"):
        box.agent().publish(orders(name, 20))
    # One dequeue thread and one spare thread.
    wait_until(lambda: len(recorder.attempts) == 2)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    blocked.released.set()
    stopping.join(PATIENCE)
    delivered = len(recorder.sent)
    assert sum(box.queued().values()) == 60 - delivered
    assert box.count("claimed") == 0
