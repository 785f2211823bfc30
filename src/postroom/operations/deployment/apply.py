"""Plan and apply applications in one transaction.

    definition = load(Path("examples/orders/app.py"))
    plan(connection, definition, home=Path("orders-home")).changes
    apply(connection, definition, home=Path("orders-home"))

Decisions of operators are kept: an existing port keeps its state, and a location stays enabled or disabled. So does a
port or location with a new name that declares the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from psycopg.pq import TransactionStatus

from postroom.application import ApplicationDefinition
from postroom.errors import Problem
from postroom.messagebox.audit import record_action
from postroom.messagebox.bindings import rename_bindings
from postroom.messagebox.configuration.applications import delete_application, store_application, store_definition
from postroom.messagebox.configuration.endpoints import rename_services
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.configuration.services import lock_receive_location
from postroom.messagebox.connection import Connection, operator_transaction, transaction, use_one_snapshot
from postroom.messagebox.coordination.running_processes import change_routing, lock_deployment
from postroom.messagebox.intake.location_progress import count_unfinished_files
from postroom.messagebox.subscriptions import deploy_property
from postroom.operations.deployment.applications import check_application
from postroom.operations.deployment.artifacts import Comparison, Deployed, Deployment
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.compare import compare, find_backlog_problems, find_problems
from postroom.operations.deployment.deployed import KINDS, KINDS_WITH_NAMES, count_orphans, read_deployed_for
from postroom.operations.deployment.endpoints import LOCATIONS, find_removed_locations, find_unfinished_locations
from postroom.operations.deployment.hosts import store_hosts
from postroom.operations.deployment.orchestrations import ORCHESTRATIONS, find_new_orchestration_names
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.deployment.waiting_journals import check_waiting_journals
from postroom.system_properties import SYSTEM_PROPERTIES


def plan_first_deployment(definition: ApplicationDefinition, *, home: Path) -> Plan:
    """Return what ``apply`` would do if there is no MessageBox yet."""
    return compare(Comparison(definition=definition, deployed=Deployed(), home=home))


def find_deployment_problems(
    connection: Connection,
    part: ApplicationDefinition,
    *,
    home: Path,
    other_names: Collection[str] = (),
    backlog: Backlog | None = None,
) -> tuple[Problem, ...]:
    """Return the conflicts of the valid ``part`` of an invalid application with the MessageBox.

    ``other_names`` are the ports, locations and orchestrations of the rest, with their old names. They are not
    removed."""
    deployed = _read_snapshot(connection, part)
    removable = {
        kind: {name: known for name, known in artifacts.items() if known.name not in other_names}
        for kind, artifacts in deployed.artifacts.items()
    }
    compared = Comparison(definition=part, deployed=replace(deployed, artifacts=removable), home=home, backlog=backlog)
    return (
        *find_problems(replace(compared, deployed=deployed)),
        *find_unfinished_locations(part, compared.deployed),
        *find_backlog_problems(compared),
    )


def plan(
    connection: Connection,
    definition: ApplicationDefinition,
    *,
    home: Path,
    backlog: Backlog | None = None,
    allow_incompatible: bool = False,
) -> Plan:
    """Return what ``apply`` would do now, including conflicts with the MessageBox. Nothing is changed.

    The journals of waiting instances are replayed with the code that was loaded from the application's file."""
    deployed = _read_snapshot(connection, definition)
    compared = Comparison(definition=definition, deployed=deployed, home=home, backlog=backlog)
    planned = compare(compared)
    return check_waiting_journals(connection, compared, planned).add_to(planned, allow_incompatible=allow_incompatible)


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
    connection: Connection,
    definition: ApplicationDefinition,
    *,
    home: Path,
    backlog: Backlog | None = None,
    allow_incompatible: bool = False,
) -> Plan:
    """Deploy the application in one transaction and return the executed plan.

    Raise DefinitionRefused with all problems if there are any. An unchanged application changes nothing. ``backlog`` is
    what becomes of the instances of what is removed. Call ``apply_backlog_decisions`` afterwards: it reroutes or
    terminates them. With ``allow_incompatible`` waiting instances whose journals do not fit the changed code are no
    problem: they are suspended when something happens to them."""
    return _deploy(connection, definition, home, backlog, lambda planned: planned, allow_incompatible)


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
    allow_incompatible: bool = False,
) -> Plan:
    # Before the routing lock: publishers wait for whoever holds it, and a holder that computes for seconds is ended.
    before = Comparison(
        definition=definition, deployed=_read_snapshot(connection, definition), home=home, backlog=backlog
    )
    plan_before = compare(before)
    checked = check_waiting_journals(connection, before, plan_before)

    def work(connection: Connection) -> Plan:
        lock_deployment(connection)
        # Orphans are not counted again: that reads the queues whole, and publishers wait.
        deployed = replace(read_deployed_for(connection, definition), orphans=before.deployed.orphans)
        compared = replace(before, deployed=deployed)
        is_same = _is_same(deployed, before.deployed)
        planned = change_plan(plan_before if is_same else compare(compared))
        planned = checked.add_to(planned, allow_incompatible=allow_incompatible)
        late = () if planned.problems else _find_late_problems(connection, compared)
        replace(planned, problems=(*planned.problems, *late)).check()
        if planned.changes:
            change_routing(connection)
            _execute(connection, compared, planned)
            _record(connection, planned)
        return planned

    return operator_transaction(connection, work)


