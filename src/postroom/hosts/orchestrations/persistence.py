"""Store the persistence points of several instances in one transaction.

Each instance gets its own outcome. An instance whose claim was taken over is left out, and so are its messages.
If sends have no subscribers, the others are stored without these instances. If the transaction fails because of one
instance, which nobody names, each is stored in a transaction of its own: PostgreSQL refuses a value, or the body of a
message cannot be read, which can raise anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from postroom.agent.direct.direct_agent import Outbox
from postroom.errors import ClaimLost, NotFound, PublishFailed, RoutingFailure, StateError, is_environment_error
from postroom.filters.expression import Filter
from postroom.hosts.orchestrations.bound_ports import BoundPorts
from postroom.hosts.orchestrations.instance import ActiveInstance, WorkerSession
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestration_instances import JournalEntry
from postroom.messagebox.subscriptions import SubscribingService
from postroom.orchestrations.correlation import CALLER
from postroom.orchestrations.driver import Outcome
from postroom.orchestrations.journal import Correlate, Forget
from postroom.orchestrations.recorded_values import to_recorded
from postroom.processes.time_limit import TimedOut

#: The outcome of each instance by id, or the error because of which it cannot be stored.
Outcomes = dict[uuid.UUID, Outcome | BaseException]


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """What an instance sends and waits for, with the send ports that its logical ports are bound to. Both depend on the
    same bindings."""

    messages: Mapping[int, Message]
    """By the numbers of its sends."""
    filters: Mapping[int, Filter]
    """By the numbers of its correlation sets."""


def persist_together(session: WorkerSession, instances: Sequence[ActiveInstance]) -> Outcomes:
    """Store the persistence points of different instances. Raise only errors of the environment: then it is not known
    what was stored."""
    outcomes: Outcomes = {}
    bound: dict[uuid.UUID, _Bound] = {}
    for instance in instances:
        try:
            bound[instance.claimed.instance_id] = _bind(session, instance)
        except BaseException as error:
            _check_environment(error)
            outcomes[instance.claimed.instance_id] = error
    while remaining := [instance for instance in instances if instance.claimed.instance_id not in outcomes]:
        try:
            outcomes |= _persist(session, remaining, bound)
        except BaseException as error:
            _check_environment(error)
            failures = _find_failures(error, remaining, bound) if isinstance(error, PublishFailed) else {}
            if failures:
                outcomes |= failures
            elif len(remaining) == 1:
                outcomes[remaining[0].claimed.instance_id] = error
            else:
                for instance in remaining:
                    outcomes |= persist_together(session, [instance])
    return outcomes


def _check_environment(error: BaseException) -> None:
    """Raise an error that none of the instances has caused. If there is not enough memory, one of them may need it."""
    if isinstance(error, TimedOut) or (is_environment_error(error) and not isinstance(error, MemoryError)):
        raise error


def _bind(session: WorkerSession, instance: ActiveInstance) -> _Bound:
    """Bind the logical ports of the next persistence point. Raise NotFound if there is no such send port, and
    StateError if it cannot do what is asked of it."""
    try:
        return _bind_to(session.get_ports(), instance)
    except (NotFound, StateError):  # ports may have been declared or changed since they were read
        return _bind_to(session.read_ports(), instance)


def _bind_to(ports: BoundPorts, instance: ActiveInstance) -> _Bound:
    point, orchestration = instance.point, instance.orchestration
    assert point is not None
    return _Bound(
        messages={send.number: ports.direct(send, orchestration) for send in point.sends},
        filters={
            command.number: ports.build_filter(command, orchestration)
            for command in point.commands
            if isinstance(command, Correlate) and not isinstance(command, Forget)
        },
    )


def _persist(session: WorkerSession, instances: Sequence[ActiveInstance], bound: dict[uuid.UUID, _Bound]) -> Outcomes:
    stored: set[uuid.UUID] = set()
    interrupted: set[uuid.UUID] = set()
    is_repeated = False

    def work(connection: Connection, outbox: Outbox) -> None:
        nonlocal stored, interrupted, is_repeated
        if is_repeated:  # the routing was changed, and with it perhaps the bindings
            _bind_again(session, instances, bound)
        is_repeated = True
        stored, interrupted = _write(session, connection, instances, bound)
        for instance in instances:
            if instance.claimed.instance_id in stored:
                _publish(outbox, instance, bound[instance.claimed.instance_id].messages)

    session.agent.transaction(work, correct=lambda _: _bind_again(session, instances, bound))
    outcomes: Outcomes = {}
    for instance_id in (instance.claimed.instance_id for instance in instances):
        if instance_id not in stored:
            outcomes[instance_id] = ClaimLost(
                f"Another host instance works on the orchestration instance {instance_id}."
            )
        elif instance_id in interrupted:
            outcomes[instance_id] = ClaimLost(f"An operator suspends or terminates the instance {instance_id}.")
        else:
            outcomes[instance_id] = {}
    return outcomes


def _publish(outbox: Outbox, instance: ActiveInstance, messages: Mapping[int, Message]) -> None:
    assert instance.point is not None
    for send in instance.point.sends:
        if send.direct_port == CALLER:
            outbox.answer(messages[send.number])
        else:
            outbox.publish(messages[send.number])


def _bind_again(session: WorkerSession, instances: Sequence[ActiveInstance], bound: dict[uuid.UUID, _Bound]) -> bool:
    """Bind the logical ports again, as ports and bindings are now. Return False if that changes nothing."""
    ports, before = session.read_ports(), dict(bound)
    for instance in instances:
        with suppress(NotFound, StateError):
            bound[instance.claimed.instance_id] = _bind_to(ports, instance)
    return bound != before


def _write(
    session: WorkerSession,
    connection: Connection,
    instances: Sequence[ActiveInstance],
    bound: Mapping[uuid.UUID, _Bound],
) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Write the persistence points without their messages. Return the ids of the instances that were stored, and of
    those that must not continue after that."""
    procedures = session.procedures
    ended: list[JournalEntry] = []
    waiting: list[JournalEntry] = []
    restarted: list[tuple[JournalEntry, object]] = []
    answered: list[tuple[uuid.UUID, uuid.UUID]] = []
    faulted: list[tuple[JournalEntry, Sequence[uuid.UUID], str]] = []
    for instance in instances:
        point = instance.point
        assert point is not None
        keeps_journal = not point.has_ended and point.continuation is None
        entry = JournalEntry(
            claimed=instance.claimed,
            journal_length=instance.journal_length,
            turns=[turn.to_json() for turn in point.turns] if keeps_journal else (),
            consumed=point.consumed,
            wake_at=point.wake_at,
            is_released=point.is_waiting,
            suspension=point.suspension,
        )
        if point.has_ended:
            ended.append(entry)
        elif point.continuation is not None:
            restarted.append((entry, to_recorded(point.continuation.state)))
        else:
            waiting.append(entry)
        if not point.has_ended:
            answered += [(instance.claimed.instance_id, request) for request in point.answered]
        if point.unanswered:
            faulted.append((entry, point.unanswered, _describe_end(instance)))
    if len(restarted) + bool(ended) + bool(waiting) + bool(answered) + len(faulted) > 1:
        procedures.lock(connection, [instance.claimed.instance_id for instance in instances])
    if answered:
        procedures.answer_requests(connection, answered)
    for entry, requests, what in faulted:
        procedures.fault_requests(connection, entry, requests, what=what)
    stored: set[uuid.UUID] = set()
    interrupted: set[uuid.UUID] = set()
    if waiting:
        stored, interrupted = procedures.persist(connection, waiting)
        stored_instances = [instance for instance in instances if instance.claimed.instance_id in stored]
        _write_commands(session, connection, stored_instances, bound)
    for entry, carried in restarted:
        if procedures.restart(connection, entry, carried=carried):
            stored.add(entry.claimed.instance_id)
    if ended:
        stored |= procedures.end(connection, ended)
    return stored, interrupted


