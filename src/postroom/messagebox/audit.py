"""The audit: what operators and administrators have done, when and why. Rows are added in the transaction of the action
and never change.

The functions of the database that operators may call record themselves (procedures/operators). What only administrators
may do is recorded here:

record_action(connection, "port.enlist", "Europe", before={"state": "bound"}, after={"state": "stopped"})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One action. ``login`` is that of the database. ``os_user`` is the user of the command, which is not verified."""

    entry_id: int
    recorded_at: datetime
    login: str
    os_user: str | None
    action: str
    target: str
    reason: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def record_action(
    connection: Connection,
    action: str,
    target: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an action of an administrator in the transaction that does it. PostgreSQL adds the time, the login,
    the user and the reason."""
    connection.execute(
        "INSERT INTO management.audit (action, target, before, after) VALUES (%s, %s, %s, %s)",
        (action, target, _to_jsonb(before), _to_jsonb(after)),
    )


def set_reason(connection: Connection, reason: str) -> None:
    """Set the reason of all actions on this connection."""
    connection.execute("SELECT set_config('postroom.reason', %s, false)", (reason,))


def list_audit(
    connection: Connection,
    *,
    action: str | None = None,
    target: str | None = None,
    login: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> list[AuditEntry]:
    """Return the recorded actions, the latest first. ``action`` is ``port.start``, or ``port`` for all of ports."""
    conditions = {"action": action, "target": target, "login": login, "since": since, "until": until, "limit": limit}
    return read_records(connection, AuditEntry, statement("queries/list_audit"), conditions)


def _to_jsonb(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))
