"""Resume, suspend and terminate instances (INS-05, 08, 09), one or many.

resume(connection, instance_id)
resume(connection, instance_id, body=b"...")                    # mended: with another body
resume_all(connection, InstanceQuery(port="Europe"))
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from postroom.agent.wake_up import WakeUp
from postroom.errors import StateError
from postroom.message import Body, Bytes, Part
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.writing import Cause, write_part
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
    """The suspended instance is taken up again, even if its send port is stopped; StateError if it cannot be.

    ``body`` mends it first. The stored message stays as it is for whoever else refers to it: the instance gets a copy
    with the same context and the other body (RCV-15).
    """

    def work(connection: Connection) -> list[str]:
        if body is not None:
            _mend(connection, instance_id, Bytes(body) if isinstance(body, bytes) else body)
        hosts = _resume(connection, [instance_id])
        if not hosts:
            raise _refusal(get_instance(connection, instance_id), "resumed")
        return list(hosts.values())

    WakeUp(connection).send(transaction(connection, work))


def resume_all(connection: Connection, query: InstanceQuery) -> int:
    """Resumes every instance that meets the query and can be resumed; returns how many did."""
    wake_up = WakeUp(connection)
    resumed = 0
    for ids in iterate_batches(connection, _among(query, [InstanceState.SUSPENDED])):
        hosts = transaction(connection, partial(_resume, ids=ids))
        resumed += len(hosts)
        wake_up.send(set(hosts.values()))
    return resumed


def suspend(connection: Connection, instance_id: uuid.UUID) -> None:
    """An instance that is ready to run, or waits for its next attempt, is put aside until it is resumed."""
    if not _call(connection, "suspend_instances", [instance_id]):
        raise _refusal(get_instance(connection, instance_id), "suspended")


def suspend_all(connection: Connection, query: InstanceQuery) -> int:
    """Suspends every instance that meets the query and is not being worked on; returns how many were."""
    pieces = iterate_batches(connection, _among(query, _CAN_BE_SUSPENDED))
    return sum(_call(connection, "suspend_instances", ids) for ids in pieces)


def terminate(connection: Connection, instance_id: uuid.UUID) -> None:
    """The instance is deleted, with its subscriptions, and its messages too, unless somebody else refers to them."""
    if not _call(connection, "terminate_instances", [instance_id]):
        raise _refusal(get_instance(connection, instance_id), "terminated")


def terminate_all(connection: Connection, query: InstanceQuery) -> int:
    """Terminates every instance that meets the query and is not being worked on; returns how many were."""
    pieces = iterate_batches(connection, _among(query, _CAN_BE_TERMINATED))
    return sum(_call(connection, "terminate_instances", ids) for ids in pieces)


def _among(query: InstanceQuery, states: Collection[InstanceState]) -> InstanceQuery:
    """Of the states that the query asks for, those in which the operation is possible at all."""
    return replace(query, states=[state for state in states if query.states is None or state in query.states])


def _resume(connection: Connection, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """The instances that were resumed, with the names of their hosts."""
    rows = connection.execute(statement("queries/resume_instances"), (ids,))
    return dict(rows.fetchall())


def _call(connection: Connection, procedure: str, ids: list[uuid.UUID]) -> int:
    """How many instances it was; one with several messages comes once for each."""
    return transaction(connection, lambda it: len(set(it.execute(f"SELECT {procedure}(%s)", (ids,)).fetchall())))


def _mend(connection: Connection, instance_id: uuid.UUID, body: Body) -> None:
    rows = connection.execute(statement("queries/read_suspended_body"), (instance_id,)).fetchall()
    if not rows:
        raise _refusal(get_instance(connection, instance_id), "mended")
    if len(rows) > 1:
        raise StateError(
            f"Instance {instance_id} cannot be mended: {len(rows)} messages are suspended in it.",
            why="It is not clear which of them the other body is for.",
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


def _refusal(instance: Instance, done: str) -> StateError:
    """Why an instance that is there cannot be resumed, suspended, terminated or mended."""
    what = f"Instance {instance.instance_id} cannot be {done}: it is {instance.state.label}."
    match instance.state:
        case InstanceState.ACTIVE:
            return StateError(
                what, why="A host instance is working on it right now.", hint="Try again when that attempt is over."
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE if instance.cause is Cause.ROUTING_FAILURE_REPORT:
            return StateError(
                what,
                why="It is a routing failure report: the context of a message that nobody subscribed to.",
                hint=_instead_of_the_report(instance),
            )
        case InstanceState.SUSPENDED_NOT_RESUMABLE:
            return StateError(what, why=instance.reason, hint="Terminate it, and have the message sent again.")
        case InstanceState.SUSPENDED:
            return StateError(what, hint="Resume or terminate it.")
        case _:
            return StateError(what, why="Only a suspended instance can be.", hint="There is nothing to do.")


def _instead_of_the_report(instance: Instance) -> str:
    """Where the message is that a report is about."""
    if instance.related_instance_id is not None:
        return f"Resume instance {instance.related_instance_id}, which has the message."
    if instance.uri is not None:
        return "The message went on as an error message: look at the subscribers of that. Terminate the report."
    return "Publish the message again."
