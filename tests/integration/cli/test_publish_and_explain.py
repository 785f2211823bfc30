"""`postroom publish`, `postroom explain`, `postroom subscription test`."""

from __future__ import annotations

import json
import os
import threading
import uuid
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import APP, Run


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.json"
    path.write_text('{"region": "EU", "total": 50}')
    return path


def test_files_are_published_together_and_listed_with_their_subscribers(applied: Run, order: Path) -> None:
    done = applied("publish", order, "-", "-p", "Region=EU", "--promoted", "Orders.Total=10000", stdin=b"<order/>")
    assert done.code == ExitCode.OK
    assert done.out.count("BigOrders, Europe") == 2
    listed = applied("message", "list", "-o", "json").json
    assert sorted(message["size"] for message in listed) == [len(b"<order/>"), order.stat().st_size]
    (first, second) = applied("publish", order, order, "-p", "Region=EU", "-o", "json").json
    assert first["subscribers"] == second["subscribers"] == ["Europe"]
    shown = applied("message", "show", first["message_id"], "-o", "json").json
    assert shown["parts"][0]["content_type"] == "application/json"


def test_a_pipe_is_read_to_its_end(applied: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"<order/>",))
    writer.start()
    (published,) = applied("publish", pipe, "-p", "Region=EU", "-o", "json").json
    writer.join()
    assert applied("message", "body", published["message_id"]).out == "<order/>"


def test_a_message_without_subscriber_rejects_all_messages(applied: Run, order: Path) -> None:
    refused = applied("publish", order, "-", "-p", "Region=Mars")
    assert refused.code == ExitCode.FAILED
    assert "no subscribers were found" in refused.out
    assert "Nothing was published: 2 of 2" in refused.err
    assert "no subscribers were found" not in refused.err, "it is reported once"
    (report, _) = applied("instance", "list", "-o", "json").json
    assert report["service"] is None
    assert "routing failure report" in applied("instance", "list").out
    assert "routing failure report" in applied("message", "show", report["instance_id"]).out
    kept = applied("publish", order, "-p", "BTS.SuspendMessageOnRoutingFailure=true", "-o", "json").json
    assert [message["suspended"] for message in kept] == [True]


def test_an_idempotency_key_publishes_once(applied: Run, order: Path) -> None:
    (first,) = applied("publish", order, "-p", "Region=EU", "--key", "k", "-o", "json").json
    (second,) = applied("publish", order, "-p", "Region=EU", "--key", "k", "-o", "json").json
    assert (first["repeated"], second) == (False, {**first, "repeated": True})
    shown = applied("publish", order, "-p", "Region=EU", "--key", "k").out
    assert [word in shown for word in ("repeated", str(first["message_id"]))] == [True, True]
    assert "repeated" not in applied("publish", order, "-p", "Region=EU", "--key", "other").out
    assert len(applied("message", "list", "-o", "json").json) == 2


@pytest.mark.parametrize(
    ("promote", "code", "message"),
    [
        ("Orders.Regin=EU", ExitCode.NOT_FOUND, "Did you mean Orders.Region?"),
        ("Orders.Total=much", ExitCode.REFUSED, "'much' is not a decimal number"),
        ("Orders.Region", ExitCode.REFUSED, "has no value"),
        (f"Orders.Region={'x' * 300}", ExitCode.REFUSED, "at most 256 characters"),
    ],
)
def test_an_invalid_property_is_rejected_with_a_hint(
    applied: Run, order: Path, promote: str, code: ExitCode, message: str
) -> None:
    refused = applied("publish", order, "-p", promote)
    assert (refused.code, message in refused.err) == (code, True), refused.err


def test_publishing_needs_a_host(run: Run, order: Path) -> None:
    refused = run("publish", order)
    assert refused.code == ExitCode.STATE
    assert "postroom apply" in refused.err


def test_an_explanation_is_written_as_text(applied: Run) -> None:
    applied("port", "unenlist", "Audit")
    shown = applied("explain", "-p", "Region=EU", "-p", "Total=50", "-p", "BTS.ReceivePortName=OrdersIn")
    assert shown.code == ExitCode.OK
    assert (
        shown.out
        == """\
A message with these properties
  Orders.Region       = 'EU'
  Orders.Total        = 50
  BTS.ReceivePortName = 'OrdersIn'

1 of 3 subscribers would receive it now: Europe.

✓ Europe  receives it  (started on Main)
    ✓ Orders.Region == 'EU'  is 'EU'

○ Audit  would receive it, if port Audit were started: postroom port start Audit  (not enlisted)
    ✓ BTS.ReceivePortName == 'OrdersIn'  is 'OrdersIn'

✗ BigOrders  misses it by one predicate  (started on Main)
    ✗ Orders.Total >= 10000    is 50
    ✓ Orders.Region != 'TEST'  is 'EU'
  or
    ✗ Orders.Priority == 1     is missing
"""
    )


