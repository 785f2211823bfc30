"""Instances as a state machine: whatever hosts and operators do in whatever order, a model knows the state of each.

The model has two send ports, two host instances and the instances of every message. After each step the MessageBox has
the same instances in the same states, and no invariant is violated.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

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
from postroom.messagebox.configuration.endpoints import PortState
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues, ScheduledRetry, Suspension
from postroom.operations.instances import changes
from postroom.operations.instances.bulk_operations import list_operations
from postroom.operations.instances.listing import InstanceQuery, InstanceState
from postroom.operations.ports import send_ports
from postroom.operations.ports.states import StateChange
from tests.support.box import Box, Region
from tests.support.databases import Databases

PORTS = {"Europe": "Orders.Region == 'EU'", "Everything": "exists(Orders.Region)"}
HOSTS = ("first", "second")
QUEUES = HostQueues("Default")
_RETRY = ScheduledRetry(delay=timedelta(minutes=5), code="DELIVERY", description="busy")
_FAILURE = Suspension(code="DELIVERY", description="refused")
_STATES = "SELECT message_id, service_id, state FROM instances WHERE service_id IS NOT NULL"
#: Dead instances are recognised at once, also just after a server start.
_CLEAN_UP = "SELECT dead_processes_cleanup('0', clock_timestamp() + %s * interval '1 minute')"


class State(Enum):
    READY = InstanceState.READY_TO_RUN
    ACTIVE = InstanceState.ACTIVE
    RETRYING = InstanceState.RETRYING
    SUSPENDED = InstanceState.SUSPENDED


@dataclass(kw_only=True, eq=False)
class ModelInstance:
    """A message for one port. ``pending`` is an operation that waits for the end of the present attempt."""

    instance_id: uuid.UUID
    message_id: uuid.UUID
    port: str
    seq: int
    state: State
    waits_for_start: bool = False
    host: str | None = None
    claim_id: uuid.UUID | None = None
    pending: str | None = None

    def change(self, state: State) -> None:
        self.state = state
        self.waits_for_start = False
        self.host = self.claim_id = None


class Instances(RuleBasedStateMachine):
    def __init__(self, databases: Databases) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.box: Box = self._stack.enter_context(databases.open_box())
        for name, filter in PORTS.items():
            self.box.add_port(name, filter)
        self.port_ids: dict[str, uuid.UUID] = dict(
            self.box.connection.execute("SELECT name, id FROM send_ports").fetchall()
        )
        self.agent = self.box.agent()
        self.ports = dict.fromkeys(PORTS, PortState.STARTED)
        self.instances: list[ModelInstance] = []
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
                if state is not PortState.BOUND and (port == "Everything" or region == "EU")
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
        ports = {port_id: name for name, port_id in self.port_ids.items()}
        for instance_id, message_id, service_id, seq in self.box.connection.execute(
            "SELECT instance_id, message_id, service_id, seq FROM instances WHERE message_id = ANY (%s)", (ids,)
        ):
            started = self.ports[ports[service_id]] is PortState.STARTED
            self.instances.append(
                ModelInstance(
                    instance_id=instance_id,
                    message_id=message_id,
                    port=ports[service_id],
                    seq=seq,
                    state=State.READY if started else State.SUSPENDED,
                    waits_for_start=not started,
                )
            )

    @rule(host=st.sampled_from(HOSTS), limit=st.integers(1, 6), retries_are_due=st.booleans())
    def dequeue(self, host: str, limit: int, retries_are_due: bool) -> None:
        if retries_are_due:
            for instance in self._find(State.RETRYING):
                instance.change(State.READY)
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
        first = sorted(self._find(State.READY), key=lambda instance: instance.seq)[:limit]
        assert [message.seq for message in claimed] == [instance.seq for instance in first]
        for instance in first:
            instance.change(State.ACTIVE)
            instance.host, instance.claim_id = host, claim_id

    @rule(data=st.data(), ending=st.sampled_from(["complete", "retry", "fail", "release"]))
    @precondition(lambda self: self._find(State.ACTIVE))
    def end_attempt(self, data: st.DataObject, ending: str) -> None:
        instance = data.draw(st.sampled_from(self._find(State.ACTIVE)))
        assert instance.host is not None
        assert instance.claim_id is not None
        assert self._end(self.sessions[instance.host][0], ending, instance.claim_id, instance.seq) == 1
        if ending == "complete":
            self.instances.remove(instance)
        else:
            instance.change(
                {"retry": State.RETRYING, "fail": State.SUSPENDED, "release": State.READY}[ending],
            )

    @rule(host=st.sampled_from(HOSTS))
    def kill(self, host: str) -> None:
        """Kill a host instance. Another one starts, and the job releases what the first one had claimed."""
        self.sessions[host][0].close()
        self._register(host)
        for minutes in (1, 2):
            self.box.connection.execute(_CLEAN_UP, (minutes,))
        for instance in self._find(State.ACTIVE):
            if instance.host == host and instance.claim_id is not None:
                self.lost_claims.append((instance.claim_id, instance.seq))
                instance.change(State.READY)

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

    @rule(port=st.sampled_from(list(PORTS)), operation=st.sampled_from(["enlist", "start", "stop", "unenlist"]))
    def change_port(self, port: str, operation: str) -> None:
        functions: dict[str, Callable[[Connection, str], StateChange]] = {
            "enlist": send_ports.enlist,
            "start": send_ports.start,
            "stop": send_ports.stop,
            "unenlist": send_ports.unenlist,
        }
        after = {
            ("enlist", PortState.BOUND): PortState.STOPPED,
            ("start", PortState.BOUND): PortState.STARTED,
            ("start", PortState.STOPPED): PortState.STARTED,
            ("stop", PortState.STARTED): PortState.STOPPED,
            ("unenlist", PortState.STOPPED): PortState.BOUND,
            ("unenlist", PortState.STARTED): PortState.BOUND,
        }.get((operation, self.ports[port]))
        if after is None:
            with pytest.raises(StateError):
                functions[operation](self.box.connection, port)
            return
        assert functions[operation](self.box.connection, port).after is after
        self.ports[port] = after
        if after is PortState.STARTED:
            for instance in self.instances:
                if instance.port == port and instance.waits_for_start:
                    instance.change(State.READY)

    @rule(data=st.data(), operation=st.sampled_from(["suspend", "resume", "terminate"]))
    @precondition(lambda self: self.instances)
    def change_instance(self, data: st.DataObject, operation: str) -> None:
        instance = data.draw(st.sampled_from(self.instances))
        is_active = instance.state is State.ACTIVE
        if not self._allows(instance, operation) or (is_active and instance.pending):
            with pytest.raises(StateError):
                self._call(operation, instance.instance_id)
            return
        assert self._call(operation, instance.instance_id) is not is_active
        if is_active:
            instance.pending = operation
        else:
            self._apply(instance, operation)

    @rule(port=st.sampled_from(list(PORTS)), operation=st.sampled_from(["suspend", "resume", "terminate"]))
    def change_all(self, port: str, operation: str) -> None:
        functions = {"suspend": changes.suspend_all, "resume": changes.resume_all, "terminate": changes.terminate_all}
        chosen = [each for each in self.instances if each.port == port and self._allows(each, operation)]
        active = [instance for instance in chosen if instance.state is State.ACTIVE]
        assert functions[operation](self.box.connection, InstanceQuery(port=port)) == len(chosen) - len(active)
        for instance in chosen:
            if instance.state is State.ACTIVE:
                instance.pending = instance.pending or operation
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
        function = changes.suspend if operation == "suspend" else changes.terminate
        return function(self.box.connection, instance_id)

    @staticmethod
    def _allows(instance: ModelInstance, operation: str) -> bool:
        match operation:
            case "suspend":
                return instance.state is not State.SUSPENDED
            case "resume":
                return instance.state is State.SUSPENDED
            case _:
                return True

    def _apply(self, instance: ModelInstance, operation: str) -> None:
        match operation:
            case "suspend":
                instance.change(State.SUSPENDED)
            case "resume":
                instance.change(State.READY)
            case _:
                self.instances.remove(instance)

    # -- jobs --------------------------------------------------------------------------------------------------

    @rule()
    def run_jobs(self) -> None:
        """Pending operations are carried out, and messages without instances are deleted."""
        # A job stops at an operation whose instances are all active, and continues with another one in its next run.
        for _ in range(1 + sum(not each.finished_at for each in list_operations(self.box.connection))):
            assert [run for run in run_all_jobs_once(self.box.connection) if run.error] == []
        for instance in list(self.instances):
            if instance.pending and instance.state is not State.ACTIVE:
                if self._allows(instance, instance.pending):
                    self._apply(instance, instance.pending)
                instance.pending = None
        stored = {message_id for (message_id,) in self.box.connection.execute("SELECT message_id FROM spool")}
        reports = {
            message_id
            for (message_id,) in self.box.connection.execute(
                "SELECT message_id FROM instances WHERE service_id IS NULL"
            )
        }
        assert stored - reports == {instance.message_id for instance in self.instances}

    # -- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def the_messagebox_has_the_instances_of_the_model(self) -> None:
        stored = sorted(self.box.connection.execute(_STATES).fetchall())
        assert stored == sorted(
            (instance.message_id, self.port_ids[instance.port], instance.state.value) for instance in self.instances
        )

    @invariant()
    def no_invariant_of_the_messagebox_is_violated(self) -> None:
        assert check(self.box.connection) == []

    def _find(self, state: State) -> list[ModelInstance]:
        return [instance for instance in self.instances if instance.state is state]


def test_the_messagebox_and_the_model_have_the_same_instances(databases: Databases) -> None:
    """`--hypothesis-profile=thorough` tries more and longer sequences."""

    class InstancesOfThisServer(Instances):
        def __init__(self) -> None:
            super().__init__(databases)

    profile = settings()
    is_thorough = profile.max_examples > 100
    examples, steps = (profile.max_examples, 100) if is_thorough else (15, 40)
    chosen = settings(profile, max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(InstancesOfThisServer, settings=chosen)
