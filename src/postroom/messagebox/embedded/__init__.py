"""The PostgreSQL server that is installed with Postroom, which starts and stops it."""

from __future__ import annotations

from postroom.messagebox.embedded.folder import server_folder
from postroom.messagebox.embedded.server import DATABASE, SUPERUSER, EmbeddedServer

__all__ = ["DATABASE", "SUPERUSER", "EmbeddedServer", "server_folder"]
