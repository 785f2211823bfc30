"""A PostgreSQL server that comes along with Postroom and is started and stopped by it."""

from __future__ import annotations

from postroom.messagebox.embedded.folder import server_folder
from postroom.messagebox.embedded.server import DATABASE, SUPERUSER, EmbeddedServer

__all__ = ["DATABASE", "SUPERUSER", "EmbeddedServer", "server_folder"]
