"""An outage of a MessageBox: its clients lose their connections and cannot connect again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


@contextmanager
def stop_database(url: str, *, application: str = "postroom client") -> Iterator[None]:
    """Cut the connections of an application, and accept no new connections until the end of the block."""
    name = str(conninfo_to_dict(url)["dbname"])
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as administrator:
        administrator.execute(allow.format(sql.Identifier(name), sql.Literal(False)))
        administrator.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND application_name = %s",
            (name, application),
        )
        try:
            yield
        finally:
            administrator.execute(allow.format(sql.Identifier(name), sql.Literal(True)))
