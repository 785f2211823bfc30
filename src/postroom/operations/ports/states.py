"""The states of send ports, send port groups and orchestrations, and the allowed transitions (SPT-01, SPT-02).

bound ──enlist──► stopped ──start──► started          starting a bound port enlists it first
  ▲                  │  ▲               │             unenlisting a started port stops it first
  └────unenlist──────┘  └─────stop──────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from psycopg.pq import TransactionStatus

from postroom.errors import StateError
from postroom.messagebox.configuration.endpoints import PortState
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import OrchestrationState
from postroom.operations.audit import record_action
from postroom.operations.instances.bulk_operations import run_operation

State = PortState | OrchestrationState

#: The operations that are allowed in each state.
_TRANSITIONS = {
    "bound": ("enlist", "start"),
    "stopped": ("start", "unenlist"),
    "started": ("stop", "unenlist"),
}
#: The state that each operation leads to.
_TARGETS = {
    "enlist": "stopped",
    "start": "started",
    "stop": "stopped",
    "unenlist": "bound",
}


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """The result of an operation. ``resumed`` is the number of messages that were resumed. ``operation_id`` is the
    operation that resumes the others."""

    name: str
    before: State
    after: State
    resumed: int = 0
    operation_id: int | None = None


def check_transition(operation: str, what: str, state: State) -> None:
    """Raise StateError if the state does not allow the operation. ``what`` is the subject: ``Port 'Europe'``."""
    name = state.name.lower()
    if operation not in _TRANSITIONS[name]:
        allowed = " or ".join(f"'{other}'" for other in _TRANSITIONS[name])
        problem = f"is already {name}" if _TARGETS[operation] == name else f"is {name} and cannot {operation}"
        raise StateError(f"{what} {problem}.", hint=f"Possible operations: {allowed}.")


def record_state_change(connection: Connection, action: str, name: str, before: State, after: State) -> None:
    """Record the new state of a port, group or orchestration in the audit."""
    record_action(connection, action, name, before={"state": before.name.lower()}, after={"state": after.name.lower()})


def finish_resuming(connection: Connection, change: StateChange) -> StateChange:
    """Resume the messages that a start has left to an operation. Return the change with the number of all. Inside a
    transaction, leave them to the hosts."""
    if change.operation_id is None or connection.info.transaction_status is not TransactionStatus.IDLE:
        return change
    rest = run_operation(connection, change.operation_id).changed
    return replace(change, resumed=change.resumed + rest, operation_id=None)
