"""The content of listings, and commands with several names: all or none."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import Run

PUBLISHED = ("-p", "Region=EU", "-r", "Orders.Region=north")


def states(run: Run) -> dict[str, str]:
    return {port["name"]: port["state"] for port in run("port", "list", "-o", "json").json}


def test_several_ports_are_changed_all_or_none(applied: Run) -> None:
    before = states(applied)
    refused = applied("port", "stop", "Europe", "Nowhere", "Audit")
    assert refused.code == ExitCode.NOT_FOUND
    assert refused.err.rstrip().endswith("The others were not changed.")
    assert states(applied) == before
    applied("port", "stop", "Audit")
    assert applied("port", "stop", "Europe", "Audit").code == ExitCode.STATE
    assert states(applied) == {**before, "Audit": "stopped"}
    assert applied("port", "stop", "Europe", "Europe").code == ExitCode.OK


def test_a_two_way_port_is_shown_with_the_pipeline_of_its_responses(run: Run, tmp_path: Path) -> None:
    app = tmp_path / "quotes.py"
    app.write_text(
        "from postroom import Application, adapters, pipelines\n"
        "app = Application('quotes')\n"
        "url = 'http://127.0.0.1:9/price'\n"
        "app.send_port('Pricing', adapters.Http(url), two_way=True, receive_pipeline=pipelines.Json())\n"
        "app.send_port('Plain', adapters.Http(url))\n"
    )
    assert run("apply", app).code == ExitCode.OK
    assert "json" in run("port", "show", "Pricing", "-o", "json").json["receive_pipeline"].lower()
    assert run("port", "show", "Plain", "-o", "json").json["receive_pipeline"] is None


def test_several_locations_are_changed_all_or_none(applied: Run) -> None:
    for verb in (["disable"], ["schedule", "--window", "08:00-18:00"]):
        assert applied("location", verb[0], "drop", "nowhere", *verb[1:]).code == ExitCode.NOT_FOUND
    (location,) = applied("location", "list", "-o", "json").json
    assert (location["enabled"], location["schedule"]) == (True, None)


def test_several_instances_are_changed_all_or_none(applied: Run, tmp_path: Path) -> None:
    applied("port", "stop", "Europe")
    applied("publish", _order(tmp_path), "-p", "Region=EU")
    (one,) = applied("instance", "list", "-o", "json").json
    unknown = "01985c1e-7f0a-8c8e-b5d1-4a2f3c800000"
    assert applied("instance", "terminate", one["instance_id"], unknown).code == ExitCode.NOT_FOUND
    assert len(applied("instance", "list", "-o", "json").json) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("noun", ["port", "location", "subscription", "message", "instance"])
def test_a_narrow_terminal_shows_fewer_columns_with_whole_names(
    applied: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    applied("port", "stop", "Europe")
    applied("publish", _order(tmp_path), "-p", "Region=EU")
    all_columns = re.split(" {2,}", applied(noun, "list").out.splitlines()[0])
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    applied(noun, "list")
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    columns = re.split(" {2,}", lines[0].strip())
    assert len(columns) > 2
    assert set(columns) < set(all_columns), "a name is not continued in the next line"


def test_a_host_is_shown_with_trust_and_application_properties(run: Run, app: Path) -> None:
    secret = 'Pin = Property("Orders.Pin", str, sensitive=True)\napp.property(Pin)\n'
    shows = 'app.host("Main", trusted=True, properties={Region: ["north", "south"], Pin: "1234"})\n'
    app.write_text(app.read_text() + secret + shows)
    assert run("apply", app).code == ExitCode.OK
    properties = [
        {"property": "Orders.Pin", "value": "(hidden)"},
        {"property": "Orders.Region", "value": "north"},
        {"property": "Orders.Region", "value": "south"},
    ]
    (listed,) = run("host", "list", "-o", "json").json
    assert (listed["trusted"], listed["properties"]) == (True, properties)
    assert run("host", "show", "Main", "-o", "json").json["properties"] == properties
    for words in (("host", "list"), ("host", "show", "Main")):
        shown = run(*words).out
        assert "trusted" in shown
        assert "Orders.Region = 'north', Orders.Region = 'south'" in shown
        assert "1234" not in shown


def test_message_predicates_are_shown(run: Run, app: Path, tmp_path: Path) -> None:
    app.write_text(app.read_text() + 'app.host("Main", properties={Region: "north"})\n')
    assert run("apply", app).code == ExitCode.OK
    asking = run("publish", _order(tmp_path), *PUBLISHED, "-o", "json").json[0]["message_id"]
    plain = run("publish", _order(tmp_path), "-p", "Region=EU", "-o", "json").json[0]["message_id"]
    assert run("message", "show", asking, "-o", "json").json["predicates"] == [
        {"property": "Orders.Region", "value": "north"}
    ]
    assert "Required of receiving hosts" in run("message", "show", asking).out
    assert "Asked of" not in run("message", "show", plain).out


@pytest.mark.parametrize("words", [("subscription", "list"), ("message", "list")], ids=" ".join)
def test_a_truncated_listing_has_a_note(applied: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    for _ in range(2):
        applied("publish", _order(tmp_path), "-p", "Region=EU")
    cut = applied(*words, "--limit", 1)
    assert "The list is limited to one row." in cut.err
    assert len(applied(*words, "--limit", 1, "-o", "json").json) == 1
    assert applied(*words, "--limit", 3).err == ""


def test_a_type_without_messages_is_not_reported_as_an_empty_spool(applied: Run, tmp_path: Path) -> None:
    applied("publish", _order(tmp_path), "-p", "Region=EU")
    assert applied("message", "list", "--type", "sale").out == "No message in the spool has the type 'sale'.\n"


def test_publishing_to_an_unenlisted_port_names_the_reason(applied: Run, app: Path, tmp_path: Path) -> None:
    app.write_text(app.read_text() + 'app.send_port_group("All", ["Europe"], state="bound")\n')
    assert applied("apply", app).code == ExitCode.OK
    applied("port", "unenlist", "Europe")
    for name, kind in (("Europe", "port"), ("All", "group")):
        refused = applied("publish", _order(tmp_path), "--to", name)
        assert refused.code == ExitCode.FAILED
        assert f"{name!r} is not enlisted, so no message can be directed to it: postroom {kind} start" in refused.err


def test_a_group_is_found_by_its_name(applied: Run, app: Path, tmp_path: Path) -> None:
    app.write_text(app.read_text() + 'app.send_port_group("All", ["Europe", "Audit"], filter=Region == "EU")\n')
    note = "started, filter: Orders.Region == 'EU'; members: Audit, Europe"
    assert note in applied("apply", app).out
    applied("group", "stop", "All")
    applied("publish", _order(tmp_path), "-p", "Region=EU")
    assert {instance["service"] for instance in applied("instance", "list", "--port", "All", "-o", "json").json} == {
        "Audit",
        "Europe",
    }
    listed = applied("subscription", "list", "--service", "All", "-o", "json").json
    assert [(subscription["service_name"], subscription["group"]) for subscription in listed] == [
        ("Audit", "All"),
        ("Europe", "All"),
    ]
    unclear = applied("subscription", "show", "Europe").err
    assert "(its own)" in unclear
    assert "(through All)" in unclear
    assert "(Audit)" in applied("subscription", "test", "All", "-p", "Region=EU").err
    missing = applied("subscription", "list", "--service", "Europa")
    assert (missing.code, "Did you mean Europe?" in missing.err) == (ExitCode.NOT_FOUND, True)


def _order(folder: Path) -> Path:
    path = folder / "order.json"
    path.write_text("{}")
    return path


def test_a_sink_is_shown_with_progress_and_guarantee(run: Run, app: Path) -> None:
    sink = 'adapters.SparkSink("parquet", "lake", columns={"total": Total}, options={"compression": "zstd"})'
    app.write_text(f'{app.read_text()}app.send_port("Lake", {sink}, filter=Region.exists())\n')
    assert run("apply", app).code == ExitCode.OK
    shown = run("pipeline", "show", "-o", "json").json
    assert [(entry["kind"], entry.get("location") or entry.get("sink"), entry["state"]) for entry in shown] == [
        ("receive location", "drop", "not running"),
        ("sink", "Lake", "not running"),
    ]
    listed = run("pipeline", "show").out
    assert listed.split().index("drop") < listed.split().index("Lake")
    output = " ".join(run("port", "show", "Lake").out.split())
    assert "guarantee exactly once: each batch is a directory that appears whole" in output
    assert "adapter columns total (Orders.Total, Decimal)" in output
    assert "adapter options compression=zstd" in output
    assert run("port", "show", "Lake", "-o", "json").json["adapter"]["columns"][0]["name"] == "total"
    assert "guarantee" not in run("port", "show", "Europe").out


def test_the_plan_of_a_new_host_shows_only_new_values(run: Run, app: Path) -> None:
    app.write_text(app.read_text() + 'app.host("Gate", trusted=True)\n')
    assert "trusted: yes" in run("plan", app).out
    assert run("apply", app).code == ExitCode.OK
    app.write_text(app.read_text().replace("trusted=True", "trusted=False"))
    assert "trusted: yes → no" in run("plan", app).out


def test_explain_reports_a_file_that_its_location_ignores(applied: Run, tmp_path: Path) -> None:
    order = _order(tmp_path)
    assert "would ignore" not in applied("explain", "--file", order, "--location", "drop").err
    other = order.rename(order.with_suffix(".py"))
    error = applied("explain", "--file", other, "--location", "drop").err
    assert error.startswith(f"drop would ignore {other.name}: it receives *.json.")
