"""The states of send ports and send port groups, and the allowed transitions (SPT-01, SPT-02).

bound ──enlist──► stopped ──start──► started          starting a bound port enlists it first
  ▲                  │  ▲               │             unenlisting a started port stops it first
  └────unenlist──────┘  └─────stop──────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from psycopg.pq import TransactionStatus

from postroom.errors import StateError
from postroom.messagebox.configuration import PortState
from postroom.messagebox.connection import Connection
from postroom.operations.audit import record_action
from postroom.operations.instances.bulk_operations import run_operation

#: The operations that are allowed in each state.
_TRANSITIONS = {
    PortState.BOUND: ("enlist", "start"),
    PortState.STOPPED: ("start", "unenlist"),
    PortState.STARTED: ("stop", "unenlist"),
}
#: The state that each operation leads to.
_TARGETS = {
    "enlist": PortState.STOPPED,
    "start": PortState.STARTED,
    "stop": PortState.STOPPED,
    "unenlist": PortState.BOUND,
}


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """The result of an operation. ``resumed`` is the number of messages that were resumed. ``operation_id`` is the
    operation that resumes the others."""

    name: str
    before: PortState
    after: PortState
    resumed: int = 0
    operation_id: int | None = None


def check_transition(operation: str, what: str, state: PortState) -> None:
    """Raise StateError if the state does not allow the operation. ``what`` is the subject: ``Port 'Europe'``."""
    if operation not in _TRANSITIONS[state]:
        allowed = " or ".join(f"'{other}'" for other in _TRANSITIONS[state])
        name = state.name.lower()
        problem = f"is already {name}" if _TARGETS[operation] is state else f"is {name} and cannot {operation}"
        raise StateError(f"{what} {problem}.", hint=f"Possible operations: {allowed}.")


def record_state_change(connection: Connection, action: str, name: str, before: PortState, after: PortState) -> None:
    """Record the new state of a port or group in the audit."""
    record_action(connection, action, name, before={"state": before.name.lower()}, after={"state": after.name.lower()})


def finish_resuming(connection: Connection, change: StateChange) -> StateChange:
    """Resume the messages that a start has left to an operation. Return the change with the number of all. Inside a
    transaction, leave them to the hosts."""
    if change.operation_id is None or connection.info.transaction_status is not TransactionStatus.IDLE:
        return change
    rest = run_operation(connection, change.operation_id).changed
    return replace(change, resumed=change.resumed + rest, operation_id=None)
