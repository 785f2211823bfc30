"""Every command that changes something for an operator is recorded in the audit, with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from postroom.cli.main import cli
from postroom.messagebox.audit import AuditEntry, list_audit
from postroom.messagebox.connection import connect
from tests.integration.cli.conftest import Run
from tests.integration.cli.test_json_output import list_commands
from tests.support.contents import Contents

#: Commands that only read, or write files only.
READING = {
    "audit list",
    "backup",
    "docs",
    "explain",
    "group list",
    "group show",
    "handler list",
    "host list",
    "host show",
    "init",
    "instance list",
    "instance operations",
    "instance save-journal",
    "instance save-rows",
    "instance show",
    "jobs list",
    "location list",
    "lookup list",
    "lookup show",
    "message body",
    "message list",
    "message save",
    "message show",
    "orchestration list",
    "orchestration show",
    "pipeline show",
    "plan",
    "port list",
    "port show",
    "queue list",
    "role list",
    "service-class list",
    "subscription explain",
    "subscription list",
    "subscription show",
    "subscription test",
    "throttling list",
    "application list",
    "version",
}
#: Commands that do the work of the MessageBox. ``up`` and ``demo`` record what they apply.
WORKING = {"database run", "demo", "host run", "lookup load", "pipeline run", "publish", "up"}

LOGIN = "postroom_test_audited"

MORE = """
app.send_port("Ordered", adapters.Null(), filter=Region == "EU", ordered=True)
app.send_port_group("All", ["Europe", "Audit"], filter=Region == "EU")


@app.orchestration(activate=Region == "BOOK")
async def book(order):
    await orchestrations.send(order, to="Europe")
"""


def list_changing_commands() -> list[str]:
    return sorted(set(list_commands()) - READING - WORKING)


def find_command(words: str) -> click.Command:
    command: click.Command = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def test_every_command_that_changes_something_has_a_reason() -> None:
    without = [
        command
        for command in list_changing_commands()
        if "reason" not in [parameter.name for parameter in find_command(command).params]
    ]
    assert without == []


@pytest.fixture
def login(database: str) -> Iterator[None]:
    """Create a login, which belongs to the whole server."""
    with connect(database) as connection:
        connection.execute(f"CREATE ROLE {LOGIN} LOGIN")
        yield
        connection.execute(f"DROP OWNED BY {LOGIN}")
        connection.execute(f"DROP ROLE {LOGIN}")


def write_rows(folder: Path, instance_id: str) -> Path:
    """Write what ``instance save-rows`` writes, with a corrected line."""
    rows = folder / "rows.csv"
    rows.write_bytes(b"corrected\n")
    digest = hashlib.sha256(b"wrong").hexdigest()[:16]
    manifest = {"source": "in/a.csv", "header": False, "rows": [{"instance_id": instance_id, "digest": digest}]}
    Path(f"{rows}.instances").write_text(json.dumps(manifest))
    return rows


def test_every_command_that_changes_something_is_recorded(
    run: Run, app: Path, database: str, tmp_path: Path, login: None
) -> None:
    recorded: dict[str, list[AuditEntry]] = {}

    def record(command: str, *arguments: object) -> list[AuditEntry]:
        with connect(database) as connection:
            before = {entry.entry_id for entry in list_audit(connection)} if recorded else set()
            done = run(*command.split(), *arguments, "--reason", f"for {command}")
            assert done.code == 0, f"{command}: {done.err}"
            new = [entry for entry in list_audit(connection) if entry.entry_id not in before]
        recorded[command] = new
        assert new, f"{command} is not recorded"
        assert {entry.reason for entry in new} == {f"for {command}"}
        assert all(entry.login and entry.recorded_at for entry in new)
        return new

    app.write_text(app.read_text() + MORE)
    record("apply", app)
    for verb in ("stop", "unenlist", "enlist", "start"):
        [entry] = record(f"port {verb}", "BigOrders")
        assert (entry.action, entry.target) == (f"port.{verb}", "BigOrders")
        assert entry.before
        assert entry.after
    record("port retry", "BigOrders")
    for verb in ("stop", "unenlist", "enlist", "start"):
        record(f"group {verb}", "All")
    for verb in ("stop", "unenlist", "enlist", "start"):
        [entry] = record(f"orchestration {verb}", "book")
        assert (entry.action, entry.target) == (f"orchestration.{verb}", "book")
        assert entry.before
        assert entry.after
    record("orchestration bind", "book", "Europe", "Audit")
    record("orchestration unbind", "book", "Europe")
    for verb in ("disable", "enable"):
        record(f"location {verb}", "drop")
    record("location schedule", "drop", "--from", "2999-01-01")
    with connect(database) as connection:
        Contents(connection).add_streams()
    record("location reset-stream", "drop")

    order = tmp_path / "order.json"
    order.write_text('{"region": "EU"}')
    run("publish", order, "-p", "Region=EU")
    [instance] = run("instance", "list", "--port", "Europe", "-o", "json").json[:1]
    instance_id = instance["instance_id"]
    for verb in ("suspend", "resume", "suspend"):
        record(f"instance {verb}", instance_id)
    record("instance resume-rows", write_rows(tmp_path, instance_id))
    record("instance suspend", instance_id)
    record("instance reroute", instance_id)
    record("instance suspend", instance_id)
    record("instance terminate", instance_id)
    [ordered] = run("instance", "list", "--port", "Ordered", "-o", "json").json
    record("instance skip", ordered["instance_id"])

    record("jobs run")
    record("check", "--repair")
    record("host add", "Spare")
    for verb in ("stop", "start", "remove"):
        record(f"host {verb}", "Spare")
    record("service-class set", "messaging_in_process", "--threads", "3")
    record("throttling set", "Main", "--publishing", "never")
    record("role grant", "operators", LOGIN)
    record("role revoke", "operators", LOGIN)
    for verb in ("stop", "start"):
        record(f"application {verb}", "orders")
    record("application remove", "orders", "--backlog", "terminate", "--yes")
    assert sorted([*recorded, "restore"]) == list_changing_commands(), "test_backup.py tests restore"
