"""No SQL object names tables of both schemas: a MessageBox can be in a database that has no schema `management`.

An object may call functions of the other schema. Statements of schema files and of grants are read one by one.
"""

from __future__ import annotations

import re

from postroom.messagebox.statements import list_statements, statement

FOLDERS = ("procedures", "procedures/host", "procedures/jobs", "procedures/operators", "queries", "checks")
#: Folders whose files have a statement for each object.
FILES_OF_STATEMENTS = ("schema", "grants")

_TABLE = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (management|messagebox)\.(\w+)")
#: A word that can name a table. A column with its table before it cannot, and neither can a function.
_WORD = re.compile(r"(?<![.\w])(?:(?:management|messagebox)\.)?(\w+)(?![\w(])")
#: The columns of a table that have the name of a table of the other schema.
_COLUMNS = {"applications": {"hosts", "properties"}}


def find_schemas() -> dict[str, str]:
    """Return the schema of each table and view."""
    files = "".join(statement(name) for name in list_statements("schema"))
    return {table: schema for schema, table in _TABLE.findall(_strip(files))}


def find_objects() -> dict[str, str]:
    """Return the text of each object."""
    objects = {name: _strip(statement(name)) for folder in FOLDERS for name in list_statements(folder)}
    for folder in FILES_OF_STATEMENTS:
        for name in list_statements(folder):
            for number, text in enumerate(_strip(statement(name)).split(";"), start=1):
                objects[f"{name}, statement {number}: {' '.join(text.split()[:4])}"] = text
    return objects


def _strip(text: str) -> str:
    """Return a statement without comments and texts."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", text))


def test_no_object_names_tables_of_both_schemas() -> None:
    schemas = find_schemas()
    assert set(schemas.values()) == {"management", "messagebox"}
    both = set()
    for name, text in find_objects().items():
        named = set(_WORD.findall(text)) & set(schemas)
        named = named.difference(*(_COLUMNS.get(table, ()) for table in named))
        if len({schemas[table] for table in named}) > 1:
            both.add(name)
    assert both == set()
