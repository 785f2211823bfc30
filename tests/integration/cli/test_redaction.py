"""Values of sensitive properties are used for routing and never shown (SEC-14)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.messagebox.configuration.hosts import ServiceClass, read_hosts
from postroom.messagebox.connection import connect
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.properties import Property
from postroom.system_properties import SYSTEM_PROPERTIES
from tests.integration.cli.conftest import Run
from tests.support.contents import Contents

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
        "publish",
        tmp_path / "payment.json",
        "-p",
        f"Payments.Card={SECRET}",
        "-w",
        "BTS.SSOTicket=abcdef",
        "--require",
        "Security.Level=3",
    )
    assert (published.code, "Visa" in published.out) == (ExitCode.OK, True)
    return run


def test_no_command_shows_a_sensitive_value(payments: Run, tmp_path: Path) -> None:
    """SEC-15."""
    [instance] = payments("instance", "list", "-o", "json").json
    message_id = instance["message_id"]
    for command in (
        ("message", "show", message_id),
        ("message", "list"),
        ("explain", message_id),
        ("explain", "--promoted", f"Payments.Card={SECRET}x"),
        ("instance", "show", instance["instance_id"]),
        ("subscription", "explain", "--filter", "Payments.Card == '5500'"),
    ):
        for output in ("table", "json"):
            ran = payments(*command, "-o", output)
            assert ran.code in (ExitCode.OK, ExitCode.FAILED), (command, ran)
            visible = ran.out.replace(f"== '{SECRET}'", "").replace(f'"wanted": "{SECRET}"', "")
            assert SECRET not in visible, (command, ran.out)
            assert "abcdef" not in visible, (command, ran.out)
    payments("message", "save", message_id, "--to", tmp_path / "saved")
    (context,) = (tmp_path / "saved").rglob("context.json")
    assert SECRET not in context.read_text()
    assert "(hidden)" in context.read_text()


def test_sensitive_values_in_message_predicates_are_hidden(payments: Run, tmp_path: Path) -> None:
    asked = ("-p", f"Payments.Card={SECRET}", "--require", "Payments.Card=9999")
    for output in ("table", "json"):
        explained = payments("explain", *asked, "-o", output)
        assert "(hidden)" in explained.out
        assert "9999" not in explained.out
    refused = payments("publish", tmp_path / "payment.json", *asked)
    assert refused.code == ExitCode.FAILED
    assert "9999" not in refused.out + refused.err
    assert "9999" not in payments("instance", "list", "-o", "json").out


def test_sensitive_correlation_values_are_hidden(payments: Run, database: str) -> None:
    """The filter of an instance is not configuration: its value came from a message."""
    with connect(database) as connection:
        host = next(host for host in read_hosts(connection) if host.name == "Secure")
        service = SubscribingService(service_id=uuid.UUID(int=7), name="Refunds")
        filter = (Property("Payments.Card", str) == "9999") & (Property("Security.Level", int) == 77)
        ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS).wait(connection, service, uuid.uuid4(), filter)
    [listed] = payments("subscription", "list", "--type", "instance", "-o", "json").json
    for command in (
        ("subscription", "list"),
        ("subscription", "show", "Refunds"),
        ("subscription", "explain", "Refunds"),
        ("subscription", "test", "Refunds", "-p", "Security.Level=77"),
        ("explain", "-p", "Payments.Card=9999", "-p", "Security.Level=77"),
    ):
        for output in ("table", "json"):
            ran = payments(*command, "-o", output)
            assert ran.code in (ExitCode.OK, ExitCode.FAILED), (command, ran)
            assert "9999" not in ran.out, (command, ran.out)
    shown = payments("subscription", "show", listed["subscription_id"], "-o", "json").json["expression"]
    assert {(row["property"], row["value"]) for row in shown} == {("Payments.Card", "(hidden)"), ("Security.Level", 77)}
    explained = payments("explain", "-p", "Payments.Card=9999", "-p", "Security.Level=77", "-o", "json").json
    [waiting] = [subscriber for subscriber in explained[0]["subscribers"] if subscriber["name"].startswith("Refunds")]
    assert waiting["verdict"] == "receives it"


def test_a_sensitive_property_stays_sensitive(run: Run, database: str, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(APP.replace(", sensitive=True", ""))
    run("apply", path)
    path.write_text(APP)
    changed = run("apply", path)
    assert "sensitive: no → yes" in changed.out
    path.write_text(APP.replace(", sensitive=True", ""))
    run("apply", path)
    with connect(database) as connection:
        keys = Contents(connection).sensitive_properties()
    of_the_system = {key for key, prop in SYSTEM_PROPERTIES.items() if prop.sensitive}
    assert keys - of_the_system == {"Payments#Card"}


def test_only_the_authenticated_originator_is_shown(payments: Run, database: str) -> None:
    [instance] = payments("instance", "list", "-o", "json").json
    context = payments("message", "show", instance["message_id"], "-o", "json").json["context"]
    shown = {row["property"]: row["value"] for row in context}
    assert (shown["BTS.OriginatorSID"], shown["BTS.OriginatorPID"]) == ("postgres", "Guest")
