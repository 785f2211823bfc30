"""Operations on many instances, in pieces: each piece is a transaction, so an operation continues after a crash.

    operation_id = start_operation(connection, "terminate", InstanceQuery(port="Europe"), target="port Europe")
    run_operation(connection, operation_id, report=print)

The chosen instances are stored with the operation. The command that started it carries it out, and so do the jobs of
the hosts. So a command that is interrupted does not stop it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from postroom.message import Part
from postroom.messagebox.connection import Connection, operator_transaction, read_records, read_value
from postroom.messagebox.instances import InstanceQuery, select_instances
from postroom.messagebox.maintenance.jobs import OPERATION_PIECE
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.copy_rows import write_part

OperationKind = Literal["resume", "reroute", "suspend", "terminate"]

#: How often a command looks at an operation that a host carries out at the moment.
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class BulkOperation:
    """An operation and its progress. ``remaining`` instances are still to be changed. ``pending`` of them were active,
    and are changed when their present attempt has ended. Both are 0 for the start of a port."""

    operation_id: int
    kind: str
    target: str
    requested_by: str
    requested_at: datetime
    reason: str | None
    total: int
    changed: int
    messages: int
    """The number of terminated messages."""
    hosts: Mapping[str, int]
    """The number of instances that hosts got to process, by the name of the host."""
    remaining: int
    pending: int
    finished_at: datetime | None

    @property
    def is_done(self) -> bool:
        """True if only instances that are active at the moment are left."""
        return self.finished_at is not None or (self.total > 0 and self.remaining == self.pending)


def start_operation(
    connection: Connection, kind: OperationKind, query: InstanceQuery, *, target: str, first_only: bool = False
) -> int:
    """Store an operation on all instances that match the query now, the oldest first. Return its id.

    With ``first_only`` it terminates only the first message of an ordered send port."""
    parameters = query.parameters()
    call = statement("queries/start_operation").replace("__INSTANCES__", select_instances("ASC"))
    more = {"kind": kind, "target": target, "first_only": first_only}

    def work(connection: Connection) -> int:
        [(operation_id,)] = connection.execute(call, parameters | more).fetchall()
        return int(operation_id)

    return operator_transaction(connection, work)


def find_pending_operation(connection: Connection, instance_id: uuid.UUID) -> str | None:
    """Return the kind of the operation that is pending for an instance, or None."""
    row = connection.execute(statement("queries/pending_operation"), (instance_id,)).fetchone()
    return None if row is None else str(row[0])


def run_operation(
    connection: Connection, operation_id: int, *, report: Callable[[BulkOperation], None] = lambda _operation: None
) -> BulkOperation:
    """Carry out an operation together with the hosts, until it is finished or only active instances are left.

    ``report`` is called after each piece."""
    while True:
        row = operator_transaction(
            connection,
            lambda it: it.execute(
                "SELECT handled FROM continue_operation(%s, %s)", (operation_id, OPERATION_PIECE)
            ).fetchone(),
        )
        operation = get_operation(connection, operation_id)
        report(operation)
        if operation.is_done:
            return operation
        if row is None:
            time.sleep(_POLL_SECONDS)  # a host carries out a piece


def get_operation(connection: Connection, operation_id: int) -> BulkOperation:
    """Return an operation with its progress."""
    [found] = _read(connection, operation_id=operation_id)
    return found


def list_operations(connection: Connection, *, limit: int | None = None) -> list[BulkOperation]:
    """Return the operations with their progress, the latest first."""
    return _read(connection, limit=limit)


def _read(connection: Connection, *, operation_id: int | None = None, limit: int | None = None) -> list[BulkOperation]:
    conditions = {"id": operation_id, "limit": limit}
    return read_records(connection, BulkOperation, statement("queries/list_operations"), conditions)


@dataclass(frozen=True, kw_only=True)
class ChangedInstance:
    """An instance that was changed. One that was active is ``pending``: it is changed when its present attempt has
    ended. ``host`` got a resumed or rerouted one. ``messages`` is the number of its terminated messages."""

    instance_id: uuid.UUID
    pending: bool
    host: str | None
    messages: int


def change_now(
    connection: Connection, kind: OperationKind, ids: Sequence[uuid.UUID], *, first_only: bool = False
) -> list[ChangedInstance]:
    """Change the instances whose state allows it, in the caller's transaction. The function records it in the audit,
    and wakes the hosts that get work."""
    call = "SELECT * FROM change_instances(%s, %s, %s)"
    return read_records(connection, ChangedInstance, call, (kind, list(ids), first_only))


def resume_unrecorded(connection: Connection, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Resume the instances whose state allows it, as a part of another change. Return those that were resumed, with
    the names of their hosts."""
    return dict(connection.execute(statement("queries/resume_instances"), (list(ids),)).fetchall())


def skip_message(connection: Connection, instance_id: uuid.UUID, seq: int, new_id: uuid.UUID) -> bool:
    """Let the first message of an ordered send port become the instance ``new_id``. The function records it in the
    audit. Return False if the message ``seq`` is not the first any more, or a host is sending it."""
    return bool(read_value(connection, "SELECT skip_message(%s, %s, %s)", instance_id, seq, new_id))


@dataclass(frozen=True, kw_only=True)
class SuspendedBody:
    """The body part of a suspended message, without its content."""

    name: str | None
    content_type: str | None
    charset: str | None


def read_suspended_bodies(connection: Connection, instance_id: uuid.UUID) -> list[SuspendedBody]:
    """Return the bodies of the suspended messages of an instance, and lock their rows."""
    query = "SELECT body_part_name AS name, content_type, charset FROM read_suspended_body(%s)"
    return read_records(connection, SuspendedBody, query, (instance_id,))


def replace_body(connection: Connection, instance_id: uuid.UUID, part: Part) -> None:
    """Give a suspended instance, whose row is locked, a copy of its message with this body."""
    write_part(connection, part)
    call = "SELECT replace_body(%s, %s, %s, %s)"
    replaced = read_value(connection, call, instance_id, uuid.uuid4(), part.part_id, part.name)
    assert replaced, "the row is locked"
