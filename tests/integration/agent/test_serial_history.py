"""While ports change their states, every message is routed by one consistent state of all ports.

The changes happen one after another. A message may be routed by any state between the last change that was complete
when its publish started and the last change that was started when its publish ended.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

import pytest

from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PublishFailed, StateError
from postroom.message import Message
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.operations.ports import send_ports as ports
from postroom.operations.ports.states import StateChange
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import BTS
from tests.support.box import Box, Priority, Region, interchange

PORTS = {"P": "exists(Region)", "Q": "Region == 'EU'", "R": "Region != 'ASIA' and exists(Priority)"}
MATCHING_PORTS = {"EU": {"P", "Q", "R"}, "US": {"P", "R"}, "ASIA": {"P"}}
CHANGES, PUBLISHES = 60, 200

States = Mapping[str, ServiceState]
#: Publishes a message for a region. Returns the key by which it is found, and True if it was rejected.
Send = Callable[[str], tuple[uuid.UUID, bool]]


class History:
    """The states of all ports after each change. A change is counted when it starts and when it is complete."""

    def __init__(self, first: States) -> None:
        self.states: list[States] = [first]
        self.started = 0
        self.completed = 0

    def change(self, name: str, how: Callable[[Connection, str], StateChange], connection: Connection) -> None:
        before = dict(self.states[-1])
        self.started += 1
        with suppress(StateError):  # the change is not allowed in this state, so the states stay the same
            before[name] = how(connection, name).after
        self.states.append(before)
        self.completed += 1


@dataclass(frozen=True, kw_only=True)
class Publish:
    """A published message: its region, and the first and last state that may have routed it."""

    first: int
    last: int
    region: str
    key: uuid.UUID
    refused: bool = False


@pytest.fixture
def history_and_publishes(box: Box) -> tuple[History, list[Publish]]:
    """Change ports in one thread and publish in six, in both lanes, until both limits are reached."""
    location = box.add_location()
    for name, filter in PORTS.items():
        box.add_port(name, filter)
    history = History(dict.fromkeys(PORTS, ServiceState.STARTED))
    done: list[Publish] = []
    stop = threading.Event()

    def change() -> None:
        rng = random.Random(1)
        with connect(box.url) as connection:
            while not stop.is_set() and (history.completed < CHANGES or len(done) < PUBLISHES):
                how = rng.choice([ports.start, ports.start, ports.stop, ports.enlist, ports.unenlist])
                history.change(rng.choice(list(PORTS)), how, connection)

    def publish(number: int) -> None:
        rng = random.Random(number)
        with connect(box.url, user=box.host().role_name) as connection:
            agent = box.agent(connection=connection, warm=number % 3 == 1)
            send = _send_streaming(connection, location) if number % 3 == 0 else _send_direct(agent)
            while not stop.is_set():
                region = rng.choice(list(MATCHING_PORTS))
                first = history.completed
                key, refused = send(region)
                done.append(Publish(first=first, last=history.started, region=region, key=key, refused=refused))

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(change), *(pool.submit(publish, number) for number in range(6))]
        wait(working, return_when=FIRST_COMPLETED)  # the changes are complete, or a thread has failed
        stop.set()
    for worker in working:
        worker.result()
    return history, done


def _send_direct(agent: DirectAgent) -> Send:
    def send(region: str) -> tuple[uuid.UUID, bool]:
        message = Message.of(b"", promoted={Region: region, Priority: 1})
        try:
            agent.publish([message])
        except PublishFailed:
            return message.message_id, True
        return message.message_id, False

    return send


def _send_streaming(connection: Connection, location: ReceiveLocation) -> Send:
    receiver = Receiver(connection, RoutingTable())

    def send(region: str) -> tuple[uuid.UUID, bool]:
        one = interchange(f'{{"region":"{region}","priority":1}}'.encode())
        [received] = receiver.receive(location, [one])
        return one.interchange_id, received.published == 0

    return send


def test_every_message_is_routed_by_one_consistent_state_of_all_ports(
    box: Box, history_and_publishes: tuple[History, list[Publish]]
) -> None:
    history, publishes = history_and_publishes
    queues = _read_queues(box)
    for publish in publishes:
        found = queues.pop(publish.key, {})
        assert publish.refused == (not found), publish
        assert any(
            _is_possible(history.states, at, publish.region, found) for at in range(publish.first, publish.last + 1)
        ), (
            publish,
            found,
            history.states[publish.first : publish.last + 1],
        )
    assert queues == {}
    assert check(box.connection) == []


def _is_possible(states: list[States], at: int, region: str, found: Mapping[str, str]) -> bool:
    """Return True if the states ``at`` explain the queues of the message. A start resumes suspended messages."""
    subscribers = {
        name: state
        for name, state in states[at].items()
        if name in MATCHING_PORTS[region] and state is not ServiceState.BOUND
    }
    if subscribers.keys() != found.keys():
        return False
    for name, queue in found.items():
        is_started_later = any(later[name] is ServiceState.STARTED for later in states[at:])
        if queue != ("work" if is_started_later else "suspended"):
            return False
    return True


def _read_queues(box: Box) -> dict[uuid.UUID, dict[str, str]]:
    """Return the queue of each message by port, keyed by the id of the message or of its interchange."""
    queues = {"work": box.queued_rows(), "suspended": box.suspended_rows()}
    rows = [
        (row.message_id, row.context.get(BTS.InterchangeID), row.port, queue)
        for queue, queued in queues.items()
        for row in queued
        if row.port is not None
    ]
    found: dict[uuid.UUID, dict[str, str]] = {}
    for message_id, interchange_id, name, queue in rows:
        key = message_id if interchange_id is None else uuid.UUID(interchange_id)
        queue_by_port = found.setdefault(key, {})
        assert name not in queue_by_port, f"{key} was sent to {name} twice"
        queue_by_port[name] = queue
    return found
