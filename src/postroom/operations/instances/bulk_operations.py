"""Operations on many instances, in pieces: each piece is a transaction, so an operation continues after a crash.

    operation_id = start_operation(connection, "terminate", InstanceQuery(port="Europe"), target="port Europe")
    run_operation(connection, operation_id, report=print)

The chosen instances are stored with the operation. The command that started it carries it out, and so do the jobs of
the hosts. So a command that is interrupted does not stop it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from postroom.messagebox.connection import Connection, operator_transaction, read_value
from postroom.messagebox.maintenance.jobs import OPERATION_PIECE
from postroom.messagebox.statements import statement
from postroom.operations.instances.listing import InstanceQuery, select_instances

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


def start_single(
    connection: Connection, kind: OperationKind, instance_id: uuid.UUID, *, first_only: bool = False
) -> int:
    """Store an operation on one active instance, in the caller's transaction. Return its id."""
    call = "SELECT start_operation(%s, %s, %s, %s)"
    operation_id = int(read_value(connection, call, kind, f"instance {instance_id}", [instance_id], first_only))
    # Marks the instance, so that no other operation can become pending.
    connection.execute("SELECT continue_operation(%s, 1)", (operation_id,))
    return operation_id


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
    rows = connection.execute(statement("queries/list_operations"), {"id": operation_id, "limit": limit})
    names = (
        *("operation_id", "kind", "target", "requested_by", "requested_at", "reason", "total", "changed"),
        *("hosts", "finished_at", "remaining", "pending"),
    )
    return [BulkOperation(**dict(zip(names, row, strict=True))) for row in rows]