def test_a_property_has_one_spelling_in_contexts_and_filters(run: Run, tmp_path: Path, order: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from postroom import Application, Property, adapters\n"
        'Number = Property("Number", str, namespace="http://example.com/invoices")\n'
        'app = Application("invoices")\n'
        "app.property(Number)\n"
        'app.send_port("Invoices", adapters.File("out"), filter=Number == "1")\n'
    )
    assert run("apply", app, "--no-wait").code == 0
    name = "{http://example.com/invoices}Number"
    (published,) = run("publish", order, "-p", f"{name}=1", "-o", "json").json
    explained = run("explain", published["message_id"]).out
    assert explained.count("http://example.com/invoices") == explained.count(name) >= 2
    shown = run("message", "show", published["message_id"], "-o", "json").json
    assert name in [row["property"] for row in shown["context"]]


def test_a_stored_message_is_explained_by_its_id_or_an_instance(applied: Run, order: Path) -> None:
    [published] = applied("publish", order, "-p", "Region=EU", "-o", "json").json
    [instance] = applied("instance", "list", "-o", "json").json
    by_message = applied("explain", published["message_id"], "-o", "json").json
    assert by_message == applied("explain", instance["instance_id"], "-o", "json").json
    [explained] = by_message
    assert explained["accepted"] is True
    first = explained["subscribers"][0]
    assert (first["name"], first["verdict"]) == ("Europe", "receives it")
    what_if = applied("explain", published["message_id"], "-p", "Orders.Priority=1", "-o", "json").json[0]
    assert {subscriber["name"] for subscriber in what_if["subscribers"] if subscriber["matches"]} == {
        "Europe",
        "BigOrders",
    }
    assert applied("explain", uuid.uuid4()).code == ExitCode.NOT_FOUND


def test_a_file_is_explained_as_its_location_reads_it(applied: Run, order: Path, tmp_path: Path) -> None:
    shown = applied("explain", "--file", order, "--nearest", "0")
    assert "2 of 3 subscribers would receive it now: Audit, Europe." in shown.out
    assert "BigOrders" not in shown.out
    assert "1 more misses it." in shown.out
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert "It cannot be read, and would be suspended" in applied("explain", "--file", bad).out
    assert applied("explain", "--file", order, "--location", "nowhere").code == ExitCode.NOT_FOUND
    assert applied("message", "list", "-o", "json").json == []


def test_a_stopped_subscriber_keeps_the_message_suspended(applied: Run) -> None:
    applied("port", "stop", "Europe")
    shown = applied("explain", "-p", "Region=EU", "-p", "Priority=1").out
    assert "1 of 3 subscribers would receive it now: BigOrders.\n1 more keeps it suspended: Europe.\n" in shown


def test_ambiguous_input_of_explain_is_a_usage_error(applied: Run, order: Path) -> None:
    assert applied("explain").code == ExitCode.USAGE
    assert applied("explain", uuid.uuid4(), "--file", order).code == ExitCode.USAGE


def test_limits_apply_to_misses_and_receivers(applied: Run) -> None:
    shown = applied("explain", "-p", "Region=EU", "-p", "Priority=1", "--limit", "1", "--nearest", "0").out
    assert "2 of 3 subscribers would receive it now: BigOrders and 1 more." in shown
    assert shown.endswith("1 more receives it.\n1 more misses it.\n")


def test_a_subscription_is_tested(applied: Run) -> None:
    hit = applied("subscription", "test", "BigOrders", "-p", "Priority=1")
    assert (hit.code, hit.out.splitlines()[0]) == (ExitCode.OK, "✓ BigOrders  receives it  (started on Main)")
    miss = applied("subscription", "test", "BigOrders", "-w", "Priority=1", "-o", "json")
    assert miss.code == ExitCode.FAILED
    reasons = {each["reason"] for group in json.loads(miss.out)["groups"] for each in group["predicates"]}
    assert "written but not promoted" in reasons
    assert applied("subscription", "test", "nobody").code == ExitCode.NOT_FOUND


