"""Instances as a state machine: whatever hosts and operators do in whatever order, a model knows the state of each.

The model has send ports, two host instances and the messages of all instances. An ordered port is one instance for all
its messages (INS-02), which are delivered in the order of publishing. After each step the MessageBox has the same
messages in the same states, and no invariant is violated.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from itertools import takewhile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postroom.errors import NotFound, PublishFailed, StateError
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.messagebox.instance_operations import list_operations
from postroom.messagebox.instances import InstanceQuery, InstanceState
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import MAX_AHEAD, HostQueues, ScheduledRetry, Suspension
from postroom.operations.ports import send_ports
from postroom.operations.ports.states import StateChange
from postroom.ports.send_ports import read_send_ports
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.databases import Databases
from tests.support.waiting import wait_until

PORTS = {
    "Europe": "Orders.Region == 'EU'",
    "Everything": "exists(Orders.Region)",
    "Ordered": "exists(Orders.Region)",
}
HOSTS = ("first", "second")
QUEUES = HostQueues("Default")
_RETRY = ScheduledRetry(delay=timedelta(minutes=5), code="DELIVERY", description="busy")
_FAILURE = Suspension(code="DELIVERY", description="refused")
#: Dead instances are recognised at once, also just after a server start.
_CLEAN_UP = "SELECT dead_processes_cleanup('0', clock_timestamp() + %s * interval '1 minute')"
_HAS_LOCK = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7002 AND objid = %s"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class State(Enum):
    READY = InstanceState.READY_TO_RUN
    ACTIVE = InstanceState.ACTIVE
    RETRYING = InstanceState.RETRYING
    SUSPENDED = InstanceState.SUSPENDED


@dataclass(kw_only=True, eq=False)
class ModelMessage:
    """A message for one port. It is an instance of its own, unless the port is ordered."""

    instance_id: uuid.UUID
    message_id: uuid.UUID
    port: str
    seq: int
    state: State
    waits_for_start: bool = False
    host: str | None = None
    claim_id: uuid.UUID | None = None

    def change(self, state: State) -> None:
        self.state = state
        self.waits_for_start = False
        self.host = self.claim_id = None


class Instances(RuleBasedStateMachine):
    def __init__(self, databases: Databases, ports: Sequence[str]) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.box: Box = self._stack.enter_context(databases.open_box())
        for name in ports:
            self.box.add_port(name, PORTS[name], ordered=name == "Ordered", stop_on_failure=name == "Ordered")
        self.port_ids = {port.name: port.port_id for port in read_send_ports(self.box.connection)}
        self.agent = self.box.agent()
        self.ports = dict.fromkeys(ports, ServiceState.STARTED)
        self.messages: list[ModelMessage] = []
        #: The operations that wait for the end of the present attempt, by instance.
        self.pending: dict[uuid.UUID, str] = {}
        self.last_in_order = 0
        self.lost_claims: list[tuple[uuid.UUID, int]] = []
        self.sessions: dict[str, tuple[Connection, int]] = {}
        for host in HOSTS:
            self._register(host)

    def teardown(self) -> None:
        self._stack.close()

    def _register(self, host: str) -> None:
        connection = self._stack.enter_context(connect(self.box.url))
        self.sessions[host] = connection, register_process(connection, self.box.host().host_id, ProcessKind.HOST)

    # -- programs and hosts ------------------------------------------------------------------------------------

    @rule(regions=st.lists(st.sampled_from(["EU", "US"]), min_size=1, max_size=7))
    def publish(self, regions: list[str]) -> None:
        messages = [Message.of(b"order", promoted={Region: region}) for region in regions]
        subscribers = [
            {
                port
                for port, state in self.ports.items()
                if state is not ServiceState.BOUND and (port != "Europe" or region == "EU")
            }
            for region in regions
        ]
        if not all(subscribers):
            with pytest.raises(PublishFailed):
                self.agent.publish(messages)
            return
        published = self.agent.publish(messages)
        assert [set(message.subscribers) for message in published] == subscribers
        ids = [message.message_id for message in published]
        for one in [one for one in self.box.instances() if one.message_id in ids]:
            assert one.port is not None
            started = self.ports[one.port] is ServiceState.STARTED
            self.messages.append(
                ModelMessage(
                    instance_id=one.instance_id,
                    message_id=one.message_id,
                    port=one.port,
                    seq=one.seq,
                    state=State.READY if started else State.SUSPENDED,
                    waits_for_start=not started,
                )
            )
        self.messages.sort(key=lambda message: message.seq)

    @rule(host=st.sampled_from(HOSTS), limit=st.integers(1, 6), retries_are_due=st.booleans())
    def dequeue(self, host: str, limit: int, retries_are_due: bool) -> None:
        if retries_are_due:
            for message in self._find(State.RETRYING):
                message.change(State.READY)
        connection, host_instance = self.sessions[host]
        claim_id = uuid.uuid4()
        claimed = QUEUES.dequeue(
            connection,
            claim_id=claim_id,
            host_instance=host_instance,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            limit=limit,
            now=datetime.now(UTC) + timedelta(hours=retries_are_due),
        )
        ready = [message for message in self._find(State.READY) if message.port != "Ordered"]
        first = [*self._find_next_in_order()[: min(limit, MAX_AHEAD)], *ready[:limit]]
        assert [message.seq for message in claimed] == [message.seq for message in first]
        for message in first:
            message.change(State.ACTIVE)
            message.host, message.claim_id = host, claim_id

    def _find_next_in_order(self) -> list[ModelMessage]:
        """Return the messages of the ordered port that can be claimed: none while one is claimed, and none behind one
        that waits for a retry or is suspended."""
        waiting = [message for message in self.messages if message.port == "Ordered"]
        if any(message.state is State.ACTIVE for message in waiting):
            return []
        return list(takewhile(lambda message: message.state is State.READY, waiting))

    @rule(data=st.data(), ending=st.sampled_from(["complete", "retry", "fail", "release"]))
    @precondition(lambda self: self._find(State.ACTIVE))
    def end_attempt(self, data: st.DataObject, ending: str) -> None:
        """An ordered port sends its first message. If that is not delivered, the host releases the others."""
        active = self._find(State.ACTIVE)
        in_order = [message for message in active if message.port == "Ordered"]
        message = data.draw(st.sampled_from([one for one in active if one not in in_order[1:]]))
        assert message.host is not None
        assert message.claim_id is not None
        connection = self.sessions[message.host][0]
        assert self._end(connection, ending, message.claim_id, message.seq) == 1
        is_in_order = message in in_order
        if ending == "complete":
            self.messages.remove(message)
            if is_in_order:
                assert message.seq > self.last_in_order
                self.last_in_order = message.seq
            return
        claim_id = message.claim_id
        message.change({"retry": State.RETRYING, "fail": State.SUSPENDED, "release": State.READY}[ending])
        for other in in_order[1:] if is_in_order else []:
            assert self._end(connection, "release", claim_id, other.seq) == 1
            other.change(State.READY)

    @rule(host=st.sampled_from(HOSTS))
    def kill(self, host: str) -> None:
        """Kill a host instance. Another one starts, and the job releases what the first one had claimed."""
        connection, host_instance = self.sessions[host]
        connection.close()
        # PostgreSQL ends the session, and releases its lock, a moment later.
        wait_until(lambda: self.box.one(_HAS_LOCK, host_instance) == 0, what="the end of the session")
        self._register(host)
        for minutes in (1, 2):
            self.box.connection.execute(_CLEAN_UP, (minutes,))
        for message in self._find(State.ACTIVE):
            if message.host == host and message.claim_id is not None:
                self.lost_claims.append((message.claim_id, message.seq))
                message.change(State.READY)

    @rule(data=st.data(), ending=st.sampled_from(["complete", "retry", "fail", "release"]))
    @precondition(lambda self: self.lost_claims)
    def end_attempt_of_a_lost_claim(self, data: st.DataObject, ending: str) -> None:
        """A host instance that was declared dead reports its outcome late. It counts for nothing."""
        claim_id, seq = data.draw(st.sampled_from(self.lost_claims))
        assert self._end(self.box.connection, ending, claim_id, seq) == 0

    def _end(self, connection: Connection, ending: str, claim_id: uuid.UUID, seq: int) -> int:
        endings: dict[str, Callable[[], int]] = {
            "complete": lambda: QUEUES.complete(connection, claim_id, [seq]),
            "retry": lambda: QUEUES.retry(connection, claim_id, {seq: _RETRY}),
            "fail": lambda: QUEUES.suspend(connection, claim_id, {seq: _FAILURE}),
            "release": lambda: QUEUES.release(connection, claim_id, [seq]),
        }
        return endings[ending]()

    # -- operators ---------------------------------------------------------------------------------------------

    @rule(data=st.data(), operation=st.sampled_from(["enlist", "start", "stop", "unenlist"]))
    def change_port(self, data: st.DataObject, operation: str) -> None:
        port = data.draw(st.sampled_from(list(self.ports)))
        functions: dict[str, Callable[[Connection, str], StateChange]] = {
            "enlist": send_ports.enlist,
            "start": send_ports.start,
            "stop": send_ports.stop,
            "unenlist": send_ports.unenlist,
        }
        after = {
            ("enlist", ServiceState.BOUND): ServiceState.STOPPED,
            ("start", ServiceState.BOUND): ServiceState.STARTED,
            ("start", ServiceState.STOPPED): ServiceState.STARTED,
            ("stop", ServiceState.STARTED): ServiceState.STOPPED,
            ("unenlist", ServiceState.STOPPED): ServiceState.BOUND,
            ("unenlist", ServiceState.STARTED): ServiceState.BOUND,
        }.get((operation, self.ports[port]))
        if after is None:
            with pytest.raises(StateError):
                functions[operation](self.box.connection, port)
            return
        assert functions[operation](self.box.connection, port).after is after
        self.ports[port] = after
        if after is ServiceState.STARTED:
            for message in self.messages:
                if message.port == port and message.waits_for_start:
                    message.change(State.READY)

    @rule(data=st.data(), operation=st.sampled_from(["suspend", "resume", "terminate"]))
    @precondition(lambda self: self.messages)
    def change_instance(self, data: st.DataObject, operation: str) -> None:
        instance = self._get_instance(data.draw(st.sampled_from(self.messages)).instance_id)
        instance_id = instance[0].instance_id
        # The messages behind an active one may be suspended, because the ordered port is stopped.
        must_wait = operation != "resume" and _is_active(instance)
        if not self._allows(instance, operation) or (must_wait and instance_id in self.pending):
            with pytest.raises(StateError):
                self._call(operation, instance_id)
            return
        assert self._call(operation, instance_id) is not must_wait
        if must_wait:
            self.pending[instance_id] = operation
        else:
            self._apply(instance, operation)

    @rule(data=st.data(), operation=st.sampled_from(["suspend", "resume", "terminate"]))
    def change_all(self, data: st.DataObject, operation: str) -> None:
        port = data.draw(st.sampled_from(list(self.ports)))
        # All messages of an ordered send port. That only the first one is deleted is tested elsewhere.
        terminate_all = partial(changes.terminate_all, all_messages=True)
        functions: dict[str, Callable[[Connection, InstanceQuery], int]] = {
            "suspend": changes.suspend_all,
            "resume": changes.resume_all,
            "terminate": terminate_all,
        }
        instances = [
            self._get_instance(instance_id)
            for instance_id in {message.instance_id for message in self.messages if message.port == port}
        ]
        # An instance has the state of its first message.
        chosen = [instance for instance in instances if self._allows(instance[:1], operation)]
        active = [instance for instance in chosen if _is_active(instance)]
        assert functions[operation](self.box.connection, InstanceQuery(port=port)) == len(chosen) - len(active)
        for instance in chosen:
            if _is_active(instance):
                self.pending.setdefault(instance[0].instance_id, operation)
            else:
                self._apply(instance, operation)

    @rule(instance_id=st.uuids(version=4), operation=st.sampled_from(["suspend", "resume", "terminate"]))
    def change_an_unknown_instance(self, instance_id: uuid.UUID, operation: str) -> None:
        with pytest.raises(NotFound):
            self._call(operation, instance_id)

    def _call(self, operation: str, instance_id: uuid.UUID) -> bool:
        if operation == "resume":
            changes.resume(self.box.connection, instance_id)
            return True
        if operation == "suspend":
            return changes.suspend(self.box.connection, instance_id)
        return changes.terminate(self.box.connection, instance_id, all_messages=True)

    def _get_instance(self, instance_id: uuid.UUID) -> list[ModelMessage]:
        """Return the messages of an instance, in order."""
        return [message for message in self.messages if message.instance_id == instance_id]

    @staticmethod
    def _allows(instance: list[ModelMessage], operation: str) -> bool:
        is_suspended = [message.state is State.SUSPENDED for message in instance]
        match operation:
            case "suspend":
                return not all(is_suspended)
            case "resume":
                return any(is_suspended)
            case _:
                return True

    def _apply(self, instance: list[ModelMessage], operation: str) -> None:
        for message in instance:
            if operation == "terminate":
                self.messages.remove(message)
            elif (message.state is State.SUSPENDED) is (operation == "resume"):
                message.change(State.READY if operation == "resume" else State.SUSPENDED)

    # -- jobs --------------------------------------------------------------------------------------------------

    @rule()
    def run_jobs(self) -> None:
        """Pending operations are carried out, and messages without instances are deleted."""
        # A job stops at an operation whose instances are all active, and continues with another one in its next run.
        for _ in range(1 + sum(not each.finished_at for each in list_operations(self.box.connection))):
            assert [run for run in run_all_jobs_once(self.box.connection) if run.error] == []
        for instance_id, operation in list(self.pending.items()):
            instance = self._get_instance(instance_id)
            if not _is_active(instance):
                if self._allows(instance, operation):
                    self._apply(instance, operation)
                del self.pending[instance_id]
        stored = {message.message_id for message in self.box.messages()}
        reports = {one.message_id for one in self.box.instances() if one.service_id is None}
        assert stored - reports == {message.message_id for message in self.messages}

    # -- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def the_messagebox_has_the_instances_of_the_model(self) -> None:
        stored = [(one.message_id, one.service_id, one.state) for one in self.box.instances() if one.service_id]
        assert sorted(stored) == sorted(
            (message.message_id, self.port_ids[message.port], message.state.value) for message in self.messages
        )

    @invariant()
    def no_invariant_of_the_messagebox_is_violated(self) -> None:
        assert check(self.box.connection) == []

    def _find(self, state: State) -> list[ModelMessage]:
        return [message for message in self.messages if message.state is state]


def _is_active(instance: list[ModelMessage]) -> bool:
    return any(message.state is State.ACTIVE for message in instance)


@pytest.mark.sample
@pytest.mark.parametrize("ports", [("Europe", "Everything"), ("Ordered",)], ids=["unordered", "ordered"])
def test_the_messagebox_and_the_model_have_the_same_instances(databases: Databases, ports: Sequence[str]) -> None:
    """`--hypothesis-profile=thorough` tries more and longer sequences."""

    class InstancesOfThisServer(Instances):
        def __init__(self) -> None:
            super().__init__(databases, ports)

    profile = settings()
    is_thorough = profile.max_examples > 100
    examples, steps = (profile.max_examples, 100) if is_thorough else (15, 40)
    chosen = settings(profile, max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(InstancesOfThisServer, settings=chosen)
