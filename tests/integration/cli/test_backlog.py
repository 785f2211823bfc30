"""Removed ports, removed applications and terminated instances on the command line: numbers first, then the change."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import Run

EUROPE = 'app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU")\n'


@pytest.fixture
def backlog(applied: Run, app: Path, tmp_path: Path) -> Run:
    """Run `postroom` with three suspended messages for Europe. The file of the application has no Europe any more."""
    (tmp_path / "order.json").write_text("{}")
    applied("port", "stop", "Europe")
    for _ in range(3):
        assert applied("publish", tmp_path / "order.json", "-p", "Region=EU").code == ExitCode.OK
    app.write_text(app.read_text().replace(EUROPE, ""))
    return applied


def test_plan_and_apply_refuse_to_remove_a_port_with_instances(backlog: Run, app: Path) -> None:
    for command in ("plan", "apply"):
        refused = backlog(command, app)
        assert refused.code == ExitCode.REFUSED
        assert "send port 'Europe' cannot be removed: it still has 3 instances (3 suspended)." in refused.err
        assert "--backlog keep, reroute or terminate" in refused.err
        assert "renamed_from='Europe'" in refused.err
        assert str(app) not in refused.err, "the file is correct"
        assert "Correct the definition" not in refused.err


def test_a_backlog_is_not_hidden_behind_a_problem_of_the_file(backlog: Run, app: Path) -> None:
    valid = app.read_text()
    app.write_text(valid + 'app.send_port("New", adapters.Null(), priority=77)\n')
    refused = backlog("plan", app)
    assert "2 problems" in refused.err
    assert "priority is 77" in refused.err
    assert "send port 'Europe' cannot be removed: it still has 3 instances" in refused.err
    assert "one problem" in backlog("plan", app, "--backlog", "keep").err
    # A port with a problem, or with a new name and a problem, is not removed.
    for declared in ('"Europe", adapters.Null()', '"EU", adapters.Null(), renamed_from="Europe"'):
        app.write_text(valid + f"app.send_port({declared}, priority=77)\n")
        refused = backlog("plan", app)
        assert "one problem" in refused.err
        assert "priority is 77" in refused.err


@pytest.mark.parametrize(
    ("decision", "planned", "done", "left"),
    [
        ("keep", "3 instances (3 suspended) stay", "", 3),
        (
            "reroute",
            "3 instances (3 suspended) will be rerouted",
            "3 instances of Europe will be routed again by host Main.",
            3,
        ),
        ("terminate", "3 instances (3 suspended) will be terminated", "3 instances of Europe terminated.", 0),
    ],
)
def test_the_backlog_option_decides_about_the_instances(
    backlog: Run, app: Path, decision: str, planned: str, done: str, left: int
) -> None:
    plan = backlog("plan", app, "--backlog", decision)
    assert plan.code == ExitCode.OK
    assert planned in plan.out
    applied = backlog("apply", app, "--backlog", decision)
    assert applied.code == ExitCode.OK
    assert done in applied.out
    listed = backlog("instance", "list", "--port", "Europe", "-o", "json").json
    assert [(each["service"], each["service_removed"]) for each in listed] == [("Europe", True)] * left


def test_a_renamed_port_needs_no_decision(backlog: Run, app: Path) -> None:
    renamed = EUROPE.replace('"Europe"', '"EU"').replace(")\n", ', renamed_from="Europe")\n')
    app.write_text(app.read_text() + renamed)
    assert "name: Europe → EU" in backlog("plan", app).out
    assert backlog("apply", app).code == ExitCode.OK
    assert [port["state"] for port in backlog("port", "list", "-o", "json").json if port["name"] == "EU"] == ["stopped"]
    assert len(backlog("instance", "list", "--port", "EU", "-o", "json").json) == 3
    assert "Nothing to change" in backlog("apply", app).out


def test_reroute_takes_ids_or_conditions(backlog: Run, app: Path) -> None:
    backlog("apply", app, "--backlog", "keep")
    first, *_ = (each["instance_id"] for each in backlog("instance", "list", "-o", "json").json)
    assert f"postroom instance reroute {first}" in backlog("instance", "show", first).out
    assert backlog("instance", "reroute", first).out == "1 instance will be routed again by host Main.\n"
    again = backlog("instance", "reroute", first)
    assert (again.code, "cannot be rerouted: it is ready to run" in again.err) == (ExitCode.STATE, True)
    ran = backlog("instance", "reroute", "--all", "--port", "Europe")
    assert ran.out == "2 instances will be routed again by host Main.\n"
    assert ran.err == "2 instances (2 suspended) will be rerouted.\n"
    assert backlog("instance", "reroute", "--all", "--port", "Europe").out == "0 instances will be routed again.\n"


def test_the_instances_of_a_removed_port_are_selected_apart_from_a_port_of_the_same_name(
    backlog: Run, app: Path, tmp_path: Path
) -> None:
    backlog("apply", app, "--backlog", "keep")
    other = tmp_path / "other.py"
    other.write_text(
        "from postroom import Application, Property, adapters\n"
        'Region = Property("Orders.Region", str)\n'
        'app = Application("other")\n'
        "app.property(Region)\n"
        'app.send_port("Europe", adapters.File("elsewhere"), filter=Region == "CH")\n'
    )
    assert backlog("apply", other).code == ExitCode.OK
    backlog("port", "stop", "Europe")
    assert backlog("publish", tmp_path / "order.json", "-p", "Orders.Region=CH").code == ExitCode.OK
    assert len(backlog("instance", "list", "--port", "Europe", "-o", "json").json) == 4
    removed = backlog("instance", "list", "--port", "Europe", "--removed", "-o", "json").json
    assert [each["service_removed"] for each in removed] == [True, True, True]
    ran = backlog("instance", "terminate", "--all", "--removed", "--yes")
    assert ran.out == "3 instances terminated.\n"
    [left] = backlog("instance", "list", "-o", "json").json
    assert (left["service"], left["service_removed"]) == ("Europe", False)
    assert any(each["target"] == "removed" for each in backlog("instance", "operations", "-o", "json").json)


def test_resuming_an_instance_of_a_removed_port_warns(backlog: Run, app: Path) -> None:
    backlog("apply", app, "--backlog", "keep")
    first, *_ = (each["instance_id"] for each in backlog("instance", "list", "-o", "json").json)
    resumed = backlog("instance", "resume", first)
    assert resumed.err == (
        "The send port 'Europe' was removed. The host will suspend one instance again. Instead: postroom instance "
        "reroute --all --port Europe --removed\n"
    )
    assert "The host will suspend 2 instances again." in backlog("instance", "resume", "--all", "--port", "Europe").err


def test_terminate_shows_the_number_before_it_asks(backlog: Run) -> None:
    asked = backlog("instance", "terminate", "--all", "--port", "Europe", stdin=b"n\n")
    assert asked.code == ExitCode.FAILED
    assert asked.err.startswith("3 instances (3 suspended) will be terminated.\nContinue? [y/N]: ")
    assert asked.err.endswith("No instance was terminated. Use --yes to skip the confirmation.\n")
    assert len(backlog("instance", "list", "-o", "json").json) == 3
    ran = backlog("instance", "terminate", "--all", "--port", "Europe", "--yes")
    assert (ran.out, ran.err) == ("3 instances terminated.\n", "3 instances (3 suspended) will be terminated.\n")
    nothing = backlog("instance", "terminate", "--all", "--port", "Europe")
    assert (nothing.out, nothing.err) == ("0 instances terminated.\n", "0 instances will be terminated.\n")


def test_an_application_is_removed_after_a_confirmation(backlog: Run) -> None:
    refused = backlog("application", "remove", "orders", "--yes")
    assert refused.code == ExitCode.REFUSED
    assert "it still has 3 instances (3 suspended)" in refused.err
    asked = backlog("application", "remove", "orders", "--backlog", "terminate", stdin=b"n\n")
    assert asked.code == ExitCode.FAILED
    assert "3 instances (3 suspended) will be terminated" in asked.out
    assert "The application 'orders' was not removed. Use --yes" in asked.err
    assert len(backlog("application", "list", "-o", "json").json) == 1
    removed = backlog("application", "remove", "orders", "--backlog", "terminate", stdin=b"y\n")
    assert removed.code == ExitCode.OK
    assert "3 instances of Europe terminated." in removed.out
    assert removed.out.count("send port") == asked.out.count("send port"), "the table is shown once"
    assert "orders, if removed:" in asked.out
    assert backlog("application", "list", "-o", "json").json == []
    assert backlog("instance", "list", "-o", "json").json == []
    assert backlog("application", "remove", "orders").code == ExitCode.NOT_FOUND
