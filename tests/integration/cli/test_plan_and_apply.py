"""`postroom plan` and `postroom apply`."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.operations.deployment import taken_changes
from postroom.system_properties import SYSTEM_PROPERTIES
from tests.integration.cli.conftest import APP, Run


def test_plan_shows_no_changes_after_apply(run: Run, app: Path) -> None:
    planned = run("plan", app)
    assert planned.code == ExitCode.OK
    assert "create  send port     Europe" in planned.out
    assert "started, filter: Orders.Region == 'EU'" in planned.out
    assert "orders, if applied: 11 created." in planned.out
    assert run("application", "list", "-o", "json").json == []
    applied = run("apply", app)
    assert applied.code == ExitCode.OK
    assert "orders: 11 created." in applied.out
    assert f"{len(SYSTEM_PROPERTIES)} properties" in applied.out
    again = run("apply", app)
    assert again.out == "Nothing to change: orders is up to date.\n"
    assert [application["name"] for application in run("application", "list", "-o", "json").json] == ["orders"]


def test_a_change_shows_before_and_after(applied: Run, app: Path) -> None:
    app.write_text(APP.replace('Region == "EU"', 'Region == "UK"'))
    applied("port", "stop", "Europe")
    planned = applied("plan", app)
    assert "filter: Orders.Region == 'EU' → Orders.Region == 'UK'" in planned.out
    assert "stays stopped" in planned.out
    described = applied("plan", app, "-o", "json").json
    assert described["would_change"] is True
    (step,) = (step for step in described["steps"] if step["kind"] == "send port")
    assert step["differences"] == [
        {"field": "filter", "before": "Orders.Region == 'EU'", "after": "Orders.Region == 'UK'"}
    ]
    assert applied("apply", app, "-o", "json").json["changed"] is True
    assert applied("port", "show", "Europe", "-o", "json").json["filter"] == "Orders.Region == 'UK'"


COMPONENT = """
def accept(message):
    return message