def test_a_filter_is_tested_without_a_subscription(applied: Run) -> None:
    text = "Region == 'EU' and Total >= 10000"
    hit = applied("subscription", "test", "--filter", text, "-p", "Region=EU", "-p", "Total=12000")
    assert (hit.code, hit.out.splitlines()[0]) == (ExitCode.OK, "✓ matches")
    miss = applied("subscription", "test", "--filter", text, "-p", "Region=EU", "-o", "json")
    assert miss.code == ExitCode.FAILED
    assert miss.json["matches"] is False
    assert miss.json["filter"] == "Orders.Region == 'EU' and Orders.Total >= 10000"
    [group] = miss.json["groups"]
    assert group["predicates"][1]["words"] == "Orders.Total >= 10000 fails: the message has no such property"
    refused = applied("subscription", "test", "--filter", "Region = 'EU'")
    assert (refused.code, "Write ==" in refused.err) == (ExitCode.REFUSED, True)
    assert applied("subscription", "test").code == ExitCode.USAGE
    assert applied("subscription", "test", "Europe", "--filter", text).code == ExitCode.USAGE


def test_a_port_that_is_not_enlisted_is_tested_by_its_filter(applied: Run) -> None:
    applied("port", "unenlist", "Europe")
    hit = applied("subscription", "test", "Europe", "-p", "Region=EU")
    assert (hit.code, hit.out.splitlines()[0]) == (
        ExitCode.OK,
        "○ Europe  would receive it, if port Europe were started: postroom port start Europe  (not enlisted)",
    )


def test_long_values_and_large_contexts_are_truncated(applied: Run) -> None:
    long = "x" * 5_000
    shown = applied("explain", "-p", "Region=EU", "-w", f"BTS.SourceParty={long}")
    assert "… (5,002 characters)  (written, not used for routing)" in shown.out
    assert max(map(len, shown.out.splitlines())) < 300
    [explained] = applied("explain", "-w", f"BTS.SourceParty={long}", "-o", "json").json
    [row] = explained["context"]
    assert (len(row["value"]), row["length"]) == (1_001, 5_000)


def test_message_predicates_are_compared_with_host_properties(applied: Run, app: Path) -> None:
    unknown = applied("explain", "-p", "Region=EU", "--require", "Security.Thumbprint=T")
    assert (unknown.code, "no property 'Security.Thumbprint'" in unknown.err) == (ExitCode.NOT_FOUND, True)
    app.write_text(app.read_text() + 'app.host("Secure", properties={Property("Security.Thumbprint", str): "U"})\n')
    assert applied("apply", app).code == ExitCode.OK
    shown = applied("explain", "-p", "Region=EU", "--require", "Security.Thumbprint=T")
    assert "  requires of its receivers: Security.Thumbprint = 'T'\n" in shown.out
    assert "○ Europe  may not receive it: host Main lacks Security.Thumbprint = 'T'  (started on Main)" in shown.out
    [explained] = applied("explain", "-p", "Region=EU", "-r", "Security.Thumbprint=T", "-o", "json").json
    assert explained["accepted"] is False
    assert explained["counts"] == {"may not receive it": 1, "misses it": 2}
    assert explained["subscribers"][0]["unmet"] == [{"property": "Security.Thumbprint", "value": "T"}]
    assert applied("subscription", "test", "Europe", "-p", "Region=EU", "-r", "Security.Thumbprint=T").code == 1
    app.write_text(f"{APP}app.host('Main', properties={{Property('Security.Thumbprint', str): 'T'}})\n")
    assert applied("apply", app).code == ExitCode.OK
    assert applied("subscription", "test", "Europe", "-p", "Region=EU", "-r", "Security.Thumbprint=T").code == 0


def test_a_subscription_lists_matching_messages(applied: Run, order: Path) -> None:
    assert applied("subscription", "explain", "Europe").out == "The spool is empty.\n"
    [first] = applied("publish", order, "-p", "Region=EU", "-p", "Total=1", "-o", "json").json
    [second] = applied("publish", order, "-p", "Priority=1", "-w", "Region=EU", "-o", "json").json
    shown = applied("subscription", "explain", "Europe")
    assert (shown.code, shown.out.splitlines()[0]) == (0, "1 of the 2 messages that were compared would match.")
    assert first["message_id"] in shown.out
    assert second["message_id"] not in shown.out
    found = applied("subscription", "explain", "--filter", "exists(Priority)", "-o", "json").json
    assert [message["message_id"] for message in found["messages"]] == [second["message_id"]]
    none = applied("subscription", "explain", "--filter", "Region == 'ASIA'")
    assert "0 of the 2 messages that were compared would match.\nThe nearest:" in none.out
    assert "Orders.Region == 'ASIA' fails: the property is written ('EU') but not promoted" in none.out
    assert applied("subscription", "explain", "nobody").code == ExitCode.NOT_FOUND


def test_the_nearest_misses_of_a_subscription_name_the_predicates_of_its_filter(applied: Run, order: Path) -> None:
    applied("publish", order, "-p", "Priority=1")
    missed = applied("subscription", "explain", "Europe").out
    assert "The message that was compared would not match." in missed
    assert "Orders.Region == 'EU' fails: the message has no such property" in missed
    assert "BTS.SPTransportID" not in missed
