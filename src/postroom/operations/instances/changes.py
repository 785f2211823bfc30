"""Resume, suspend and terminate one or many instances (INS-05, 08, 09).

resume(connection, instance_id)
resume(connection, instance_id, body=b"...")                    # with a corrected body
resume_all(connection, InstanceQuery(port="Europe"))
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from postroom.errors import StateError
from postroom.message import Body, Bytes, Part
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.queues import WakeUp
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.copy_rows import Cause, write_part
from postroom.operations.instances.listing import (
    Instance,
    InstanceQuery,
    InstanceState,
    get_instance,
    iterate_batches,
)

_SUSPENDED = (InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE)
_CAN_BE_SUSPENDED = (InstanceState.READY_TO_RUN, InstanceState.DEHYDRATED)
_CAN_BE_TERMINATED = (*_CAN_BE_SUSPENDED, *_SUSPENDED)


def resume(connection: Connection, instance_id: uuid.UUID, *, body: bytes | Body | None = None) -> None:
    """Resume a suspended instance, even if its send port is stopped. Raise StateError if it cannot be resumed.

    ``body`` replaces the body of its message first. Other instances keep the stored message: this instance gets a copy
    with the same context and the new body (RCV-15)."""

    def work(connection: Connection) -> list[str]:
        if body is not None:
            _replace_body(connection, instance_id, Bytes(body) if isinstance(body, bytes) else body)
        hosts = _resume(connection, [instance_id])
        if not hosts:
            raise _build_state_error(get_instance(connection, instance_id), "resumed")
        return list(hosts.values())

    WakeUp(connection).send(operator_transaction(connection, work))


def resume_all(connection: Connection, query: InstanceQuery) -> int:
    """Resume every instance that matches the query and can be resumed. Return their number."""
    wake_up = WakeUp(connection)
    resumed = 0
    for ids in iterate_batches(connection, _restrict_states(query, [InstanceState.SUSPENDED])):
        hosts = operator_transaction(connection, partial(_resume, ids=ids))
        resumed += len(hosts)
        wake_up.send(set(hosts.values()))
    return resumed


def suspend(connection: Connection, instance_id: uuid.UUID) -> None:
    """Suspend an instance that is ready to run or waits for its next attempt."""
    if not _call(connection, "suspend_instances", [instance_id]):
        raise _build_state_error(get_instance(connection, instance_id), "suspended")


def suspend_all(connection: Connection, query: InstanceQuery) -> int:
    """Suspend every instance that matches the query and is not active. Return their number."""
    batches = iterate_batches(connection, _restrict_states(query, _CAN_BE_SUSPENDED))
    return sum(_call(connection, "suspend_instances", ids) for ids in batches)


def terminate(connection: Connection, instance_id: uuid.UUID) -> None:
    """Delete the instance and its subscriptions. Its messages are deleted unless another instance refers to them."""
    if not _call(connection, "terminate_instances", [instance_id]):
        raise _build_state_error(get_instance(connection, instance_id), "terminated")


def terminate_all(connection: Connection, query: InstanceQuery) -> int:
    """Terminate every instance that matches the query and is not active. Return their number."""
    batches = iterate_batches(connection, _restrict_states(query, _CAN_BE_TERMINATED))
    return sum(_call(connection, "terminate_instances", ids) for ids in batches)


def _restrict_states(query: InstanceQuery, states: Collection[InstanceState]) -> InstanceQuery:
    """Return the query, restricted to the states in which the operation is possible."""
    return replace(query, states=[state for state in states if query.states is None or state in query.states])


def _resume(connection: Connection, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Resume instances. Return the ids of those that were resumed, with the names of their hosts."""
    rows = connection.execute(statement("queries/resume_instances"), (ids,))
    return dict(rows.fetchall())


def _call(connection: Connection, procedure: str, ids: list[uuid.UUID]) -> int:
    """Call a procedure and return the number of changed instances. The procedure returns a row per message."""
    return operator_transaction(
        connection, lambda it: len(set(it.execute(f"SELECT {procedure}(%s)", (ids,)).fetchall()))
    )


def _replace_body(connection: Connection, instance_id: uuid.UUID, body: Body) -> None:
    rows = connection.execute("SELECT * FROM read_suspended_body(%s)", (instance_id,)).fetchall()
    if not rows:
        raise _build_state_error(get_instance(connection, instance_id), "given another body")
    if len(rows) > 1:
        raise StateError(
            f"Instance {instance_id} cannot be given another body: {len(rows)} messages are suspended in it.",
            why="It is not clear which message the new body is for.",
            hint="Resume it as it is, or terminate it and publish the messages again.",
        )
    [(name, content_type, charset)] = rows
    part = Part(
        name=name or "body", body=body, content_type=content_type or "application/octet-stream", charset=charset
    )
    write_part(connection, part)
    replaced = connection.execute(
        "SELECT replace_body(%s, %s, %s, %s)", (instance_id, uuid.uuid4(), part.part_id, part.name)
    ).fetchone()
    assert replaced == (True,), "the row is locked"


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
        case InstanceState.SUSPENDED_NOT_RESUMABLE:
            return StateError(
                what, why=instance.reason, hint="Terminate it, and ask the sender to send the message again."
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
