"""Publishing while ports are started, stopped and unenlisted: no message is lost or left suspended (ADR 0007)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PublishFailed
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.operations.ports import groups, send_ports
from postroom.ports.receive_locations import ReceiveLocation
from tests.support.box import Box, Region, interchange
from tests.support.contents import Contents
from tests.support.waiting import PATIENCE


def publish_until(stop: threading.Event, box: Box, location: ReceiveLocation, streaming: bool) -> int:
    """Publish through one of the lanes until ``stop`` is set. Return the number of published messages."""
    published = 0
    with connect(box.url, user=box.host().role_name) as connection:
        agent = box.agent(connection=connection)
        receiver = Receiver(connection, RoutingTable())
        while not stop.is_set():
            if streaming:
                published += receiver.receive(location, [interchange(b'{"region":"EU"}')])[0].published
            else:
                agent.publish([Message.of(b"", promoted={Region: "EU"})])
                published += 1
    return published


def test_a_start_resumes_every_message_that_was_suspended_before(box: Box) -> None:
    location = box.add_location()
    box.add_port("P", "exists(Region)")
    stop = threading.Event()
    still_suspended: list[int] = []

    def change() -> None:
        with connect(box.url) as connection:
            for _ in range(40):
                send_ports.stop(connection, "P")
                send_ports.start(connection, "P")
                still_suspended.append(Contents(connection).count("suspended"))
        stop.set()

    with ThreadPoolExecutor() as pool:
        publishers = [
            pool.submit(publish_until, stop, box, location, streaming) for streaming in (True, True, False, False)
        ]
        pool.submit(change).result()
        published = sum(publisher.result() for publisher in publishers)
    assert still_suspended == [0] * 40
    assert box.count("queued") == published
    assert box.count("messages") == published


def test_a_publish_is_either_before_or_after_an_unenlist(box: Box) -> None:
    """Accepted messages are queued, and rejected messages are not."""
    box.add_port("P", "exists(Region)", state="bound")
    stop = threading.Event()
    outcomes: Counter[str] = Counter()

    def change() -> None:
        with connect(box.url) as connection:
            for _ in range(40):
                send_ports.start(connection, "P")
                send_ports.unenlist(connection, "P")
        stop.set()

    def publish() -> Counter[str]:
        counts: Counter[str] = Counter()
        with connect(box.url, user=box.host().role_name) as connection:
            agent = box.agent(connection=connection)
            while not stop.is_set():
                try:
                    agent.publish([Message.of(b"", promoted={Region: "EU"})])
                    counts["accepted"] += 1
                except PublishFailed:
                    counts["refused"] += 1
        return counts

    with ThreadPoolExecutor() as pool:
        publishers = [pool.submit(publish) for _ in range(3)]
        pool.submit(change).result()
        for publisher in publishers:
            outcomes += publisher.result()
    assert box.count("queued") == outcomes["accepted"]
    assert box.count("routing failure reports") == outcomes["refused"]


def test_the_last_start_of_port_or_group_resumes_every_message(box: Box) -> None:
    """Two operators stop and start the port and its group at the same time (SPT-13)."""
    location = box.add_location()
    box.add_port("P")
    box.add_group("G", ["P"], "exists(Region)")
    running = threading.Barrier(3)
    stop = threading.Event()

    def change(stop_it: Callable[..., object], start_it: Callable[..., object], name: str) -> None:
        with connect(box.url) as connection:
            running.wait(PATIENCE)
            for _ in range(40):
                stop_it(connection, name)
                start_it(connection, name)

    with ThreadPoolExecutor() as pool:
        publishers = [pool.submit(publish_until, stop, box, location, streaming) for streaming in (True, False)]
        operators = [
            pool.submit(change, send_ports.stop, send_ports.start, "P"),
            pool.submit(change, groups.stop, groups.start, "G"),
        ]
        running.wait(PATIENCE)
        for operator in operators:
            operator.result()
        stop.set()
        published = sum(publisher.result() for publisher in publishers)
    assert box.count("suspended") == 0
    assert box.count("queued") == published
    assert len({row.message_id for row in box.queued_rows()}) == published
