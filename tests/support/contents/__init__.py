"""What a MessageBox contains, by idea. Only this folder and the tests of the SQL objects themselves know tables."""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from postroom.messagebox.configuration.services import delete_service, remove_service
from tests.support.contents.configuration import Configuration
from tests.support.contents.counts import TABLES, Countable, count_query
from tests.support.contents.messages import StoredMessages
from tests.support.contents.orchestrations import Orchestrations
from tests.support.contents.processes import Processes
from tests.support.contents.queues import Queues
from tests.support.contents.receiving import Receiving


class Contents(StoredMessages, Queues, Orchestrations, Receiving, Processes, Configuration):
    """Reads and changes a MessageBox directly, without its processes, as far as the login of the connection may."""

    def count(self, what: Countable) -> int:
        return int(self.one(count_query(what)))

    def delete_all(self, what: Countable) -> None:
        deleted = sql.SQL("DELETE FROM {}").format(sql.SQL(TABLES[what]))
        if what not in ("send ports", "receive locations", "send port groups"):
            self.connection.execute(deleted)
            return
        remove = delete_service if what == "send port groups" else remove_service
        for (service_id,) in self.connection.execute(deleted + sql.SQL(" RETURNING id")).fetchall():
            remove(self.connection, service_id)

    def lock(self, what: Countable, mode: LiteralString = "ACCESS EXCLUSIVE") -> None:
        """Lock the table until the end of the transaction."""
        self.connection.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(sql.SQL(TABLES[what]), sql.SQL(mode)))

    def can_change(self, what: Countable) -> bool:
        """Return whether the login may change or delete what exists."""
        return any(
            self.one("SELECT has_table_privilege(%s, %s)", TABLES[what], privilege)
            for privilege in ("UPDATE", "DELETE", "TRUNCATE")
        )

    def exists(self) -> bool:
        """Return whether the database has a MessageBox."""
        return self.one("SELECT to_regclass('messagebox.spool')") is not None
