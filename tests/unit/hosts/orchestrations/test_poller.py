"""The poller of a host puts claimed instances into a queue in memory, unless it is paused."""

from __future__ import annotations

import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom.clock import system_clock
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance import ActiveInstance
from postroom.hosts.orchestrations.poller import MAX_LATER, InstancePoller, InstanceQueue
from postroom.messagebox.configuration.hosts import Dequeuing, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestration_instances import HostOrchestrations
from tests.support.claimed_instances import claim


class FakeProcedures:
    """Claims one instance. ``poller`` is paused before the messages are read."""

    def __init__(self) -> None:
        self.poller: InstancePoller | None = None
        self.claimed: list[uuid.UUID] = []
        self.released: list[uuid.UUID] = []
        self.failed: list[uuid.UUID] = []
        self.has_memory = True

    def claim(self, connection: object, *, claim_id: uuid.UUID, **_: object) -> list[Any]:
        self.claimed.append(claim_id)
        return [claim()]

    def read_messages(self, connection: object, claim_id: uuid.UUID) -> list[Any]:
        if self.poller is not None:
            self.poller.pause()
        if not self.has_memory:
            raise MemoryError
        return []

    def release(self, connection: object, claim_id: uuid.UUID, *, is_out_of_memory: bool = False) -> None:
        (self.failed if is_out_of_memory else self.released).append(claim_id)


def make_poller(procedures: FakeProcedures, work: InstanceQueue) -> InstancePoller:
    poller = InstancePoller(
        connect=lambda: cast(Connection, SimpleNamespace(closed=False)),
        procedures=cast(HostOrchestrations, procedures),
        host_instance=1,
        dequeuing=Dequeuing(
            service_class=ServiceClass.ORCHESTRATIONS, polling_interval=timedelta(seconds=1), dequeue_threads=1
        ),
        code=cast(DeployedCode, SimpleNamespace(service_ids=[uuid.uuid4()])),
        work=work,
        get_throttle=lambda: None,
        clock=system_clock,
    )
    poller.is_paused = False
    return poller


def test_a_claim_during_which_the_poller_is_paused_is_released() -> None:
    procedures, work = FakeProcedures(), InstanceQueue(10)
    procedures.poller = make_poller(procedures, work)
    procedures.poller._poll()
    assert procedures.released == procedures.claimed
    assert len(work) == 0


def test_claimed_instances_are_put_into_the_queue() -> None:
    procedures, work = FakeProcedures(), InstanceQueue(10)
    make_poller(procedures, work)._poll()
    assert (len(procedures.claimed), procedures.released, len(work)) == (1, [], 1)


def test_nothing_is_claimed_while_too_many_instances_wait_to_publish() -> None:
    """THR-05: also of instances that go on without a message, such as those whose timer is due."""
    procedures, work = FakeProcedures(), InstanceQueue(10)
    poller = make_poller(procedures, work)
    for _ in range(MAX_LATER):
        work.put_later(ActiveInstance(claim(), []), 60)
    poller._poll()
    assert procedures.claimed == []
    work.discard()
    poller._poll()
    assert len(procedures.claimed) == 1


def test_a_claim_whose_messages_do_not_fit_into_memory_is_counted_as_failed() -> None:
    procedures, work = FakeProcedures(), InstanceQueue(10)
    procedures.has_memory = False
    poller = make_poller(procedures, work)
    for _ in range(2):
        with pytest.raises(MemoryError):
            poller._poll()
    assert len(procedures.claimed) == 2
    assert (procedures.failed, procedures.released, len(work)) == (procedures.claimed, [], 0)
