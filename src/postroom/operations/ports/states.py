"""The states of send ports, send port groups and orchestrations, and the allowed transitions (SPT-01, SPT-02).

bound ──enlist──► stopped ──start──► started          starting a bound port enlists it first
  ▲                  │  ▲               │             unenlisting a started port stops it first
  └────unenlist──────┘  └─────stop──────┘
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from psycopg.pq import TransactionStatus

from postroom.errors import StateError
from postroom.messagebox.audit import record_action
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.coordination.running_processes import change_routing
from postroom.messagebox.instance_operations import run_operation
from postroom.messagebox.service_states import Resumed, start_or_stop_service
from postroom.operations.all_or_none import all_or_none
from postroom.operations.records import extend


class HasState(Protocol):
    """A send port, a send port group or an orchestration."""

    @property
    def state(self) -> ServiceState: ...


T = TypeVar("T", bound=HasState)

#: The operations that are allowed in each state.
_TRANSITIONS = {
    ServiceState.BOUND: ("enlist", "start"),
    ServiceState.STOPPED: ("start", "unenlist"),
    ServiceState.STARTED: ("stop", "unenlist"),
}
#: The state that each operation leads to.
_TARGETS = {
    "enlist": ServiceState.STOPPED,
    "start": ServiceState.STARTED,
    "stop": ServiceState.STOPPED,
    "unenlist": ServiceState.BOUND,
}


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """The result of an operation. ``resumed`` is the number of messages that were resumed."""

    name: str
    before: ServiceState
    after: ServiceState
    resumed: int = 0


@dataclass(frozen=True, kw_only=True)
class _UnfinishedStart(StateChange):
    """A start that leaves messages to an operation, which resumes them."""

    operation_id: int


def change_states(
    connection: Connection, names: Sequence[str], change: Callable[[Connection, str], StateChange]
) -> list[StateChange]:
    """Change the states of several in one transaction, and return the results in order. Duplicate names are changed
    once. Resume the messages that the starts have left to operations.

    >>> change_states(connection, ["Europe", "Audit"], send_ports.stop)
    """
    return [_finish_resuming(connection, changed) for changed in all_or_none(connection, names, change)]


def check_transition(operation: str, what: str, state: ServiceState) -> None:
    """Raise StateError if the state does not allow the operation. ``what`` is the subject: ``Port 'Europe'``."""
    if operation not in _TRANSITIONS[state]:
        allowed = " or ".join(f"'{other}'" for other in _TRANSITIONS[state])
        is_target = _TARGETS[operation] is state
        problem = f"is already {state.value}" if is_target else f"is {state.value} and cannot {operation}"
        raise StateError(f"{what} {problem}.", hint=f"Possible operations: {allowed}.")


class StateOperations(Generic[T]):
    """Enlists, starts, stops and unenlists send ports, send port groups or orchestrations.

    ``what`` is the subject of errors: "Port". ``find`` returns the one with a name, or raises NotFound. ``enlist`` and
    ``unenlist`` return it in its new state. ``check_start`` raises StateError if it cannot be started.
    """

    def __init__(
        self,
        what: str,
        kind: Literal["port", "group", "orchestration"],
        find: Callable[[Connection, str], T],
        *,
        get_id: Callable[[T], uuid.UUID],
        enlist: Callable[[Connection, T], T],
        unenlist: Callable[[Connection, T], T],
        check_start: Callable[[Connection, T], None] = lambda _connection, _one: None,
    ) -> None:
        self._what = what
        self._kind = kind
        self._find = find
        self._get_id = get_id
        self._enlist = enlist
        self._unenlist = unenlist
        self._check_start = check_start

    def enlist(self, connection: Connection, name: str) -> StateChange:
        """Create the subscription of what is bound. Messages that match it are suspended until the start."""
        return operator_transaction(connection, lambda c: self._configure(c, "enlist", name, self._enlist))

    def unenlist(self, connection: Connection, name: str) -> StateChange:
        """Remove the subscription. Instances stay. They can be resumed or terminated."""
        return operator_transaction(connection, lambda c: self._configure(c, "unenlist", name, self._unenlist))

    def start(self, connection: Connection, name: str) -> StateChange:
        """Start the subscription. What is bound is enlisted first. Messages that were suspended because it was stopped
        are resumed, in order."""
        return self._start_or_stop(connection, "start", name)

    def stop(self, connection: Connection, name: str) -> StateChange:
        """Stop the subscription. New messages are suspended. Messages in the work queue are still delivered, and
        instances of orchestrations continue (ORS-03)."""
        return self._start_or_stop(connection, "stop", name)

    def _configure(
        self, connection: Connection, operation: str, name: str, step: Callable[[Connection, T], T]
    ) -> StateChange:
        """Enlist or unenlist under the exclusive routing lock, and record it in the audit."""
        change_routing(connection)
        found = self._find_allowed(connection, operation, name)
        after = step(connection, found)
        record_action(
            connection,
            f"{self._kind}.{operation}",
            name,
            before={"state": found.state.value},
            after={"state": after.state.value},
        )
        return StateChange(name=name, before=found.state, after=after.state)

    def _start_or_stop(self, connection: Connection, operation: Literal["start", "stop"], name: str) -> StateChange:
        """Start or stop, and wake the hosts of resumed messages."""
        resumed = Resumed()

        def work(connection: Connection) -> StateChange:
            nonlocal resumed
            found = self._find_allowed(connection, operation, name)
            if found.state is ServiceState.BOUND:
                self._configure(connection, "enlist", name, self._enlist)
            if operation == "start":
                self._check_start(connection, self._find(connection, name))
            resumed = start_or_stop_service(connection, self._get_id(found), start=operation == "start")
            change = StateChange(name=name, before=found.state, after=_TARGETS[operation], resumed=resumed.count)
            unfinished = resumed.operation_id
            return change if unfinished is None else extend(change, _UnfinishedStart, operation_id=unfinished)

        change = operator_transaction(connection, work)
        if resumed.hosts:
            WakeUp(connection).send([host.name for host in read_hosts(connection) if host.host_id in resumed.hosts])
        return _finish_resuming(connection, change)

    def _find_allowed(self, connection: Connection, operation: str, name: str) -> T:
        """Return the one with this name. Raise StateError if its state does not allow the operation."""
        found = self._find(connection, name)
        check_transition(operation, f"{self._what} {name!r}", found.state)
        return found


def _finish_resuming(connection: Connection, change: StateChange) -> StateChange:
    """Resume the messages that a start has left to an operation. Return the change with the number of all. Inside a
    transaction, leave them to the hosts."""
    if not isinstance(change, _UnfinishedStart) or connection.info.transaction_status is not TransactionStatus.IDLE:
        return change
    rest = run_operation(connection, change.operation_id).changed
    return StateChange(name=change.name, before=change.before, after=change.after, resumed=change.resumed + rest)
