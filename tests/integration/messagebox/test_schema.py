"""The tables, functions and grants of a new MessageBox with one host are the approved ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.errors import DuplicateKey
from postroom.messagebox.connection import connect
from postroom.messagebox.migrate import create_host
from tests.support.approved import AssertApproved

CATALOG_QUERY = Path(__file__).parents[2] / "support" / "schema.sql"


def test_the_approved_schema_is_current(database: str, assert_approved: AssertApproved) -> None:
    with connect(database) as connection:
        with connection.transaction():
            create_host(connection, "Main")
        lines = [text for (text,) in connection.execute(CATALOG_QUERY.read_text(encoding="utf-8").encode())]
    # The names of the roles contain the id of the MessageBox.
    text = re.sub(r"\bpostroom_[0-9a-f]+_", "postroom_ID_", "\n".join(lines))
    assert_approved(text + "\n", "schema.txt")


def test_a_database_has_one_messagebox(database: str) -> None:
    """SUB-18."""
    with connect(database) as connection, pytest.raises(DuplicateKey):
        connection.execute("INSERT INTO message_box DEFAULT VALUES")
