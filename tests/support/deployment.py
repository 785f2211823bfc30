"""Deploy applications in tests. Nothing reads or writes the home folder."""

from __future__ import annotations

from pathlib import Path

from postroom.application import Application
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.plan import Plan

HOME = Path("/srv/orders")


def deploy(connection: Connection, app: Application, *, backlog: Backlog | None = None) -> Plan:
    return apply(connection, app.definition(), home=HOME, backlog=backlog)


def list_changes(plan: Plan) -> set[tuple[str, str, str]]:
    return {(step.action, step.kind, step.name) for step in plan.changes}
