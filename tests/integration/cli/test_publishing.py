"""`postroom publish`, `postroom explain`, `postroom subscription test`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import Run


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.json"
    path.write_text('{"region": "EU", "total": 50}')
    return path


def test_files_are_published_together_and_say_who_receives_them(applied: Run, order: Path) -> None:
    done = applied("publish", order, "-", "-p", "Region=EU", "--promote", "Orders.Total=10000", stdin=b"<order/>")
    assert done.code == ExitCode.OK
    assert done.out.count("BigOrders, Europe") == 2
    listed = applied("message", "list", "-o", "json").json
    assert sorted(one["size"] for one in listed) == [len(b"<order/>"), order.stat().st_size]
    (first, second) = applied("publish", order, order, "-p", "Region=EU", "-o", "json").json
    assert first["subscribers"] == second["subscribers"] == ["Europe"]
    shown = applied("message", "show", first["message_id"], "-o", "json").json
    assert shown["parts"][0]["content_type"] == "application/json"


def test_one_that_nobody_wants_holds_back_all(applied: Run, order: Path) -> None:
    refused = applied("publish", order, "-", "-p", "Region=Mars")
    assert refused.code == ExitCode.FAILED
    assert "no subscribers were found" in refused.out
    assert "Nothing was published: 2 of 2" in refused.err
    kept = applied("publish", order, "-p", "BTS.SuspendMessageOnRoutingFailure=true", "-o", "json").json
    assert [one["suspended"] for one in kept] == [True]


def test_a_key_publishes_once(applied: Run, order: Path) -> None:
    first = applied("publish", order, "-p", "Region=EU", "--key", "k", "-o", "json").json
    assert applied("publish", order, "-p", "Region=EU", "--key", "k", "-o", "json").json == first
    assert len(applied("message", "list", "-o", "json").json) == 1


@pytest.mark.parametrize(
    ("promote", "code", "said"),
    [
        ("Orders.Regin=EU", ExitCode.NOT_FOUND, "Did you mean Orders.Region?"),
        ("Orders.Total=much", ExitCode.REFUSED, "'much' is not a decimal number"),
        ("Orders.Region", ExitCode.REFUSED, "gives no value"),
        (f"Orders.Region={'x' * 300}", ExitCode.REFUSED, "at most 256 characters"),
    ],
)
def test_a_wrong_property_is_refused_with_the_way_out(
    applied: Run, order: Path, promote: str, code: ExitCode, said: str
) -> None:
    refused = applied("publish", order, "-p", promote)
    assert (refused.code, said in refused.err) == (code, True), refused.err


def test_a_messagebox_without_hosts_cannot_be_published_to(run: Run, order: Path) -> None:
    refused = run("publish", order)
    assert refused.code == ExitCode.STATE
    assert "postroom apply" in refused.err


def test_an_explanation_reads_well(applied: Run) -> None:
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

○ Audit  would receive it, if it were enlisted: postroom port start Audit  (not enlisted)
    ✓ BTS.ReceivePortName == 'OrdersIn'  is 'OrdersIn'

✗ BigOrders  misses it by one predicate  (started on Main)
    ✗ Orders.Total >= 10000    is 50
    ✓ Orders.Region != 'TEST'  is 'EU'
  or
    ✗ Orders.Priority == 1     is not there
"""
    )


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
    assert {one["name"] for one in what_if["subscribers"] if one["matches"]} == {"Europe", "BigOrders"}
    assert applied("explain", uuid.uuid4()).code == ExitCode.NOT_FOUND


def test_a_file_is_explained_as_its_location_reads_it(applied: Run, order: Path, tmp_path: Path) -> None:
    shown = applied("explain", "--file", order, "--nearest", "0")
    assert "2 of 3 subscribers would receive it now: Audit, Europe." in shown.out
    assert "BigOrders" not in shown.out
    assert "1 more miss it by more." in shown.out
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert "It cannot be read, and would be suspended" in applied("explain", "--file", bad).out
    assert applied("explain", "--file", order, "--location", "nowhere").code == ExitCode.NOT_FOUND
    assert applied("message", "list", "-o", "json").json == []


def test_what_is_to_be_explained_must_be_given_once(applied: Run, order: Path) -> None:
    assert applied("explain").code == ExitCode.USAGE
    assert applied("explain", uuid.uuid4(), "--file", order).code == ExitCode.USAGE


def test_a_subscription_is_tried_alone(applied: Run) -> None:
    hit = applied("subscription", "test", "BigOrders", "-p", "Priority=1")
    assert (hit.code, hit.out.splitlines()[0]) == (ExitCode.OK, "✓ BigOrders  receives it  (started on Main)")
    miss = applied("subscription", "test", "BigOrders", "-w", "Priority=1", "-o", "json")
    assert miss.code == ExitCode.FAILED
    reasons = {each["reason"] for group in json.loads(miss.out)["groups"] for each in group["predicates"]}
    assert "written but not promoted" in reasons
    assert applied("subscription", "test", "nobody").code == ExitCode.NOT_FOUND