"""


def test_a_location_is_changed_with_the_file_of_its_component(run: Run, app: Path) -> None:
    component = app.with_name("checks.py")
    component.write_text(COMPONENT)
    pipeline = r"pipeline=pipelines.Receive(validate=[checks.accept], disassemble=[\1]),"
    source = "import checks\n" + re.sub(r"pipeline=(pipelines.Json\(.*\)),", pipeline, APP)
    app.write_text(source)
    assert run("apply", app).code == ExitCode.OK
    app.write_text(source.replace('Region == "EU"', 'Region == "UK"'))
    steps = {step["name"]: step["action"] for step in run("apply", app, "--all", "-o", "json").json["steps"]}
    assert (steps["drop"], steps["Europe"]) == ("keep", "change")
    component.write_text(COMPONENT.replace("return message", "return None"))
    described = run("apply", app, "-o", "json").json
    (step,) = (step for step in described["steps"] if step["name"] == "drop")
    assert [difference["field"] for difference in step["differences"]] == ["pipeline file checks.py"]


def test_apply_names_a_process_that_has_not_taken_the_changes(
    run: Run, app: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_changes, "wait_until_taken", partial(taken_changes.wait_until_taken, timeout=0))
    assert run("apply", app).code == ExitCode.OK
    with closing(connect(database)) as process:
        register_process(process, find_host(process, "Main").host_id, ProcessKind.PIPELINE)
        app.write_text(APP.replace('Region == "EU"', 'Region == "UK"'))
        pending = run("apply", app)
        assert pending.code == ExitCode.NOT_TAKEN
        assert "orders: 2 changed" in pending.out
        assert f"the pipeline Main (process {os.getpid()} on" in pending.err
        again = run("apply", app)
        assert (again.code, again.out) == (ExitCode.NOT_TAKEN, "Nothing to change: orders is up to date.\n")
        assert run("apply", app, "--no-wait").code == ExitCode.OK
        removed = run("application", "remove", "orders", "--yes")
        assert removed.code == ExitCode.NOT_TAKEN
        assert run("application", "list", "-o", "json").json == []
    assert run("apply", app).code == ExitCode.OK


def test_every_problem_is_listed_and_nothing_is_changed(applied: Run, app: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(APP.replace('"orders"', '"other"').replace('"Orders.Total", Decimal', '"Orders.Total", int'))
    for command in ("plan", "apply"):
        refused = applied(command, other)
        assert refused.code == ExitCode.REFUSED
        for text in ("send port named 'Europe'", "receive port named 'OrdersIn'", "Orders.Total has the type int"):
            assert text in refused.err
        assert f"{other}:" in refused.err
    broken = tmp_path / "broken.py"
    broken.write_text(APP.replace('== "EU"', "== 7").replace('"out/big"', '""'))
    refused = applied("apply", broken)
    assert refused.code == ExitCode.REFUSED
    assert "2 problems" in refused.err
    assert len(applied("application", "list", "-o", "json").json) == 1


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (
            "\"Regoin == 'EU'\"",
            "no property Regoin (at character 1). Did you mean Region?\n  Regoin == 'EU'\n  ^",
        ),
        ("\"Region == 'EU' and Total >= 'much'\"", "'much' is not a decimal number (at character 29)"),
        ('"""Region == \'EU\'\n  and Priority == \'x\'"""', "'x' is not a whole number (at line 2, character 19)"),
        ("\"Region == '\" + 257 * 'x' + \"'\"", "at most 256 characters, this one has 257 (at character 11)"),
        (
            "'Total & 4'",
            "Orders.Total is of type Decimal, and a bitwise AND needs an int property (at character 9)",
        ),
        ("Property('Orders.Shop', str) == 'x'", "Orders.Shop is not known"),
        ("Region == 5", "Orders.Region == 5: 5 is not a str."),
        ("Region == 257 * 'x'", "at most 256 characters, this one has 257"),
        ("Total.bitand(4)", "Orders.Total & 4: a bitwise AND needs an int property, and this one is Decimal."),
    ],
)
def test_an_invalid_filter_is_reported_with_file_and_line(run: Run, app: Path, filter: str, message: str) -> None:
    line = APP.count("\n") + 1
    app.write_text(f"{APP}app.send_port('Bad', adapters.Null(), filter={filter})\n")
    refused = run("plan", app, "-o", "json")
    assert refused.code == ExitCode.REFUSED
    [problem] = json.loads(refused.err)["error"]["problems"]
    assert (problem["file"], problem["line"]) == (str(app), line)
    assert message in problem["text"]
    shown = run("plan", app)
    assert f"{app}:{line}: " in shown.err


def test_a_missing_application_file_is_a_usage_error(run: Run) -> None:
    assert run("apply", "nowhere.py").code == ExitCode.USAGE


def test_problems_of_the_application_and_conflicts_with_the_messagebox_are_listed_together(
    applied: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text(
        "from postroom import Application, Property, adapters\n"
        'Region = Property("Orders.Region", int)\n'
        'app = Application("other")\n'
        "app.property(Region)\n"
        'app.send_port("Bad", adapters.File("out"), priority=11)\n'
        'app.send_port("Europe", adapters.File("out"), filter=Region == 1)\n'
    )
    for verb in ("plan", "apply"):
        refused = applied(verb, other, "-o", "json")
        assert refused.code == ExitCode.REFUSED
        found = json.loads(refused.err)["error"]["problems"]
        texts = "\n".join(problem["text"] for problem in found)
        assert "priority is 11" in texts
        assert "has a send port named 'Europe' already" in texts
        assert "Orders.Region has the type int here" in texts


def test_without_a_messagebox_everything_in_the_plan_is_new(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "new-home"
    assert main(["plan", str(app), "--home", str(home)]) == ExitCode.OK
    assert "orders, if applied: 11 created." in capsys.readouterr().out
    assert not home.exists()
