"""Plan and apply applications in one transaction.

    definition = load(Path("examples/orders/app.py"))
    plan(connection, definition, home=Path("orders-home")).changes
    apply(connection, definition, home=Path("orders-home"))

Decisions of operators are kept: an existing port keeps its state, and a location stays enabled or disabled. So does a
port or location with a new name that declares the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from psycopg.pq import TransactionStatus

from postroom.application import ApplicationDefinition
from postroom.errors import Problem
from postroom.messagebox.audit import record_action
from postroom.messagebox.configuration.services import lock_receive_location
from postroom.messagebox.connection import Connection, operator_transaction, transaction, use_one_snapshot
from postroom.messagebox.coordination.running_processes import change_routing, lock_deployment
from postroom.messagebox.streams.location_progress import count_unfinished_files
from postroom.operations.deployment.applications import check_application
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.compare import compare, find_problems
from postroom.operations.deployment.deployed import (
    Deployed,
    count_orphans,
    create_empty_deployment,
    read_deployed_for,
)
from postroom.operations.deployment.execute import Deployment
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.deployment.removals import (
    find_backlog_problems,
    find_removal_problems,
    find_removed_locations,
)


def plan_first_deployment(definition: ApplicationDefinition, *, home: Path) -> Plan:
    """Return what ``apply`` would do if there is no MessageBox yet."""
    return compare(definition, create_empty_deployment(), home)


def find_deployment_problems(
    connection: Connection,
    part: ApplicationDefinition,
    *,
    home: Path,
    other_names: Collection[str] = (),
    backlog: Backlog | None = None,
) -> tuple[Problem, ...]:
    """Return the conflicts of the valid ``part`` of an invalid application with the MessageBox.

    ``other_names`` are the ports and locations of the rest, with their old names. They are not removed."""
    deployed = _read_snapshot(connection, part)
    removable = replace(
        deployed,
        send_ports={name: port for name, port in deployed.send_ports.items() if name not in other_names},
        locations={name: location for name, location in deployed.locations.items() if name not in other_names},
    )
    return (
        *find_problems(part, deployed, home),
        *find_removal_problems(part, removable),
        *(find_backlog_problems(part, removable) if backlog is None else ()),
    )


def plan(
    connection: Connection, definition: ApplicationDefinition, *, home: Path, backlog: Backlog | None = None
) -> Plan:
    """Return what ``apply`` would do now, including conflicts with the MessageBox. Nothing is changed."""
    return compare(definition, _read_snapshot(connection, definition), home, backlog)


def _read_snapshot(connection: Connection, definition: ApplicationDefinition) -> Deployed:
    """Read the deployment in a transaction of its own, or in the snapshots of the caller's transaction."""
    is_outermost = connection.info.transaction_status is TransactionStatus.IDLE

    def work(connection: Connection) -> Deployed:
        if is_outermost:
            use_one_snapshot(connection)
        return count_orphans(connection, definition, read_deployed_for(connection, definition))

    return transaction(connection, work)


def plan_removal(connection: Connection, name: str, *, home: Path, backlog: Backlog | None = None) -> Plan:
    """Return what ``remove`` would do now. Nothing is changed. Raise NotFound if there is no such application."""
    check_application(connection, name)
    return plan(connection, ApplicationDefinition(name=name), home=home, backlog=backlog).to_removal()


def apply(
    connection: Connection, definition: ApplicationDefinition, *, home: Path, backlog: Backlog | None = None
) -> Plan:
    """Deploy the application in one transaction and return the executed plan.

    Raise DefinitionRefused with all problems if there are any. An unchanged application changes nothing. ``backlog`` is
    what becomes of the instances of removed ports and locations. Call ``apply_backlog_decisions`` afterwards: it
    reroutes or terminates them."""
    return _deploy(connection, definition, home, backlog, lambda planned: planned)


def remove(connection: Connection, name: str, *, home: Path, backlog: Backlog | None = None) -> Plan:
    """Remove an application with its ports, groups and locations in one transaction, and return the executed plan.

    Hosts and properties stay. Everything else is as for ``apply``."""
    check_application(connection, name)
    return _deploy(connection, ApplicationDefinition(name=name), home, backlog, Plan.to_removal)


def _deploy(
    connection: Connection,
    definition: ApplicationDefinition,
    home: Path,
    backlog: Backlog | None,
    change_plan: Callable[[Plan], Plan],
) -> Plan:
    # Before the routing lock: publishers wait for whoever holds it, and a holder that computes for seconds is ended.
    compared = _read_snapshot(connection, definition)
    plan_before = compare(definition, compared, home, backlog)

    def work(connection: Connection) -> Plan:
        lock_deployment(connection)
        # Orphans are not counted again: that reads the queues whole, and publishers wait.
        deployed = replace(read_deployed_for(connection, definition), orphans=compared.orphans)
        is_same = _is_same(deployed, compared)
        planned = change_plan(plan_before if is_same else compare(definition, deployed, home, backlog))
        late = () if planned.problems else _find_late_problems(connection, definition, deployed, backlog)
        replace(planned, problems=(*planned.problems, *late)).check()
        if planned.changes:
            change_routing(connection)
            Deployment(connection, definition, deployed, planned, home, backlog or Backlog.KEEP).execute()
            _record(connection, planned)
        return planned

    return operator_transaction(connection, work)


def _record(connection: Connection, planned: Plan) -> None:
    """Record the executed steps in the audit. The differences contain no secrets."""
    removes = any(planned.select(ChangeKind.APPLICATION, Action.REMOVE))
    before: dict[str, dict[str, str]] = {}
    after: dict[str, dict[str, str]] = {}
    for step in planned.changes:
        name = f"{step.kind} {step.name}"
        before[name] = {difference.field: difference.before for difference in step.differences}
        after[name] = {"action": step.action, **{difference.field: difference.after for difference in step.differences}}
    action = "application.remove" if removes else "application.apply"
    record_action(connection, action, planned.application, before={k: v for k, v in before.items() if v}, after=after)


def _is_same(deployed: Deployed, compared: Deployed) -> bool:
    """Return True if nothing was deployed or changed in between. Files and messages that came since are checked
    later."""
    return replace(deployed, unfinished_files={}, backlog={}) == replace(compared, unfinished_files={}, backlog={})


def _find_late_problems(
    connection: Connection, definition: ApplicationDefinition, deployed: Deployed, backlog: Backlog | None
) -> tuple[Problem, ...]:
    """Return problems for files and messages that came after the comparison."""
    return (
        *_check_removed_locations(connection, definition, deployed),
        *(find_backlog_problems(definition, deployed) if backlog is None else ()),
    )


def _check_removed_locations(
    connection: Connection, definition: ApplicationDefinition, deployed: Deployed
) -> tuple[Problem, ...]:
    """Lock the locations that are removed against new files, and return problems for files that are not published yet.

    A location that is claiming files right now counts as busy. Waiting for it would block every publish, because
    the caller has locked routing."""
    removed = find_removed_locations(definition, deployed)
    if not removed:
        return ()
    ids = sorted(deployed.locations[name].location_id for name in removed)
    busy = {location_id: 1 for location_id in ids if not lock_receive_location(connection, location_id)}
    return tuple(
        find_removal_problems(definition, replace(deployed, unfinished_files=busy | count_unfinished_files(connection)))
    )
