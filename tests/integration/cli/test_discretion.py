"""Values of sensitive properties are routed by, and never shown (SEC-14); who a message is from is as believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.messagebox.connection import connect
from tests.integration.cli.conftest import Run

APP = """
from postroom import BTS, Application, Property, adapters

Card = Property("Payments.Card", str, sensitive=True)
Level = Property("Security.Level", int)
app = Application("payments")
app.property(Card, Level)
app.host("Secure", properties={Level: 3})
app.send_port("Visa", adapters.File("out/visa"), filter=Card == "4111", state="stopped", host="Secure")
app.send_port("Other", adapters.File("out/other"), filter=Card == "5500", state="stopped")
"""
SECRET = "4111"


@pytest.fixture
def payments(run: Run, tmp_path: Path) -> Run:
    (tmp_path / "app.py").write_text(APP)
    assert run("apply", tmp_path / "app.py").code == ExitCode.OK
    (tmp_path / "payment.json").write_text("{}")
    published = run(
        *("publish", tmp_path / "payment.json", "-p", f"Payments.Card={SECRET}", "-w", "BTS.SSOTicket=abcdef"),
        *("--require", "Security.Level=3"),
    )
    assert (published.code, "Visa" in published.out) == (ExitCode.OK, True)
    return run


def test_no_command_shows_the_value(payments: Run, tmp_path: Path) -> None:
    [instance] = payments("instance", "list", "-o", "json").json
    message_id = instance["message_id"]
    for command in (
        ("message", "show", message_id),
        ("message", "list"),
        ("explain", message_id),
        ("explain", "--property", f"Payments.Card={SECRET}x"),
        ("instance", "show", instance["instance_id"]),
        ("subscription", "explain", "--filter", "Payments.Card == '5500'"),
    ):
        for output in ("table", "json"):
            ran = payments(*command, "-o", output)
            assert ran.code in (ExitCode.OK, ExitCode.FAILED), (command, ran)
            said = ran.out.replace(f"== '{SECRET}'", "").replace(f'"wanted": "{SECRET}"', "")
            assert SECRET not in said, (command, ran.out)
            assert "abcdef" not in said, (command, ran.out)
    payments("message", "save", message_id, "--to", tmp_path / "saved")
    (context,) = (tmp_path / "saved").rglob("context.json")
    assert SECRET not in context.read_text()
    assert "(hidden)" in context.read_text()


def test_a_property_becomes_sensitive_and_stays_so(run: Run, database: str, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(APP.replace(", sensitive=True", ""))
    run("apply", path)
    path.write_text(APP)
    changed = run("apply", path)
    assert "sensitive: no → yes" in changed.out
    path.write_text(APP.replace(", sensitive=True", ""))
    run("apply", path)
    with connect(database) as connection:
        rows = connection.execute("SELECT key FROM properties WHERE sensitive ORDER BY key").fetchall()
    assert rows == [("BTS#SSOTicket",), ("Payments#Card",)]


def test_who_a_message_is_from_is_what_is_believed(payments: Run, database: str) -> None:
    [instance] = payments("instance", "list", "-o", "json").json
    context = payments("message", "show", instance["message_id"], "-o", "json").json["context"]
    shown = {row["property"]: row["value"] for row in context}
    assert (shown["BTS.OriginatorSID"], shown["BTS.OriginatorPID"]) == ("postgres", "Guest")
