"""How the processes of a pipeline reach the MessageBox."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict

from postroom.messagebox.connection import Connection, connect


@dataclass(frozen=True, kw_only=True)
class Login:
    """How a process of the pipeline reaches the MessageBox; ``user`` goes before what the URL says."""

    url: str
    user: str | None = None

    @property
    def is_of_this_machine(self) -> bool:
        """Whether other machines cannot reach it, or would reach another server under that name."""
        host = str(conninfo_to_dict(self.url).get("host") or "/")
        return host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")

    def connect(self, purpose: str) -> Connection:
        return connect(self.url, user=self.user, application_name=f"postroom {purpose}")
