"""How the processes of a pipeline reach the MessageBox."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.messagebox.connection import Connection, connect


@dataclass(frozen=True, kw_only=True)
class Login:
    """How a process of the pipeline reaches the MessageBox; ``user`` goes before what the URL says."""

    url: str
    user: str | None = None

    def connect(self, purpose: str) -> Connection:
        return connect(self.url, user=self.user, application_name=f"postroom {purpose}")
