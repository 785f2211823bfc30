"""The states of send ports, send port groups and orchestrations, and the allowed transitions (SPT-01, SPT-02).

bound ──enlist──► stopped ──start──► started          starting a bound port enlists it first
  ▲                  │  ▲               │             unenlisting a started port stops it first
  └────unenlist──────┘  └─────stop──────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from psycopg.pq import TransactionStatus

from postroom.errors import StateError
from postroom.messagebox.configuration.endpoints import PortState
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.orchestrations import OrchestrationState
from postroom.operations.audit import record_action
from postroom.operations.instances.bulk_operations import run_operation
from postroom.operations.ports.enlistment import Resumed

State = PortState | OrchestrationState


class HasState(Protocol):
    """A send port, a send port group or an orchestration."""

    @property
    def state(self) -> State: ...


T = TypeVar("T", bound=HasState)

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


class StateOperations(Generic[T]):
    """Enlists, starts, stops and unenlists send ports, send port groups or orchestrations.

    ``what`` is the subject of errors and, in lower case, of the audit: "Port". ``find`` returns the one with a name, or
    raises NotFound. The functions of the four operations return it in its new state.
    """

    def __init__(
        self,
        what: str,
        find: Callable[[Connection, str], T],
        *,
        enlist: Callable[[Connection, T], T],
        start: Callable[[Connection, T], tuple[T, Resumed]],
        stop: Callable[[Connection, T], T],
        unenlist: Callable[[Connection, T], T],
    ) -> None:
        self._what = what
        self._find = find
        self._enlist = enlist
        self._start = start
        self._stop = stop
        self._unenlist = unenlist

    def enlist(self, connection: Connection, name: str) -> StateChange:
        """Create the subscription of what is bound. Messages that match it are suspended until the start."""
        return self._change(connection, "enlist", name, lambda c, one: (self._enlist(c, one), Resumed()))

    def start(self, connection: Connection, name: str) -> StateChange:
        """Start the subscription. What is bound is enlisted first. Messages that were suspended because it was stopped
        are resumed, in order."""

        def start(connection: Connection, one: T) -> tuple[T, Resumed]:
            is_bound = one.state.name == "BOUND"
            return self._start(connection, self._enlist(connection, one) if is_bound else one)

        return self._change(connection, "start", name, start)

    def stop(self, connection: Connection, name: str) -> StateChange:
        """Stop the subscription. New messages are suspended. Messages in the work queue are still delivered, and
        instances of orchestrations continue (ORS-03)."""
        return self._change(connection, "stop", name, lambda c, one: (self._stop(c, one), Resumed()))

    def unenlist(self, connection: Connection, name: str) -> StateChange:
        """Remove the subscription. Instances stay. They can be resumed or terminated."""
        return self._change(connection, "unenlist", name, lambda c, one: (self._unenlist(c, one), Resumed()))

    def _change(
        self, connection: Connection, operation: str, name: str, step: Callable[[Connection, T], tuple[T, Resumed]]
    ) -> StateChange:
        """Change a state under the exclusive routing lock, record it in the audit, and wake the hosts of resumed
        messages."""
        resumed = Resumed()

        def work(connection: Connection) -> StateChange:
            nonlocal resumed
            connection.execute("SELECT change_routing()")
            found = self._find(connection, name)
            check_transition(operation, f"{self._what} {name!r}", found.state)
            after, resumed = step(connection, found)
            record_action(
                connection,
                f"{self._what.split()[-1].lower()}.{operation}",
                name,
                before={"state": found.state.name.lower()},
                after={"state": after.state.name.lower()},
            )
            return StateChange(
                name=name,
                before=found.state,
                after=after.state,
                resumed=resumed.count,
                operation_id=resumed.operation_id,
            )

        change = operator_transaction(connection, work)
        if resumed.hosts:
            WakeUp(connection).send([host.name for host in read_hosts(connection) if host.host_id in resumed.hosts])
        return finish_resuming(connection, change)


def finish_resuming(connection: Connection, change: StateChange) -> StateChange:
    """Resume the messages that a start has left to an operation. Return the change with the number of all. Inside a
    transaction, leave them to the hosts."""
    if change.operation_id is None or connection.info.transaction_status is not TransactionStatus.IDLE:
        return change
    rest = run_operation(connection, change.operation_id).changed
    return replace(change, resumed=change.resumed + rest, operation_id=None)
