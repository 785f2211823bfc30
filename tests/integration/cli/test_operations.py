"""The commands of an operator: port, location, subscription, instance, message, queue, jobs, host, check."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import connect
from tests.integration.cli.conftest import Run
from tests.support.contents import Contents

LISTINGS = [
    ("application", "list"),
    ("group", "list"),
    ("host", "list"),
    ("instance", "list"),
    ("instance", "list", "--group-by", "port"),
    ("jobs", "list"),
    ("location", "list"),
    ("message", "list"),
    ("port", "list"),
    ("queue", "list"),
    ("queue", "list", "--all"),
    ("subscription", "list"),
    ("check",),
    ("jobs", "run"),
]


@pytest.fixture
def suspended(applied: Run, tmp_path: Path) -> Run:
    """Run `postroom` with a message that is suspended for the stopped port Europe."""
    path = tmp_path / "order.json"
    path.write_text("bad")
    applied("port", "stop", "Europe")
    applied("publish", path, "-p", "Region=EU")
    return applied


def find_instance(run: Run) -> str:
    [one] = run("instance", "list", "-o", "json").json
    return str(one["instance_id"])


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_every_listing_has_a_table_and_a_json_form(suspended: Run, words: tuple[str, ...]) -> None:
    table = suspended(*words)
    assert (table.code, table.err) == (ExitCode.OK, "")
    assert table.out.strip()
    assert isinstance(suspended(*words, "-o", "json").json, list)


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_every_empty_listing_has_a_message(run: Run, words: tuple[str, ...]) -> None:
    table = run(*words)
    assert table.code == ExitCode.OK
    assert table.out.strip()


def test_ports_are_enlisted_started_stopped_and_unenlisted(applied: Run) -> None:
    assert applied("port", "stop", "Europe", "Audit", "-o", "json").json == [
        {"name": "Europe", "before": "started", "after": "stopped", "resumed": 0},
        {"name": "Audit", "before": "started", "after": "stopped", "resumed": 0},
    ]
    again = applied("port", "stop", "Europe")
    assert again.code == ExitCode.STATE
    assert again.err.splitlines() == [
        "Error: Port 'Europe' is already stopped.",
        " hint: Possible operations: 'start' or 'unenlist'.",
    ]
    assert "resumed" not in applied("port", "unenlist", "Europe").out
    assert applied("port", "enlist", "Europe").code == ExitCode.OK
    assert applied("port", "start", "Europe").code == ExitCode.OK
    missing = applied("port", "start", "Nowhere")
    assert missing.code == ExitCode.NOT_FOUND
    assert "Audit, BigOrders, Europe" in missing.err


def test_starting_a_port_shows_the_number_of_resumed_messages(suspended: Run) -> None:
    assert suspended("port", "start", "Europe", "-o", "json").json[0]["resumed"] == 1


def with_http_port(app: Path, authorization: str, proxy: str) -> None:
    adapter = f'adapters.Http("https://example.com", headers={{"Authorization": {authorization}}}, proxy={proxy})'
    text = app.read_text().replace('adapters.File("out/europe")', adapter)
    app.write_text(f"import postroom\n{text}")


def test_a_port_shows_references_to_secrets_and_no_values(
    applied: Run, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_http_port(app, 'postroom.secret(env="POSTROOM_TEST_TOKEN")', 'postroom.secret(file="/run/secrets/proxy")')
    monkeypatch.setenv("POSTROOM_TEST_TOKEN", "s3cret")
    outputs = [applied("plan", app, "-o", "json"), applied("apply", app)]
    outputs += [applied("port", "show", "Europe"), applied("port", "list", "-o", "json"), applied("check")]
    assert all(output.code == ExitCode.OK for output in outputs)
    assert "Authorization=secret (env=POSTROOM_TEST_TOKEN)" in outputs[2].out
    assert "send port Europe: The secret in the file /run/secrets/proxy cannot be read" in outputs[-1].err
    assert "POSTROOM_TEST_TOKEN" not in outputs[-1].err
    assert not any("s3cret" in output.out + output.err for output in outputs)


def test_literal_secrets_are_refused_and_not_shown(applied: Run, app: Path) -> None:
    with_http_port(app, '"s3cret"', '"http://u:s3cret@p"')
    refused = applied("plan", app)
    assert refused.code == ExitCode.REFUSED
    assert "'Authorization' is a secret" in refused.err
    assert "proxy=postroom.secret(" in refused.err
    assert "s3cret" not in refused.out + refused.err


def test_an_instance_is_shown_and_resumed_with_a_new_body(suspended: Run, tmp_path: Path) -> None:
    instance = find_instance(suspended)
    shown = suspended("instance", "show", instance)
    assert "PORT_STOPPED" in shown.out
    assert f"postroom instance resume {instance}" in shown.out
    assert "The subscriber Europe is enlisted but stopped." in shown.out
    assert suspended("message", "body", instance).out == "bad"
    corrected = tmp_path / "corrected.json"
    corrected.write_text("good")
    assert suspended("instance", "resume", instance, "--body", corrected).out == "1 instance resumed.\n"
    assert suspended("message", "body", instance).out == "good"
    refused = suspended("instance", "resume", instance)
    assert refused.code == ExitCode.STATE
    assert len(refused.err.splitlines()) == 3
    assert suspended("check").out == "All invariants hold.\n"


def test_all_matching_instances_are_changed_at_once(suspended: Run) -> None:
    assert suspended("instance", "resume", "--all", "--port", "Audit", "-o", "json").json == {"resumed": 0}
    assert suspended("instance", "resume", "--all", "--state", "suspended", "--host", "main").out.startswith(
        "1 instance"
    )
    assert suspended("instance", "suspend", "--all", "--port", "Europe", "-o", "json").json == {
        "suspended": 1,
        "pending": 0,
    }
    for answer in (b"n\n", b""):
        asked = suspended("instance", "terminate", "--all", "--error", "OPERATOR", stdin=answer)
        assert (asked.code, asked.out) == (ExitCode.FAILED, "")
        assert "No instance was terminated." in asked.err
    assert suspended("instance", "terminate", "--all", "--error", "OPERATOR", "--yes").out == "1 instance terminated.\n"
    assert suspended("instance", "list").out == "No instances.\n"


@pytest.mark.parametrize("verb", ["resume", "suspend"])
def test_changing_all_instances_needs_a_confirmation(suspended: Run, verb: str) -> None:
    if verb == "suspend":
        suspended("instance", "resume", "--all", "--yes")
    asked = suspended("instance", verb, "--all", stdin=b"n\n")
    assert (asked.code, asked.out) == (ExitCode.FAILED, "")
    assert suspended("instance", verb, "--all", stdin=b"y\n").out.startswith("1 instance")


def test_unknown_names_are_not_found(suspended: Run) -> None:
    for command in (("list",), ("resume", "--all"), ("terminate", "--all", "--yes"), ("list", "--group-by", "port")):
        for condition, hint in (
            (("--port", "Eurpe"), "Did you mean Europe?"),
            (("--host", "Nope"), "The hosts are: Main."),
            (("--error", "DELIVRY"), "Did you mean DELIVERY"),
        ):
            ran = suspended("instance", *command, *condition)
            assert (ran.code, ran.out) == (ExitCode.NOT_FOUND, ""), (command, condition)
            assert hint in ran.err
    assert suspended("instance", "list", "--port", "OrdersIn", "--error", "UNEXPECTED").out == "No instances.\n"
    assert suspended("port", "list", "--application", "nope").code == ExitCode.NOT_FOUND


def test_an_empty_body_needs_an_option(suspended: Run, tmp_path: Path) -> None:
    instance = find_instance(suspended)
    (tmp_path / "empty").touch()
    for empty in (tmp_path / "empty", "/dev/null"):
        refused = suspended("instance", "resume", instance, "--body", empty)
        assert (refused.code, "--allow-empty" in refused.err) == (ExitCode.USAGE, True)
    assert suspended("message", "body", instance).out == "bad"
    assert suspended("instance", "resume", instance, "--body", "/dev/null", "--allow-empty").code == ExitCode.OK
    assert suspended("message", "body", instance).out == ""


def test_ambiguous_arguments_are_usage_errors(suspended: Run, tmp_path: Path) -> None:
    instance = find_instance(suspended)
    for arguments in (
        ("resume",),
        ("resume", instance, "--all"),
        ("terminate", instance, "--port", "Europe"),
        ("resume", "--all", "--body", __file__),
        ("show", "not-an-id"),
    ):
        assert suspended("instance", *arguments).code == ExitCode.USAGE, arguments
    assert suspended("instance", "terminate", uuid.uuid4()).code == ExitCode.NOT_FOUND


def test_a_truncated_list_has_a_note(suspended: Run, tmp_path: Path) -> None:
    path = tmp_path / "another.json"
    path.write_text("{}")
    suspended("publish", path, "-p", "Region=EU")
    limited = suspended("instance", "list", "--limit", "1")
    assert len(limited.out.splitlines()) == 2
    assert "limited to one row" in limited.err
    assert len(suspended("instance", "list", "--limit", "1", "-o", "json").json) == 1


def test_a_message_is_shown_and_saved(suspended: Run, tmp_path: Path) -> None:
    instance = find_instance(suspended)
    shown = suspended("message", "show", instance)
    assert "Orders.Region" in shown.out
    assert "Europe" in shown.out
    described = suspended("message", "show", instance, "-o", "json").json
    assert sorted(described["context"], key=lambda row: row["property"]) == [
        {"property": "BTS.OriginatorPID", "value": "Guest", "promoted": False},
        {"property": "BTS.OriginatorSID", "value": "postgres", "promoted": False},
        {"property": "Orders.Region", "value": "EU", "promoted": True},
    ]
    saved = suspended("message", "save", instance, "--to", tmp_path / "saved", "-o", "json").json
    assert Path(saved[1]["file"]).read_text() == "bad"
    assert suspended("message", "save", instance, "--to", tmp_path / "saved").code == ExitCode.STATE
    assert suspended("message", "body", instance, "--part", "other").code == ExitCode.NOT_FOUND


def test_a_subscription_is_shown_with_its_expression(applied: Run) -> None:
    described = applied("subscription", "show", "BigOrders", "-o", "json").json
    assert described["type"] == "activation"
    assert [(row["group"], row["property"], row["operator"]) for row in described["expression"]] == [
        (1, "BTS.SPTransportID", "=="),
        (2, "Orders.Total", ">="),
        (2, "Orders.Region", "!="),
        (3, "Orders.Priority", "=="),
    ]
    assert "BigOrders" in applied("subscription", "show", described["subscription_id"]).out


def test_a_host_is_shown_with_its_queues(suspended: Run) -> None:
    assert "postroom host run Main" in suspended("host", "show", "main").out
    described = suspended("host", "show", "Main", "-o", "json").json
    assert described["queues"]["suspended"] == 1
    assert suspended("host", "show", "nowhere").code == ExitCode.NOT_FOUND
    for kind in ("host", "pipeline"):
        ran = suspended(kind, "run", "nowhere")
        assert (ran.code, ran.out) == (ExitCode.NOT_FOUND, "")


def test_a_location_gets_a_schedule(applied: Run) -> None:
    window = ("--window", "08:00-18:00", "--weekdays", "mon,Fri", "--zone", "Europe/Berlin")
    shown = "mon fri, 08:00-18:00, Europe/Berlin"
    assert applied("location", "schedule", "drop", *window, "-o", "json").json == [
        {"location": "drop", "schedule": shown}
    ]
    assert applied("location", "list", "-o", "json").json[0]["schedule"] == shown
    monthly = ("--month-weekdays", "first mon, last fri", "--months", "1,7", "--from", "2026-01-01")
    assert applied("location", "schedule", "drop", *monthly).code == ExitCode.OK
    assert applied("location", "schedule", "drop", "--month-days", "1,last").code == ExitCode.OK
    assert applied("location", "schedule", "drop", "--month-days", "1,penultimate").code == ExitCode.REFUSED
    assert applied("location", "schedule", "drop", "--zone", "Mars/Olympus").code == ExitCode.REFUSED
    assert applied("location", "schedule", "drop", "-o", "json").json[0]["schedule"] != "always"
    assert applied("location", "schedule", "drop", "--always").code == ExitCode.OK
    assert applied("location", "schedule", "drop", "-o", "json").json == [{"location": "drop", "schedule": "always"}]
    assert applied("location", "schedule", "nowhere").code == ExitCode.NOT_FOUND
    assert applied("location", "schedule", "drop", "--always", "--every-days", "2").code == ExitCode.USAGE
    assert applied("location", "schedule", "drop", "--always").code == ExitCode.OK
    assert applied("location", "list", "-o", "json").json[0]["schedule"] is None


def test_a_location_is_disabled_and_enabled(applied: Run) -> None:
    assert applied("location", "disable", "drop").code == ExitCode.OK
    assert applied("location", "list", "-o", "json").json[0]["enabled"] is False
    assert applied("location", "disable", "drop").code == ExitCode.STATE
    assert applied("location", "enable", "drop").code == ExitCode.OK
    assert applied("location", "enable", "nowhere").code == ExitCode.NOT_FOUND


def test_only_a_stream_can_be_reset(applied: Run) -> None:
    assert applied("location", "reset-stream", "nowhere").code == ExitCode.NOT_FOUND
    refused = applied("location", "reset-stream", "drop")
    assert refused.code == ExitCode.STATE
    assert "has no stream that was started" in refused.err


def test_check_lists_violations_and_fails(suspended: Run, database: str) -> None:
    with connect(database) as connection:
        Contents(connection).delete_all("suspended")
    found = suspended("check")
    assert found.code == ExitCode.FAILED
    assert "messages_without_reference" in found.out
    assert "violated invariants." in found.err


def test_a_login_without_permission_is_rejected(applied: Run, database: str) -> None:
    with connect(database) as connection:
        [host] = read_hosts(connection)
    refused = applied("--database", database.replace("postgres@", f"{host.role_name}@"), "port", "stop", "Europe")
    assert refused.code == ExitCode.STATE
    assert "The login may not do this." in refused.err


def test_groups_are_enlisted_started_stopped_and_unenlisted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(
        "from postroom import Application, Property, adapters\n"
        "Region = Property('Orders.Region', str)\n"
        "app = Application('orders')\n"
        "app.property(Region)\n"
        "one = app.send_port('One', adapters.Null())\n"
        "app.send_port('Two', adapters.Null(), state='stopped', description='The second')\n"
        "app.send_port_group('Everyone', [one, 'Two'], filter=Region == 'EU')\n"
    )
    assert run("apply", path).code == ExitCode.OK
    [listed] = run("group", "list", "-o", "json").json
    assert (listed["name"], listed["members"], listed["state"]) == ("Everyone", ["One", "Two"], "started")
    assert run("group", "list", "--application", "orders", "-o", "json").json == [listed]
    assert run("group", "list", "--application", "other").code == ExitCode.NOT_FOUND
    shown = run("group", "show", "Everyone", "-o", "json").json
    assert [(member["member"], member["through_the_group"]) for member in shown["members"]] == [
        ("One", "delivered"),
        ("Two", "suspended"),
    ]
    assert "suspended" in run("group", "show", "Everyone").out
    assert run("port", "show", "Two", "-o", "json").json["groups"] == ["Everyone"]
    assert run("publish", path, "-p", "Region=EU", "-o", "json").json[0]["subscribers"] == ["One", "Two"]
    assert run("publish", path, "--to", "One", "-o", "json").json[0]["subscribers"] == ["One"]
    missing = run("publish", path, "--to", "Nobody")
    assert missing.code == ExitCode.NOT_FOUND
    assert "Everyone, One, Two" in missing.err
    assert run("group", "stop", "Everyone", "-o", "json").json == [
        {"name": "Everyone", "before": "started", "after": "stopped", "resumed": 0}
    ]
    assert run("port", "start", "Two", "-o", "json").json[0]["resumed"] == 0
    assert run("group", "start", "Everyone", "-o", "json").json[0]["resumed"] == 1
    [through] = run("subscription", "list", "--service", "Two", "-o", "json").json[1:]
    assert (through["group"], through["state"]) == ("Everyone", "started")
    explained = run("explain", "-p", "Orders.Region=EU").out
    assert "Two through Everyone" in explained
    refused = run("group", "enlist", "Everyone")
    assert refused.code == ExitCode.STATE
    assert refused.err.splitlines()[0] == "Error: Send port group 'Everyone' is started and cannot enlist."
    assert run("port", "unenlist", "One").code == ExitCode.OK
    last = run("port", "unenlist", "Two")
    assert last.code == ExitCode.STATE
    assert "postroom group unenlist 'Everyone'" in last.err
    assert run("group", "unenlist", "Everyone").code == ExitCode.OK
    assert run("port", "unenlist", "Two").code == ExitCode.OK


def test_check_repairs_reference_counts(suspended: Run, database: str) -> None:
    with connect(database) as connection:
        Contents(connection).add_references(5)
    assert suspended("check").code == ExitCode.FAILED
    repaired = suspended("check", "--repair", "-o", "json")
    assert (repaired.code, repaired.json["violations"]) == (ExitCode.OK, [])
    [repair] = repaired.json["repairs"]
    assert (repair["what"], repair["problem"], repair["count"]) == ("message reference counts", "too high", 1)
    again = suspended("check", "--repair")
    assert (again.code, again.out) == (ExitCode.OK, "There was nothing to repair.\nAll invariants hold.\n")


def test_check_reports_what_a_repair_cannot_rebuild(suspended: Run, database: str) -> None:
    with connect(database) as connection:
        Contents(connection).delete_all("parts")
    result = suspended("check", "--repair", "-o", "json")
    assert result.code == ExitCode.FAILED
    assert [violation["invariant"] for violation in result.json["violations"]] == ["messages_without_part"]


def test_the_audit_lists_actions_with_their_reasons(applied: Run) -> None:
    assert applied("port", "stop", "Europe", "--reason", "maintenance").code == ExitCode.OK
    [entry] = applied("audit", "list", "--target", "Europe", "--action", "port.stop", "-o", "json").json
    assert (entry["action"], entry["reason"]) == ("port.stop", "maintenance")
    assert (entry["before"], entry["after"]) == ({"state": "started"}, {"state": "stopped"})
    table = applied("audit", "list", "--action", "port")
    assert "state: stopped" in table.out
    assert "maintenance" in table.out
    assert "No actions." in applied("audit", "list", "--until", "2020-01-01").out
