"""No SQL object names tables of both schemas: a MessageBox can be in a database that has no schema `management`.

An object may call functions of the other schema. Statements of schema files and of grants are read one by one.
"""

from __future__ import annotations

import re

from postroom.messagebox.statements import list_statements, statement

FOLDERS = ("procedures", "procedures/host", "procedures/jobs", "procedures/operators", "queries", "checks")
#: Folders whose files have a statement for each object.
FILES_OF_STATEMENTS = ("schema", "grants")

#: Objects that still name both. Each step of the separation removes some.
NOT_SEPARATED = {
    "checks/incomplete_orchestrations",
    "checks/intake_without_location",
    "checks/subscriptions_without_orchestration",
    "checks/wrong_service_subscriptions",
    "grants: GRANT SELECT ON messagebox.message_box,",
    "procedures/host/claim_ordered_messages",
    "procedures/host/insert_error_message",
    "procedures/host/open_sink_batch",
    "procedures/int_describe_instance",
    "procedures/jobs/purge_subscriptions",
    "procedures/operators/change_instances",
    "procedures/operators/continue_operation",
    "procedures/operators/retry_now",
    "procedures/operators/set_host_stopped",
    "procedures/operators/skip_message",
    "procedures/own_locations",
    "procedures/resume_stopped",
    "procedures/resume_stopped_group",
    "procedures/serves_location",
    "queries/count_instances",
    "queries/count_orchestration_instances",
    "queries/count_suspended",
    "queries/count_uses_of_host",
    "queries/history_queues",
    "queries/instance_conditions",
    "queries/list_instances",
    "queries/list_orchestrations",
    "queries/list_receive_locations",
    "queries/list_send_ports",
    "queries/list_service_names",
    "queries/read_orchestration_instance",
    "queries/read_saved_journal",
    "queries/remove_receive_location",
    "queries/unfinished_files",
    "schema: CREATE TABLE management.handlers (",
    "schema: CREATE TABLE management.orchestrations (",
    "schema: CREATE TABLE management.receive_locations (",
    "schema: CREATE TABLE management.send_ports (",
    "schema: CREATE TABLE messagebox.file_claims (",
    "schema: CREATE TABLE messagebox.inbox (",
    "schema: CREATE TABLE messagebox.open_circuits (",
    "schema: CREATE TABLE messagebox.poll_attempts (",
    "schema: CREATE TABLE messagebox.streams (",
    "schema: CREATE TABLE messagebox.subscriptions (",
}

_TABLE = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (management|messagebox)\.(\w+)")
_NAME = re.compile(
    r"\b(?:FROM|JOIN|INSERT\s+INTO|UPDATE|USING|REFERENCES|ONLY)\s+(?:management\.|messagebox\.)?(\w+)"
    r"|\b(?:management|messagebox)\.(\w+)"
    r"|^\s+\w+ (\w+)(?:%ROWTYPE)?(?:;| :=)",  # a variable of a procedure that has the type of a row
    re.MULTILINE,
)


def find_schemas() -> dict[str, str]:
    """Return the schema of each table and view."""
    files = "".join(statement(name) for name in list_statements("schema"))
    return {table: schema for schema, table in _TABLE.findall(_strip(files))}


def find_objects() -> dict[str, str]:
    """Return the text of each object."""
    objects = {name: _strip(statement(name)) for folder in FOLDERS for name in list_statements(folder)}
    for folder in FILES_OF_STATEMENTS:
        for name in list_statements(folder):
            for text in _strip(statement(name)).split(";"):
                objects[f"{folder}: {' '.join(text.split()[:4])}"] = text
    return objects


def _strip(text: str) -> str:
    """Return a statement without comments and texts."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", text))


def test_no_object_names_tables_of_both_schemas() -> None:
    schemas = find_schemas()
    assert set(schemas.values()) == {"management", "messagebox"}
    both = set()
    for name, text in find_objects().items():
        named = {next(filter(None, match.groups())) for match in _NAME.finditer(text)}
        if len({schemas[table] for table in named & set(schemas)}) > 1:
            both.add(name)
    assert sorted(both) == sorted(NOT_SEPARATED)
