"""What the login of a connection may do."""

from __future__ import annotations

from postroom.errors import NotAllowed
from postroom.messagebox.configuration import Host
from postroom.messagebox.connection import Connection


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