def _execute(connection: Connection, compared: Comparison, planned: Plan) -> None:
    """Execute all steps of a plan, in the order of their dependencies."""
    definition, deployed = compared.definition, compared.deployed
    _deploy_properties(connection, compared)
    store_hosts(connection, definition, deployed, planned)
    stored = definition.to_stored()
    deployment = Deployment(
        connection=connection,
        compared=compared,
        plan=planned,
        application_id=store_application(
            connection, definition.name, properties=stored["properties"], hosts=stored["hosts"]
        ),
        host_ids={host.name.lower(): host.host_id for host in read_hosts(connection)},
    )
    for kind in KINDS_WITH_NAMES:
        declared, old_names = kind.get_declared(definition), deployed.get_renames(kind.kind).old_names
        names = {kind.get_id(deployed.get(kind)[name]): declared[name].name for name in old_names}
        rename_services(connection, kind.table, names)
    rename_bindings(connection, find_new_orchestration_names(definition, deployed.get_renames(ORCHESTRATIONS.kind)))
    _remove(deployment, last=False)
    _store(deployment)
    _remove(deployment, last=True)
    for _ in planned.select(ChangeKind.APPLICATION, Action.REMOVE):
        delete_application(connection, deployment.application_id)


def _deploy_properties(connection: Connection, compared: Comparison) -> None:
    deployed = compared.deployed
    wanted = {**SYSTEM_PROPERTIES, **{prop.key: prop for prop in compared.definition.properties}}
    for key, prop in wanted.items():
        if key not in deployed.properties or (prop.sensitive and key not in deployed.sensitive):
            deploy_property(connection, key, prop.value_type, sensitive=prop.sensitive)


def _remove(deployment: Deployment, *, last: bool) -> None:
    """Remove what is not declared any more. Instances stay, with the name of their port or location."""
    for kind in reversed(KINDS):
        if kind.is_removed_last is not last:
            continue
        declared, deployed = kind.get_declared(deployment.compared.definition), deployment.compared.deployed.get(kind)
        for step in deployment.plan.select(kind.kind, Action.CHANGE):
            kind.prepare(deployment, declared[step.name], deployed[step.name])
        for step in deployment.plan.select(kind.kind, Action.REMOVE):
            kind.remove(deployment, deployed[step.name])


def _store(deployment: Deployment) -> None:
    """Store new and changed artifacts, and of the others what the plan does not compare, such as the declared state of
    a port that is deployed already."""
    for kind in KINDS:
        deployed = deployment.compared.deployed.get(kind)
        steps = {step.name: step for step in deployment.plan.select(kind.kind, *Action)}
        for name, declared in kind.get_declared(deployment.compared.definition).items():
            if steps[name].action is not Action.KEEP:
                kind.store(deployment, steps[name], declared, deployed.get(name))
            elif deployed[name].definition != declared.to_stored():
                store_definition(deployment.connection, kind.table, declared.to_stored())


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


def _find_late_problems(connection: Connection, compared: Comparison) -> Iterator[Problem]:
    """Yield problems for files and messages that came after the comparison."""
    yield from _check_removed_locations(connection, compared.definition, compared.deployed)
    yield from find_backlog_problems(compared)


def _check_removed_locations(
    connection: Connection, definition: ApplicationDefinition, deployed: Deployed
) -> Iterator[Problem]:
    """Lock the locations that are removed against new files, and yield problems for files that are not published yet.

    A location that is claiming files right now counts as busy. Waiting for it would block every publish, because
    the caller has locked routing."""
    removed = find_removed_locations(definition, deployed)
    if removed:
        ids = sorted(deployed.get(LOCATIONS)[name].location_id for name in removed)
        busy = {location_id: 1 for location_id in ids if not lock_receive_location(connection, location_id)}
        now = replace(deployed, unfinished_files=busy | count_unfinished_files(connection))
        yield from find_unfinished_locations(definition, now)
