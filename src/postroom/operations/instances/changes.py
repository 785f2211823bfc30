"""Resume, suspend, reroute, skip and terminate one or many instances (INS-05, 08, 09).

change_instances(connection, "resume", [first, second])           # all or none of them
change_all(connection, "reroute", InstanceQuery(port="Europe"))   # to the current subscribers, in pieces
resume_with_body(connection, instance_id, b"...")                 # a corrected one
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from postroom.application.definition import HOLD_BACK_HINT
from postroom.errors import PostroomError, StateError
from postroom.message import Body, Bytes, Part
from postroom.messagebox.audit import record_action
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.instance_operations import BulkOperation as BulkOperation
from postroom.messagebox.instance_operations import OperationKind as OperationKind
from postroom.messagebox.instance_operations import (
    change_now,
    find_pending_operation,
    read_suspended_bodies,
    replace_body,
    resume_unrecorded,
    run_operation,
    skip_message,
    start_operation,
)
from postroom.messagebox.instance_operations import list_operations as list_operations
from postroom.messagebox.instances import Instance, InstanceQuery, InstanceState, get_instance
from postroom.messagebox.queues import DELIVERIES, OUT_OF_ORDER, UNRECEIVED, Cause, QueueTask, derive_delivery_id

Value = TypeVar("Value")

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
        # A message that a pipeline has to read first, or that joined an instance, cannot be rerouted. A message that an
        # ended instance has not received can, although it is not resumable.
        tasks=(*DELIVERIES, QueueTask.PUBLISH, QueueTask.REROUTE),
    ),
    "suspend": _Rule(done="suspended", states=[*_CAN_BE_SUSPENDED, InstanceState.ACTIVE]),
    "terminate": _Rule(done="terminated", states=[*_CAN_BE_SUSPENDED, *_SUSPENDED, InstanceState.ACTIVE]),
}


@dataclass(frozen=True, kw_only=True)
class ChangedInstances:
    """The number of changed instances. ``pending`` ones are active, and are changed when their present attempt has
    ended without success. ``messages`` were terminated. ``hosts`` are the hosts that got instances to process, with
    their number."""

    changed: int
    pending: int = 0
    messages: int = 0
    hosts: Mapping[str, int] = field(default_factory=dict)


def change_instances(
    connection: Connection, kind: OperationKind, ids: Sequence[uuid.UUID], *, all_messages: bool = False
) -> ChangedInstances:
    """Change all of the instances or, if the state of one does not allow it, none. Then raise StateError (INS-05).

    Suspending and terminating also change active instances, later. Of an ordered send port only the first message is
    terminated, unless ``all_messages`` is True. A terminated instance is deleted with its subscriptions. Its messages
    are deleted unless another instance refers to them. A rerouted one is published again by its host, to the
    subscribers that it was not routed to before. If there is none, the host suspends it again."""
    distinct = list(dict.fromkeys(ids))

    def work(connection: Connection) -> ChangedInstances:
        done = change_now(connection, kind, distinct, first_only=kind == "terminate" and not all_messages)
        changed = {one.instance_id for one in done}
        if refused := next((id for id in distinct if id not in changed), None):
            _refuse(connection, kind, refused, others=len(distinct) > 1)
        pending = sum(one.pending for one in done)
        return ChangedInstances(
            changed=len(done) - pending,
            pending=pending,
            messages=sum(one.messages for one in done),
            hosts=Counter(one.host for one in done if one.host is not None),
        )

    return operator_transaction(connection, work)


def change_all(
    connection: Connection,
    kind: OperationKind,
    query: InstanceQuery,
    *,
    all_messages: bool = False,
    target: str = "instances",
    report: Callable[[BulkOperation], None] = lambda _operation: None,
) -> BulkOperation:
    """Change every instance that matches the query and whose state allows it, in pieces. Otherwise the same as
    ``change_instances``. ``target`` describes the query. ``report`` is called after each piece."""
    operation_id = start_operation(
        connection, kind, restrict(kind, query), target=target, first_only=kind == "terminate" and not all_messages
    )
    return run_operation(connection, operation_id, report=report)


def restrict(kind: OperationKind, query: InstanceQuery) -> InstanceQuery:
    """Return the query, restricted to the instances that the operation can change."""
    rule = _RULES[kind]
    return replace(
        query,
        states=_intersect(query.states, rule.states),
        tasks=_intersect(query.tasks, rule.tasks),
        unreceived=kind == "reroute"
        and (query.states is None or InstanceState.SUSPENDED_NOT_RESUMABLE in query.states)
        and (query.tasks is None or QueueTask.JOIN_INSTANCE in query.tasks),
    )


def get_done(kind: OperationKind) -> str:
    """Return what instances are after the operation: ``resumed``."""
    return _RULES[kind].done


def resume_with_body(connection: Connection, instance_id: uuid.UUID, body: bytes | Body) -> ChangedInstances:
    """Resume a suspended instance with another body. Raise StateError if it cannot be resumed.

    Other instances keep the stored message: this instance gets a copy with the same context and the new body
    (RCV-15)."""

    def work(connection: Connection) -> list[str]:
        before = get_instance(connection, instance_id)
        if not _replace_body(connection, instance_id, Bytes(body) if isinstance(body, bytes) else body):
            raise _build_body_error(before)
        hosts = resume_unrecorded(connection, [instance_id])
        old = {"state": before.state, "service": before.display_name, "error_code": before.error_code}
        new = {"state": InstanceState.READY_TO_RUN}
        record_action(connection, "instance.resume-with-body", str(instance_id), before=old, after=new)
        if not hosts:
            raise _build_state_error(get_instance(connection, instance_id), "resumed")
        return list(hosts.values())

    hosts = operator_transaction(connection, work)
    WakeUp(connection).send(hosts)
    return ChangedInstances(changed=1, hosts=Counter(hosts))


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
            after = {"instances": len(ids), "state": InstanceState.READY_TO_RUN, "ids": ids}
            record_action(connection, "instance.resume-with-body", f"{len(ids):,} instances", after=after)
        return resumed

    hosts = operator_transaction(connection, work)
    WakeUp(connection).send(set(hosts.values()))
    return len(hosts)


def reroute_deliveries(connection: Connection, query: InstanceQuery) -> Mapping[str, int]:
    """Reroute every message for a send port that matches the query, even if it is ready to run or waits for a retry.
    Return their number by host. What is rerouted already stays as it is."""
    deliveries = replace(query, tasks=DELIVERIES)
    change_all(connection, "suspend", replace(deliveries, states=_CAN_BE_SUSPENDED))
    return change_all(connection, "reroute", deliveries).hosts


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
        if not skip_message(connection, instance_id, instance.seq, skipped):
            raise _build_state_error(get_instance(connection, instance_id), "skipped")
        return skipped

    return operator_transaction(connection, work)


# -- steps ---------------------------------------------------------------------------------------------------------


def _intersect(chosen: Collection[Value] | None, possible: Collection[Value] | None) -> Collection[Value] | None:
    """Return what is chosen and possible. None stands for everything."""
    if chosen is None or possible is None:
        return possible if chosen is None else chosen
    return [value for value in possible if value in chosen]


def format_rerouted(hosts: Mapping[str, int], *, of: str = "") -> str:
    """Return who reroutes instances: ``3 instances of Europe will be routed again by host Main.``"""
    count = sum(hosts.values())
    names = " and ".join(sorted(hosts))
    by = f" by {'host' if len(hosts) == 1 else 'hosts'} {names}" if hosts else ""
    return f"{count:,} {'instance' if count == 1 else 'instances'}{f' of {of}' if of else ''} will be routed again{by}."


def _refuse(connection: Connection, kind: OperationKind, instance_id: uuid.UUID, *, others: bool) -> NoReturn:
    """Raise the error that explains why an instance was not changed, and ``others`` with it."""
    try:
        instance = get_instance(connection, instance_id)
        if instance.state is InstanceState.ACTIVE and (pending := find_pending_operation(connection, instance_id)):
            raise StateError(
                f"Instance {instance_id} cannot be {get_done(kind)}: another operation is pending for it ({pending}).",
                why="It is active. The operation is carried out when its present attempt has ended.",
                hint="See 'postroom instance operations'.",
            )
        raise _build_state_error(instance, get_done(kind))
    except PostroomError as error:
        if others:
            error.hint = f"{error.hint} The others were not changed.".strip()
        raise


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


def _build_body_error(instance: Instance) -> StateError:
    """Return the error that explains why an instance has no body that can be replaced."""
    if instance.state is not InstanceState.SUSPENDED:
        return _build_state_error(instance, "given another body")
    return StateError(
        f"Instance {instance.instance_id} cannot be given another body: it is an orchestration that has started.",
        why="It has received its messages, and continues from its journal.",
        hint="Resume it without a body, or terminate it and publish the corrected message.",
    )


def _build_state_error(instance: Instance, done: str) -> StateError:
    """Return the error that explains why the state of an instance does not allow an operation."""
    what = f"Instance {instance.instance_id} cannot be {done}: it is {instance.state}."
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
                f"again. Then terminate it. {HOLD_BACK_HINT}",
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE if instance.error_code == UNRECEIVED:
            return StateError(
                what,
                why="The orchestration instance ended without receiving the message.",
                hint="Publish it to the current subscribers: postroom instance reroute "
                f"{instance.instance_id}. Or terminate it.",
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
            return StateError(
                what,
                why="The instance is not suspended.",
                hint=f"See 'postroom instance show {instance.instance_id}'.",
            )


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
