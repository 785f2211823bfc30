"""The login of a pipeline at the MessageBox."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict

from postroom.messagebox.connection import Connection, connect


@dataclass(frozen=True, kw_only=True)
class Login:
    """The address of the MessageBox. ``user`` takes precedence over the URL."""

    url: str
    user: str | None = None

    @property
    def is_local(self) -> bool:
        """Return True if the address is only valid on this machine."""
        host = str(conninfo_to_dict(self.url).get("host") or "/")
        return host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")

    def connect(self, purpose: str) -> Connection:
        """Open a connection. PostgreSQL shows ``purpose`` as the application's name."""
        return connect(self.url, user=self.user, application_name=f"postroom {purpose}")
