"""What the login of a connection may do, and what to say when PostgreSQL refuses it something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from postroom.errors import NotAllowed
from postroom.messagebox.configuration import Host
from postroom.messagebox.connection import Connection

_HINT = (
    "Use a --database URL with a login that may, or have an administrator give it a role that may:"
    " postroom role grant ROLE LOGIN (docs/how-to/security.md tells what administrators, operators and hosts may)"
)


@contextmanager
def refusals_told() -> Iterator[None]:
    """NotAllowed in place of PostgreSQL's own refusal."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        # Creating roles or schemas is refused to all but the owner, and then the reason is beside the refusal.
        detail = error.diag.message_detail or error.diag.message_hint
        refusal = str(error).strip().partition("\n")[0]
        why = refusal if not detail else f"{refusal} ({detail.strip()})"
        raise NotAllowed("The login may not do that.", why=why, hint=_HINT) from error


def require_host(connection: Connection, host: Host) -> None:
    """NotAllowed unless the login may work as this host: its own login, or an administrator."""
    row = connection.execute(
        "SELECT has_function_privilege(format('messagebox.%%I(uuid, integer, smallint, integer, timestamptz)',"
        " 'dequeue_messages_' || lower(%s::text)), 'execute'), session_user",
        (host.name,),
    ).fetchone()
    assert row is not None
    allowed, login = row
    if not allowed:
        raise NotAllowed(
            f"The login {login} may not run the host {host.name}.",
            why=f"It is neither a member of the host's role {host.role_name} nor an administrator.",
            hint="Use a --database URL with a login of the host. The owner of the MessageBox makes one: "
            f"GRANT {host.role_name} TO {login}",
        )
