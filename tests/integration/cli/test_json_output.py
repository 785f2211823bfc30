"""The output of ``-o json`` has the approved keys and types, for every command."""

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
    "backup",
    "restore",
    "demo",
    "init",
    "up",
    "database run",
    "host run",
    "instance save-journal",
    "instance save-rows",
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
app.send_port("Ordered", adapters.Null(), filter=Region == "ORDERED", ordered=True)
app.dynamic_send_port("Anywhere", filter=Region == "NOWHERE")
app.send_port_group("All", ["Europe", "Audit"], filter=Region == "EU", description="everybody")


@app.orchestration(activate=Region == "BOOK", convoy=[Priority])
async def book(order):
    pass


@app.orchestration(activate=Region == "BOOK", name="book", version=2)
async def book_again(order):
    await orchestrations.send(order, to="Europe")


app.lookup("Regions", key=Region, filter=Region == "LOOKUP")
"""


def list_paths(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Yield each path in a JSON document with the type of its value. The elements of a list share one path."""
    match value:
        case dict():
            yield path, "object"
            for key, inner in value.items():
                yield from list_paths(inner, f"{path}.{key}")
        case list():
            yield path, "list"
            for inner in value:
                yield from list_paths(inner, f"{path}[]")
        case _:
            names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
            yield path, names[type(value)]


def format_shape(documents: list[Any]) -> str:
    """Return the shape of several outputs of one command, a line for each path."""
    types: dict[str, set[str]] = {}
    for document in documents:
        for path, kind in list_paths(document):
            types.setdefault(path, set()).add(kind)
    return "".join(f"    {path}: {' | '.join(sorted(kinds))}\n" for path, kinds in sorted(types.items()))


def list_commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from list_commands(command, (*words, name))
        else:
            yield " ".join((*words, name))


@pytest.fixture
def shown(run: Run, app: Path, tmp_path: Path) -> dict[str, list[Any]]:
    """Return the JSON of every command, from a MessageBox that has a row for each of them."""
    found: dict[str, list[Any]] = {}

    def run_json(command: str, *arguments: object, code: int = ExitCode.OK) -> Any:
        ran = run(*command.split(), *arguments, "-o", "json")
        assert ran.code == code, f"{command}: {ran.err}"
        found.setdefault(command, []).append(ran.json)
        return ran.json

    order = tmp_path / "order.json"
    order.write_text('{"region": "EU", "total": 12000}')
    run_json("plan", app)
    run_json("apply", app)
    app.write_text(app.read_text().replace('adapters.File("out/europe")', 'adapters.File("out/eu")') + MORE)
    run_json("plan", app)
    run_json("apply", app)
    run_json("plan", app)

    for verb in ("stop", "unenlist", "enlist", "start", "stop"):
        run_json(f"port {verb}", "Europe")
    for verb in ("stop", "unenlist", "enlist", "start"):
        run_json(f"group {verb}", "All")
        run_json(f"orchestration {verb}", "book")
    run_json("orchestration bind", "book", "Europe", "Audit")
    run_json("orchestration unbind", "book", "Europe")
    for verb in ("disable", "enable"):
        run_json(f"location {verb}", "drop")
    run_json("location schedule", "drop", "--from", "2999-01-01")

    [published] = run_json("publish", order, "-p", "Region=EU", "-p", "Total=12000", "-r", "Orders.Region=north")
    run_json("publish", order, "-p", "Region=ASIA", "-w", "Priority=2", "--key", "k1")
    run_json("publish", order, "-p", "Region=ASIA", "-w", "Priority=2", "--key", "k1")
    run_json("explain", published["message_id"])
    run_json("explain", "--file", order, "--location", "drop")
    run_json("explain", "-p", "Region=TEST", "-p", "Total=5")

    for noun in ("application", "group", "host", "instance", "location", "message", "port", "role", "subscription"):
        run_json(f"{noun} list")
    run_json("orchestration list")
    regions = tmp_path / "regions.csv"
    regions.write_text("region,name\nLOOKUP,Nowhere\n")
    run_json("lookup load", "Regions", regions, "--key", "region")
    run_json("lookup list")
    run_json("lookup show", "Regions")
    run_json("orchestration show", "book")
    run_json("queue list", "--all")
    for grouping in ("host", "port", "error", "reason", "adapter", "uri"):
        run_json("instance list", "--group-by", grouping)
    for port in ("Europe", "Web", "Lake", "Anywhere"):
        run_json("port show", port)
    run_json("port retry", "Web")
    run_json("group show", "All")
    run_json("host show", "Main")
    run_json("pipeline show")
    run_json("message show", published["message_id"])
    run_json("subscription show", "BigOrders")
    run_json("subscription test", "BigOrders", "-p", "Total=12000", "-p", "Region=EU")
    run_json(
        "subscription test", "--filter", "Region == 'EU' and exists(Total)", "-p", "Region=US", code=ExitCode.FAILED
    )
    run_json("subscription explain", "BigOrders")
    run_json("subscription explain", "--filter", "Region == 'US'")
    suspended = next(instance for instance in found["instance list"][0] if instance["error_code"] == "PORT_STOPPED")
    run_json("instance show", suspended["instance_id"])
    run_json("instance resume", suspended["instance_id"])
    run_json("instance suspend", suspended["instance_id"])
    run_json("instance reroute", suspended["instance_id"])
    run_json("instance terminate", suspended["instance_id"])
    run_json("publish", order, "-p", "Region=ORDERED")
    [ordered] = run_json("instance list", "--port", "Ordered")
    run_json("instance skip", ordered["instance_id"])

    rows = tmp_path / "bad.csv"
    rows.write_bytes(b"id\n")
    Path(f"{rows}.instances").write_text('{"source": "in/a.csv", "header": true, "rows": []}')
    run_json("instance resume-rows", rows)

    run_json("jobs run")
    run_json("jobs list")
    run_json("check")
    run_json("audit list", "--action", "port")
    run_json("instance suspend", "--all", "--port", "Web")
    run_json("instance operations")
    run_json("version")
    run_json("docs")
    run_json("host add", "Spare")
    run_json("host stop", "Spare")
    run_json("host start", "Spare")
    run_json("host remove", "Spare")
    run_json("handler list")
    run_json("throttling set", "Main", "--publishing", "always", "--delivery", "never", "--severity", "300")
    run_json("throttling list")
    run_json("throttling set", "Main", "--publishing", "auto")
    run_json("service-class list")
    run_json("service-class set", "messaging_in_process", "--threads", "3", "--polling-interval", "0.2")
    run_json("application stop", "orders")
    run_json("application start", "orders")
    run_json("application remove", "orders", "--backlog", "terminate", "--yes")
    return found


def test_the_approved_shapes_are_current(shown: dict[str, list[Any]], assert_approved: AssertApproved) -> None:
    text = "".join(f"postroom {command}\n{format_shape(documents)}\n" for command, documents in sorted(shown.items()))
    assert_approved(text, "json.txt")
    assert set(shown) == set(list_commands()) - OTHERS, "a new command needs a line here"


def test_an_error_is_an_object_with_code_reason_and_hint(run: Run, app: Path) -> None:
    app.write_text(app.read_text() + "app.send_port('Europe', adapters.File('out'))\n")
    for command in (("port", "show", "Nowhere"), ("apply", app), ("port", "shew")):
        ran = run(*command, "-o", "json")
        assert ran.code != ExitCode.OK
        error = dict(list_paths(json.loads(ran.err)))
        assert {"$.error.code", "$.error.what", "$.error.why", "$.error.hint"} <= set(error)