def _describe_end(instance: ActiveInstance) -> str:
    """Return what a caller learns about an instance that has ended without an answer."""
    if (reason := instance.execution.termination) is not None:
        return f"has terminated itself: {reason}"
    return f"has {'ended' if instance.execution.continuation is None else 'started again'} without an answer."


def _write_commands(
    session: WorkerSession,
    connection: Connection,
    instances: Sequence[ActiveInstance],
    bound: Mapping[uuid.UUID, _Bound],
) -> None:
    """Create and remove the subscriptions of instances."""
    for instance in instances:
        point = instance.point
        assert point is not None
        instance_id = instance.claimed.instance_id
        for command in point.commands:
            if isinstance(command, Forget):
                session.subscriptions.stop_waiting(connection, instance_id, command.filter)
            elif isinstance(command, Correlate):
                orchestration = instance.orchestration
                session.subscriptions.wait(
                    connection,
                    SubscribingService(service_id=orchestration.service_id, name=orchestration.name),
                    instance_id,
                    bound[instance_id].filters[command.number],
                    ordered=orchestration.is_ordered,
                )


def _find_failures(
    error: PublishFailed, instances: Sequence[ActiveInstance], bound: Mapping[uuid.UUID, _Bound]
) -> Outcomes:
    """Return the outcomes of the instances whose messages cannot be published. The others have none yet."""
    failed = {result.message_id: result for result in error.results if result.failure is not None}
    outcomes: Outcomes = {}
    for instance in instances:
        sends = {
            number: failed[message.message_id]
            for number, message in bound[instance.claimed.instance_id].messages.items()
            if message.message_id in failed
        }
        if not sends:
            continue
        reasons = {
            number: result.failure.what
            for number, result in sends.items()
            if isinstance(result.failure, RoutingFailure)
        }
        is_unroutable = len(reasons) == len(sends)
        outcomes[instance.claimed.instance_id] = reasons if is_unroutable else PublishFailed(list(sends.values()))
    return outcomes
