"""The tables, functions and grants of a new MessageBox with one host are the approved ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.errors import DuplicateKey
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.migrate import create_host
from postroom.messagebox.queues import Cause, QueueTask
from tests.support.approved import AssertApproved

_ENUMERATIONS = {
    "instance_state": InstanceState,
    "queue_task": QueueTask,
    "service_class": ServiceClass,
    "service_state": ServiceState,
    "suspension_cause": Cause,
}
CATALOG_QUERY = Path(__file__).parents[2] / "support" / "schema.sql"


def test_the_approved_schema_is_current(database: str, assert_approved: AssertApproved) -> None:
    with connect(database) as connection:
        with connection.transaction():
            create_host(connection, "Main")
        lines = [text for (text,) in connection.execute(CATALOG_QUERY.read_text(encoding="utf-8").encode())]
    # The names of the roles contain the id of the MessageBox.
    text = re.sub(r"\bpostroom_[0-9a-f]+_", "postroom_ID_", "\n".join(lines))
    assert_approved(text + "\n", "schema.txt")


def test_each_enumeration_has_the_same_labels_in_sql_and_in_python(database: str) -> None:
    query = "SELECT t.typname, array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e"
    with connect(database) as connection:
        rows = connection.execute(f"{query} JOIN pg_type t ON t.oid = e.enumtypid GROUP BY 1")
        assert dict(rows.fetchall()) == {name: list(labels) for name, labels in _ENUMERATIONS.items()}


def test_a_database_has_one_messagebox(database: str) -> None:
    """SUB-18."""
    with connect(database) as connection, pytest.raises(DuplicateKey):
        connection.execute("INSERT INTO message_box DEFAULT VALUES")
