"""Many publishers while ports change their states: every message meets one state of all ports, and none in between.

The changes happen one after another, so that they have an order. A message may have met any state from the last one
that was complete when its publish began to the first one that was not begun when it ended, in every port at once.
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

from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.errors import PublishFailed, StateError
from postroom.message import Message
from postroom.messagebox.check import check
from postroom.messagebox.configuration import PortState, ReceiveLocation
from postroom.messagebox.connection import Connection, connect
from postroom.operations.ports import send_ports as ports
from postroom.operations.ports.states import StateChange
from tests.support.box import Box, Priority, Region, interchange

PORTS = {"P": "exists(Region)", "Q": "Region == 'EU'", "R": "Region != 'ASIA' and exists(Priority)"}
MEETS = {"EU": {"P", "Q", "R"}, "US": {"P", "R"}, "ASIA": {"P"}}
CHANGES, PUBLISHES = 60, 200

States = Mapping[str, PortState]
#: Publishes a message for a region; gives the key that it is found by, and whether it was refused.
Send = Callable[[str], tuple[uuid.UUID, bool]]


class History:
    """The states of all ports, one after another; a change is begun, and then it is complete."""

    def __init__(self, first: States) -> None:
        self.states: list[States] = [first]
        self.begun = 0
        self.completed = 0

    def change(self, name: str, how: Callable[[Connection, str], StateChange], connection: Connection) -> None:
        before = dict(self.states[-1])
        self.begun += 1
        with suppress(StateError):  # then nothing changed: a state like the one before
            before[name] = how(connection, name).after
        self.states.append(before)
        self.completed += 1


@dataclass(frozen=True, kw_only=True)
class Publish:
    """One message: between which states it was published, and its region. ``key`` finds what became of it."""

    first: int
    last: int
    region: str
    key: uuid.UUID
    refused: bool = False


@pytest.fixture
def published(box: Box) -> tuple[History, list[Publish]]:
    """Changes by one operator and publishes over six connections, in both lanes, until there are enough of both."""
    location = box.add_location()
    for name, filter in PORTS.items():
        box.add_port(name, filter)
    history = History(dict.fromkeys(PORTS, PortState.STARTED))
    done: list[Publish] = []
    stop = threading.Event()

    def change() -> None:
        chance = random.Random(1)
        with connect(box.url) as connection:
            while not stop.is_set() and (history.completed < CHANGES or len(done) < PUBLISHES):
                how = chance.choice([ports.start, ports.start, ports.stop, ports.enlist, ports.unenlist])
                history.change(chance.choice(list(PORTS)), how, connection)

    def publish(number: int) -> None:
        chance = random.Random(number)
        with connect(box.url, user=box.host().role_name) as connection:
            agent = box.agent(connection=connection, warm=number % 3 == 1)
            send = _streaming(connection, location) if number % 3 == 0 else _direct(agent)
            while not stop.is_set():
                region = chance.choice(list(MEETS))
                first = history.completed
                key, refused = send(region)
                done.append(Publish(first=first, last=history.begun, region=region, key=key, refused=refused))

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(change), *(pool.submit(publish, number) for number in range(6))]
        wait(working, return_when=FIRST_COMPLETED)  # the changes are done, or somebody has failed
        stop.set()
    for one in working:
        one.result()
    return history, done


def _direct(agent: MessageAgent) -> Send:
    def send(region: str) -> tuple[uuid.UUID, bool]:
        message = Message.of(b"", promoted={Region: region, Priority: 1})
        try:
            agent.publish([message])
        except PublishFailed:
            return message.message_id, True
        return message.message_id, False

    return send


def _streaming(connection: Connection, location: ReceiveLocation) -> Send:
    receiver = Receiver(connection, RoutingTable())

    def send(region: str) -> tuple[uuid.UUID, bool]:
        one = interchange(f'{{"region":"{region}","priority":1}}'.encode())
        [received] = receiver.receive(location, [one])
        return one.interchange_id, received.published == 0

    return send


def test_every_message_meets_one_state_of_all_ports(box: Box, published: tuple[History, list[Publish]]) -> None:
    history, publishes = published
    waits = _queues(box)
    for one in publishes:
        found = waits.pop(one.key, {})
        assert one.refused == (not found), one
        assert any(_explains(history.states, at, one.region, found) for at in range(one.first, one.last + 1)), (
            one,
            found,
            history.states[one.first : one.last + 1],
        )
    assert waits == {}
    assert check(box.connection) == []


def _explains(states: list[States], at: int, region: str, found: Mapping[str, str]) -> bool:
    """Could a message that met the states ``at`` be where it was found? A start takes up what was suspended before."""
    met = {name: state for name, state in states[at].items() if name in MEETS[region] and state is not PortState.BOUND}
    if met.keys() != found.keys():
        return False
    for name, queue in found.items():
        started = any(later[name] is PortState.STARTED for later in states[at:])
        if queue != ("work" if started else "suspended"):
            return False
    return True


def _queues(box: Box) -> dict[uuid.UUID, dict[str, str]]:
    """The queue that each message waits in, by port, by the message's id or that of its interchange."""
    rows = box.connection.execute(
        "SELECT q.message_id, s.context -> 'written' ->> 'BTS#InterchangeID', p.name, q.queue"
        "  FROM (SELECT message_id, service_id, 'work' AS queue FROM work_queue"
        "        UNION ALL SELECT message_id, service_id, 'suspended' FROM suspended_queue) q"
        "  JOIN spool s USING (message_id) JOIN send_ports p ON p.id = q.service_id"
    )
    found: dict[uuid.UUID, dict[str, str]] = {}
    for message_id, interchange_id, name, queue in rows:
        key = message_id if interchange_id is None else uuid.UUID(interchange_id)
        ports_of = found.setdefault(key, {})
        assert name not in ports_of, f"{key} went to {name} twice"
        ports_of[name] = queue
    return found
