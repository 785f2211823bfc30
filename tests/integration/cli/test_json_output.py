"""What ``-o json`` prints: every command that shows something has the keys and types that were approved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import cli
from tests.integration.cli.conftest import Run
from tests.support.approved import AssertApproved

#: Commands that need running processes or no MessageBox, write no JSON, or print the body of a message.
OTHERS = {
    "demo",
    "init",
    "up",
    "host run",
    "location reset-stream",
    "pipeline run",
    "message body",
    "message save",
    "role grant",
    "role revoke",
}

MORE = """
from postroom import Retry, Schedule, Throttling

app.host("Main", trusted=True, properties={Region: ["north"]}, throttling=Throttling(messages=1000))
app.receive_port("WebIn", authentication="keep").location(
    "web", adapters.HttpReceive("/orders", port=18080), schedule=Schedule(start="2999-01-01", weekdays=["mon"])
)
lines = adapters.SparkReader("csv", "lines", schema="region STRING, total DECIMAL(12,2)")
app.receive_port("LinesIn").location("lines", lines, pipeline=pipelines.Rows(promote={Region: "region"}))
web = adapters.Http("http://127.0.0.1:9/", headers={"X-Key": "k"})
app.send_port("Web", web, filter=Region == "US", retry=Retry(count=0))
app.send_port("Lake", adapters.SparkSink("parquet", "lake", columns={"total": Total}), filter=Region == "ASIA")
app.dynamic_send_port("Anywhere", filter=Region == "NOWHERE")
app.send_port_group("All", ["Europe", "Audit"], filter=Region == "EU", description="everybody")
"""


def shape_of(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Each place in a JSON document with the type that it has there; elements of a list are one place."""
    match value:
        case dict():
            yield path, "object"
            for key, inner in value.items():
                yield from shape_of(inner, f"{path}.{key}")
        case list():
            yield path, "list"
            for inner in value:
                yield from shape_of(inner, f"{path}[]")
        case _:
            names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
            yield path, names[type(value)]


def shape_text(documents: list[Any]) -> str:
    """The shape of several outputs of one command, a line for each place."""
    types: dict[str, set[str]] = {}
    for document in documents:
        for path, kind in shape_of(document):
            types.setdefault(path, set()).add(kind)
    return "".join(f"    {path}: {' | '.join(sorted(kinds))}\n" for path, kinds in sorted(types.items()))


def all_commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, (*words, name))
        else:
            yield " ".join((*words, name))


@pytest.fixture
def shown(run: Run, app: Path, tmp_path: Path) -> dict[str, list[Any]]:
    """The JSON of every command, on a MessageBox that has a row for each of them."""
    found: dict[str, list[Any]] = {}

    def ask(command: str, *arguments: object, code: int = ExitCode.OK) -> Any:
        ran = run(*command.split(), *arguments, "-o", "json")
        assert ran.code == code, f"{command}: {ran.err}"
        found.setdefault(command, []).append(ran.json)
        return ran.json

    order = tmp_path / "order.json"
    order.write_text('{"region": "EU", "total": 12000}')
    ask("plan", app)
    ask("apply", app)
    app.write_text(app.read_text().replace('adapters.File("out/europe")', 'adapters.File("out/eu")') + MORE)
    ask("plan", app)
    ask("apply", app)
    ask("plan", app)

    for verb in ("stop", "unenlist", "enlist", "start", "stop"):
        ask(f"port {verb}", "Europe")
    for verb in ("stop", "unenlist", "enlist", "start"):
        ask(f"group {verb}", "All")
    for verb in ("disable", "enable"):
        ask(f"location {verb}", "drop")
    ask("location schedule", "drop", "--from", "2999-01-01")

    [published] = ask("publish", order, "-p", "Region=EU", "-p", "Total=12000", "-r", "Orders.Region=north")
    ask("publish", order, "-p", "Region=ASIA", "-w", "Priority=2", "--key", "k1")
    ask("publish", order, "-p", "Region=ASIA", "-w", "Priority=2", "--key", "k1")
    ask("explain", published["message_id"])
    ask("explain", "--file", order, "--location", "drop")
    ask("explain", "-p", "Region=TEST", "-p", "Total=5")

    for noun in ("application", "group", "host", "instance", "location", "message", "port", "role", "subscription"):
        ask(f"{noun} list")
    ask("queue list", "--all")
    for grouping in ("host", "port", "error", "reason", "adapter", "uri"):
        ask("instance list", "--group-by", grouping)
    for port in ("Europe", "Web", "Lake", "Anywhere"):
        ask("port show", port)
    ask("group show", "All")
    ask("host show", "Main")
    ask("pipeline show")
    ask("message show", published["message_id"])
    ask("subscription show", "BigOrders")
    ask("subscription test", "BigOrders", "-p", "Total=12000", "-p", "Region=EU")
    ask("subscription test", "--filter", "Region == 'EU' and exists(Total)", "-p", "Region=US", code=ExitCode.FAILED)
    ask("subscription explain", "BigOrders")
    ask("subscription explain", "--filter", "Region == 'US'")
    suspended = next(one for one in found["instance list"][0] if one["error_code"] == "PORT_STOPPED")
    ask("instance show", suspended["instance_id"])
    ask("instance resume", suspended["instance_id"])
    ask("instance suspend", suspended["instance_id"])
    ask("instance terminate", suspended["instance_id"])

    ask("jobs run")
    ask("jobs list")
    ask("check")
    ask("version")
    return found


def test_the_approved_shapes_are_current(shown: dict[str, list[Any]], assert_approved: AssertApproved) -> None:
    text = "".join(f"postroom {command}\n{shape_text(documents)}\n" for command, documents in sorted(shown.items()))
    assert_approved(text, "json.txt")
    assert set(shown) == set(all_commands()) - OTHERS, "a new command needs a line here"


def test_an_error_is_an_object_with_code_reason_and_hint(run: Run, app: Path) -> None:
    app.write_text(app.read_text() + "app.send_port('Europe', adapters.File('out'))\n")
    for command in (("port", "show", "Nowhere"), ("apply", app), ("port", "shew")):
        ran = run(*command, "-o", "json")
        assert ran.code != ExitCode.OK
        error = dict(shape_of(json.loads(ran.err)))
        assert {"$.error.code", "$.error.what", "$.error.why", "$.error.hint"} <= set(error)
