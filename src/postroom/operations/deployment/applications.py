"""Start and stop an application as a whole: its receive locations, orchestrations, send ports and groups (ORS-06)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.errors import NotFound, suggest_names
from postroom.messagebox.configuration.applications import list_applications as list_applications
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import defer_wake_ups
from postroom.operations.orchestrations import states as orchestration_states
from postroom.operations.ports import groups, receive_locations, send_ports


def check_application(connection: Connection, name: str | None) -> None:
    """Raise NotFound if there is no application with this name. None is accepted."""
    known = [application.name for application in list_applications(connection)] if name is not None else []
    if name is not None and name not in known:
        raise NotFound(
            f"There is no application {name!r}.",
            hint=suggest_names(name, known, "The applications are", none="none; run postroom apply first"),
        )


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one port, group, orchestration or location. ``resumed`` is the number of messages that were
    resumed."""

    kind: str
    name: str
    before: str
    after: str
    resumed: int = 0


def start(connection: Connection, application: str) -> list[Change]:
    """Start every send port, send port group and orchestration, then enable every receive location. What runs already
    stays as it is.

    Messages that were suspended because a port or an orchestration was stopped are resumed."""

    def work(connection: Connection) -> list[Change]:
        changes = _change_states(connection, application, "start", "started")
        return [*changes, *_change_locations(connection, application, enable=True)]

    return _run(connection, application, work)


def stop(
    connection: Connection, application: str, *, receiving_only: bool = False, unenlist: bool = False
) -> list[Change]:
    """Disable every receive location, then stop every orchestration, send port group and send port.

    Messages that still arrive for the ports, or would activate an orchestration, are suspended. With ``receiving_only``
    the ports and the orchestrations continue. With ``unenlist`` they also lose their subscriptions. Instances stay, and
    those of orchestrations continue."""

    def work(connection: Connection) -> list[Change]:
        changes = _change_locations(connection, application, enable=False)
        if unenlist:
            changes += _change_states(connection, application, "unenlist", "bound")
        elif not receiving_only:
            changes += _change_states(connection, application, "stop", "stopped")
        return changes

    return _run(connection, application, work)


def _run(connection: Connection, application: str, work: Callable[[Connection], list[Change]]) -> list[Change]:
    check_application(connection, application)
    with defer_wake_ups(connection):
        return operator_transaction(connection, work)


def _change_states(connection: Connection, application: str, operation: str, target: str) -> list[Change]:
    # A group starts after its members. An orchestration starts after the ports that it sends to. Both stop before them.
    ordered = [
        *(
            ("send port", port.name, port.state, send_ports)
            for port in send_ports.list_ports(connection, application=application)
        ),
        *(
            ("send port group", group.name, group.state, groups)
            for group in groups.list_groups(connection, application=application)
        ),
        *(
            ("orchestration", orchestration.name, orchestration.state, orchestration_states)
            for orchestration in orchestration_states.list_orchestrations(connection, application=application)
            if orchestration.newest
        ),
    ]
    changes = []
    for kind, name, state, module in ordered if operation == "start" else reversed(ordered):
        # What has no subscription has nothing to stop.
        if state.name.lower() == target or (operation == "stop" and state.name == "BOUND"):
            continue
        change = getattr(module, operation)(connection, name)
        changes.append(
            Change(
                kind=kind,
                name=name,
                before=change.before.name.lower(),
                after=change.after.name.lower(),
                resumed=change.resumed,
            )
        )
    return changes


def _change_locations(connection: Connection, application: str, *, enable: bool) -> list[Change]:
    changes = []
    for listing in receive_locations.list_locations(connection):
        if listing.application == application and listing.enabled is not enable:
            (receive_locations.enable if enable else receive_locations.disable)(connection, listing.location)
            before, after = ("disabled", "enabled") if enable else ("enabled", "disabled")
            changes.append(Change(kind="location", name=listing.location, before=before, after=after))
    return changes
