"""Resume, suspend, reroute, skip and terminate one or many instances (INS-05, 08, 09).

change_instances(connection, "resume", [first, second])           # all or none of them
change_all(connection, "reroute", InstanceQuery(port="Europe"))   # to the current subscribers, in pieces
resume(connection, instance_id, body=b"...")                      # with a corrected body
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from postroom.errors import StateError
from postroom.message import Body, Bytes, Part
from postroom.messagebox.audit import record_action
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.instance_operations import (
    BulkOperation,
    OperationKind,
    change_now,
    find_pending_operation,
    read_suspended_bodies,
    replace_body,
    resume_unrecorded,
    run_operation,
    set_first_message_aside,
    start_operation,
    start_single,
    suspend_unrecorded,
)
from postroom.messagebox.instances import (
    Instance,
    InstanceQuery,
    InstanceState,
    get_instance,
    iterate_batches,
    list_instances,
)
from postroom.messagebox.queues import OUT_OF_ORDER, derive_delivery_id
from postroom.messagebox.storage.copy_rows import DELIVERIES, Cause, QueueTask
from postroom.operations.all_or_none import all_or_none

_SUSPENDED = (InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE)
_CAN_BE_SUSPENDED = (
    InstanceState.READY_TO_RUN,
    InstanceState.DEHYDRATED,
    InstanceState.RETRYING,
    InstanceState.SCHEDULED,
)


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """The instances that an operation can change. ``done`` is what they are then."""

    done: str
    states: Collection[InstanceState]
    tasks: Collection[QueueTask] | None = None


_RULES: Mapping[OperationKind, _Rule] = {
    "resume": _Rule(done="resumed", states=[InstanceState.SUSPENDED]),
    "reroute": _Rule(
        done="rerouted",
        states=[InstanceState.SUSPENDED],
        # A message that a pipeline has to read first, or that joined an instance, cannot be rerouted.
        tasks=(*DELIVERIES, QueueTask.PUBLISH, QueueTask.REROUTE),
    ),
    "suspend": _Rule(done="suspended", states=[*_CAN_BE_SUSPENDED, InstanceState.ACTIVE]),
    "terminate": _Rule(done="terminated", states=[*_CAN_BE_SUSPENDED, *_SUSPENDED, InstanceState.ACTIVE]),
}


@dataclass(frozen=True, kw_only=True)
class ChangedInstances:
    """The number of changed instances. ``pending`` ones are active, and are changed when their present attempt has
    ended without success. ``hosts`` are the hosts that got instances to process, with their number."""

    changed: int
    pending: int = 0
    hosts: Mapping[str, int] = field(default_factory=dict)


class _Requeue(Protocol):
    """Moves instances into the work queues. Returns the ids of those that were moved, with the names of their hosts."""

    def __call__(self, connection: Connection, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]: ...


def change_instances(
    connection: Connection, kind: OperationKind, ids: Sequence[uuid.UUID], *, all_messages: bool = False
) -> ChangedInstances:
    """Change all of the instances or, if the state of one does not allow it, none. Then raise StateError (INS-05).

    Suspending and terminating also change active instances, later. Of an ordered send port only the first message is
    terminated, unless ``all_messages`` is True. A terminated instance is deleted with its subscriptions. Its messages
    are deleted unless another instance refers to them."""
    done = all_or_none(connection, ids, partial(_change_one, kind=kind, all_messages=all_messages))
    hosts: Counter[str] = Counter()
    for one in done:
        hosts.update(one.hosts)
    return ChangedInstances(
        changed=sum(one.changed for one in done), pending=sum(one.pending for one in done), hosts=hosts
    )


def change_all(
    connection: Connection, kind: OperationKind, query: InstanceQuery, *, all_messages: bool = False
) -> BulkOperation:
    """Change every instance that matches the query and whose state allows it, in pieces. Otherwise the same as
    ``change_instances``."""
    operation_id = start_operation(
        connection, kind, restrict(kind, query), target="instances", first_only=not all_messages
    )
    return run_operation(connection, operation_id)


def restrict(kind: OperationKind, query: InstanceQuery) -> InstanceQuery:
    """Return the query, restricted to the instances that the operation can change."""
    rule = _RULES[kind]
    return replace(_restrict_states(query, rule.states), tasks=query.tasks if rule.tasks is None else rule.tasks)


def get_done(kind: OperationKind) -> str:
    """Return what instances are after the operation: ``resumed``."""
    return _RULES[kind].done


def resume(connection: Connection, instance_id: uuid.UUID, *, body: bytes | Body | None = None) -> None:
    """Resume a suspended instance, even if its send port is stopped. Raise StateError if it cannot be resumed.

    ``body`` replaces the body of its message first. Other instances keep the stored message: this instance gets a copy
    with the same context and the new body (RCV-15)."""
    if body is None:
        _change_one(connection, instance_id, kind="resume")
        return

    def work(connection: Connection) -> list[str]:
        before = get_instance(connection, instance_id)
        if not _replace_body(connection, instance_id, Bytes(body) if isinstance(body, bytes) else body):
            raise _build_state_error(before, "given another body")
        hosts = resume_unrecorded(connection, [instance_id])
        old = {"state": before.state.label, "service": before.display_name, "error_code": before.error_code}
        new = {"state": InstanceState.READY_TO_RUN.label}
        record_action(connection, "instance.resume-with-body", str(instance_id), before=old, after=new)
        if not hosts:
            raise _build_state_error(get_instance(connection, instance_id), "resumed")
        return list(hosts.values())

    WakeUp(connection).send(operator_transaction(connection, work))


def resume_with_bodies(connection: Connection, bodies: Mapping[uuid.UUID, bytes]) -> int:
    """Resume suspended instances, each with another body, in one transaction. Skip those that are not suspended. Return
    the number of resumed instances."""

    def work(connection: Connection) -> dict[uuid.UUID, str]:
        found = [
            instance_id for instance_id, body in bodies.items() if _replace_body(connection, instance_id, Bytes(body))
        ]
        resumed = resume_unrecorded(connection, found)
        if resumed:
            ids = sorted(map(str, resumed))
            after = {"instances": len(ids), "state": InstanceState.READY_TO_RUN.label, "ids": ids}
            record_action(connection, "instance.resume-with-body", f"{len(ids):,} instances", after=after)
        return resumed

    hosts = operator_transaction(connection, work)
    WakeUp(connection).send(set(hosts.values()))
    return len(hosts)


def resume_all(connection: Connection, query: InstanceQuery) -> int:
    """Resume every instance that matches the query and can be resumed. Return their number."""
    return change_all(connection, "resume", query).changed


def reroute(connection: Connection, instance_id: uuid.UUID) -> str:
    """Let the host of a suspended instance publish its message again, to the subscribers that it was not routed to
    before. Return the name of the host.

    The host publishes the message and deletes the instance in one transaction. If no such subscription matches, the
    host suspends the instance again. Raise StateError if the instance cannot be rerouted."""
    [host] = _change_one(connection, instance_id, kind="reroute").hosts
    return host


def reroute_all(connection: Connection, query: InstanceQuery) -> Counter[str]:
    """Reroute every suspended instance that matches the query and can be rerouted. Return their number by host."""
    return Counter(change_all(connection, "reroute", query).hosts)


def reroute_deliveries(connection: Connection, query: InstanceQuery) -> Counter[str]:
    """Reroute every message for a send port that matches the query, even if it is ready to run or waits for a retry.
    Return their number by host. What is rerouted already stays as it is."""

    def suspend_and_reroute(connection: Connection, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
        suspend_unrecorded(connection, ids)
        return {id: host for id, host in change_now(connection, "reroute", ids).items() if host is not None}

    states = [*_CAN_BE_SUSPENDED, InstanceState.SUSPENDED]
    deliveries = replace(_restrict_states(query, states), tasks=DELIVERIES)
    return _requeue_all(connection, deliveries, suspend_and_reroute)


def suspend(connection: Connection, instance_id: uuid.UUID) -> bool:
    """Suspend an instance. Return False if it is active and its suspension is pending."""
    return not _change_one(connection, instance_id, kind="suspend").pending


def suspend_all(connection: Connection, query: InstanceQuery) -> int:
    """Suspend every instance that matches the query. Return the number of those that are not pending."""
    return change_all(connection, "suspend", query).changed


def terminate(connection: Connection, instance_id: uuid.UUID, *, all_messages: bool = False) -> bool:
    """Terminate an instance. Return False if it is active and its termination is pending."""
    return not _change_one(connection, instance_id, kind="terminate", all_messages=all_messages).pending


def terminate_all(connection: Connection, query: InstanceQuery, *, all_messages: bool = False) -> int:
    """Terminate every instance that matches the query. Return the number of those that are not pending."""
    return change_all(connection, "terminate", query, all_messages=all_messages).changed


def skip(connection: Connection, instance_id: uuid.UUID) -> uuid.UUID:
    """Move the first message of an ordered send port aside, so that the messages after it are sent. Return the instance
    that it is now: suspended, and if it is resumed later, out of order. Raise StateError if a host is sending it."""

    def work(connection: Connection) -> uuid.UUID:
        instance = get_instance(connection, instance_id)
        if instance.task is not QueueTask.DELIVER_IN_ORDER:
            raise StateError(
                f"Instance {instance_id} cannot be skipped: it is not an ordered send port.",
                why="No other messages wait for it.",
                hint="Resume or terminate it, or leave it as it is.",
            )
        skipped = derive_delivery_id(instance_id, instance.seq)  # a receiver recognises a repeat by this id
        if not set_first_message_aside(connection, instance_id, instance.seq, skipped):
            raise _build_state_error(get_instance(connection, instance_id), "skipped")
        return skipped

    return operator_transaction(connection, work)


# -- steps ---------------------------------------------------------------------------------------------------------


def _restrict_states(query: InstanceQuery, states: Collection[InstanceState]) -> InstanceQuery:
    """Return the query, restricted to the states in which the operation is possible."""
    return replace(query, states=[state for state in states if query.states is None or state in query.states])


def _requeue_all(
    connection: Connection,
    query: InstanceQuery,
    requeue: _Requeue,
) -> Counter[str]:
    """Move the instances that match the query into the work queues, a batch in each transaction. Return their number
    by host."""
    wake_up = WakeUp(connection)
    moved: Counter[str] = Counter()
    for ids in iterate_batches(connection, query):
        hosts = operator_transaction(connection, partial(requeue, ids=ids))
        moved.update(hosts.values())
        wake_up.send(set(hosts.values()))
    return moved


def format_rerouted(hosts: Mapping[str, int], *, of: str = "") -> str:
    """Return who reroutes instances: ``3 instances of Europe will be routed again by host Main.``"""
    count = sum(hosts.values())
    names = " and ".join(sorted(hosts))
    by = f" by {'host' if len(hosts) == 1 else 'hosts'} {names}" if hosts else ""
    return f"{count:,} {'instance' if count == 1 else 'instances'}{f' of {of}' if of else ''} will be routed again{by}."


def _change_one(
    connection: Connection, instance_id: uuid.UUID, *, kind: OperationKind, all_messages: bool = False
) -> ChangedInstances:
    """Change an instance. One that is active is suspended or terminated later, by a job."""
    first_only = kind == "terminate" and not all_messages

    def work(connection: Connection) -> ChangedInstances:
        # An instance that only waits for messages is in no queue.
        found = next(iter(list_instances(connection, InstanceQuery(ids=[instance_id], limit=1))), None)
        if first_only and found is not None and found.task is QueueTask.DELIVER_IN_ORDER:
            if set_first_message_aside(connection, instance_id, found.seq, None):
                return ChangedInstances(changed=1)
        elif changed := change_now(connection, kind, [instance_id]):
            return ChangedInstances(changed=1, hosts=Counter(filter(None, changed.values())))
        instance = get_instance(connection, instance_id)
        if instance.state is not InstanceState.ACTIVE or InstanceState.ACTIVE not in _RULES[kind].states:
            raise _build_state_error(instance, get_done(kind))
        if pending := find_pending_operation(connection, instance_id):
            raise StateError(
                f"Instance {instance_id} cannot be {get_done(kind)}: another operation is pending for it ({pending}).",
                why="It is active. The operation is carried out when its present attempt has ended.",
                hint="See 'postroom instance operations'.",
            )
        start_single(connection, kind, instance_id, first_only=first_only)
        return ChangedInstances(changed=0, pending=1)

    done = operator_transaction(connection, work)
    if done.hosts:
        WakeUp(connection).send(done.hosts)
    return done


def _replace_body(connection: Connection, instance_id: uuid.UUID, body: Body) -> bool:
    """Replace the body of a suspended instance. Return False if it is not suspended."""
    bodies = read_suspended_bodies(connection, instance_id)
    if not bodies:
        return False
    if len(bodies) > 1:
        raise StateError(
            f"Instance {instance_id} cannot be given another body: {len(bodies)} messages are suspended in it.",
            why="It is not clear which message the new body is for.",
            hint="Resume it as it is. Of an ordered send port, move the first message aside (postroom instance skip "
            f"{instance_id}), and resume that one with the body.",
        )
    [old] = bodies
    part = Part(
        name=old.name or "body",
        body=body,
        content_type=old.content_type or "application/octet-stream",
        charset=old.charset,
    )
    replace_body(connection, instance_id, part)
    return True


def _build_state_error(instance: Instance, done: str) -> StateError:
    """Return the error that explains why the state of an instance does not allow an operation."""
    what = f"Instance {instance.instance_id} cannot be {done}: it is {instance.state.label}."
    match instance.state:
        case InstanceState.ACTIVE:
            return StateError(
                what, why="A host instance is processing it now.", hint="Try again when this attempt has ended."
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE if instance.cause is Cause.ROUTING_FAILURE_REPORT:
            return StateError(
                what,
                why="It is a routing failure report: the context of a message that had no subscriber.",
                hint=_build_report_hint(instance),
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE if (instance.error_description or "").endswith(OUT_OF_ORDER):
            return StateError(
                what,
                why=OUT_OF_ORDER,
                hint=f"If it may arrive late, save it (postroom message save {instance.instance_id}) and publish it "
                "again. Then terminate it. To hold back the messages after a failure, set stop_on_failure=True.",
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE:
            return StateError(
                what, why=instance.reason, hint="Terminate it, and ask the sender to send the message again."
            )
        case InstanceState.SUSPENDED if instance.task is QueueTask.RECEIVE and done == "rerouted":
            return StateError(
                f"Instance {instance.instance_id} cannot be rerouted: its message was not received completely.",
                why="The pipeline of its receive location has to read it first.",
                hint="Resume it, which publishes its messages by the current subscriptions.",
            )
        case InstanceState.SUSPENDED if instance.task is QueueTask.JOIN_INSTANCE and done == "rerouted":
            return StateError(
                what, why="Its messages belong to an instance that has joined them.", hint="Resume or terminate it."
            )
        case InstanceState.SUSPENDED:
            return StateError(what, hint="Resume or terminate it.")
        case _:
            return StateError(what, why="The instance is not suspended.", hint="There is nothing to do.")


def _build_report_hint(instance: Instance) -> str:
    """Return a hint that names where the message of a report is."""
    if instance.related_instances > 1:
        return (
            f"Resume instances {instance.related_instance_id} to {instance.last_related_instance_id}, which have the"
            " messages: postroom instance resume --all --interchange INTERCHANGE."
        )
    if instance.related_instance_id is not None:
        return f"Resume instance {instance.related_instance_id}, which has the message."
    if instance.uri is not None:
        return "The message was routed as an error message: see the subscribers of that one. Terminate the report."
    return "Publish the message again."
