"""`postroom plan` and `postroom apply`."""

from __future__ import annotations

from pathlib import Path

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import APP, Run


def test_plan_then_apply_then_nothing(run: Run, app: Path) -> None:
    planned = run("plan", app)
    assert planned.code == ExitCode.OK
    assert "create  send port     Europe" in planned.out
    assert "orders, if applied: 11 created." in planned.out
    assert run("application", "list", "-o", "json").json == []
    applied = run("apply", app)
    assert applied.code == ExitCode.OK
    assert "orders: 11 created." in applied.out
    again = run("apply", app)
    assert again.out == "Nothing to change: orders is applied as it stands.\n"
    assert [one["name"] for one in run("application", "list", "-o", "json").json] == ["orders"]


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


def test_a_file_that_is_not_there_is_a_matter_of_usage(run: Run) -> None:
    assert run("apply", "nowhere.py").code == ExitCode.USAGE
