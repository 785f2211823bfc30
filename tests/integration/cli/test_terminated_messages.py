"""`postroom instance terminate` and `skip` on ordered ports: what is deleted is shown, and confirmed if it is more than
one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import Run

ORDERED = """
app.send_port("Ordered", adapters.Null(), filter=Region == "EU", ordered=True, stop_on_failure=True)
"""


@pytest.fixture
def postroom(run: Run, app: Path, tmp_path: Path) -> Run:
    """Run `postroom` with three messages of the port Ordered and of the port Europe."""
    app.write_text(app.read_text() + ORDERED)
    assert run("apply", app).code == 0
    order = tmp_path / "order.json"
    order.write_text('{"region": "EU"}')
    for _ in range(3):
        assert run("publish", order, "-p", "Region=EU").code == 0
    return run


def find_ids(run: Run, port: str) -> list[str]:
    return [one["instance_id"] for one in run("instance", "list", "--port", port, "-o", "json").json]


def count_messages(run: Run, port: str) -> int:
    return sum(one["messages"] for one in run("instance", "list", "--port", port, "-o", "json").json)


def test_one_message_is_terminated_without_a_question(postroom: Run) -> None:
    [port] = find_ids(postroom, "Ordered")
    done = postroom("instance", "terminate", port)
    assert (done.code, done.out) == (ExitCode.OK, "1 instance terminated.\n")
    assert done.err == (
        "Only the first message of Ordered will be deleted. 2 messages after it will be sent. To delete them too, add"
        " --all-messages.\n"
    )
    assert count_messages(postroom, "Ordered") == 2


def test_all_messages_are_terminated_after_a_question_with_their_number(postroom: Run) -> None:
    [port] = find_ids(postroom, "Ordered")
    refused = postroom("instance", "terminate", port, "--all-messages", stdin=b"n\n")
    assert refused.code == ExitCode.FAILED
    assert "3 messages will be terminated. Continue?" in refused.err
    assert "No instance was terminated. Use --yes" in refused.err
    assert count_messages(postroom, "Ordered") == 3
    done = postroom("instance", "terminate", port, "--all-messages", "--yes", "-o", "json")
    assert (done.code, done.json) == (ExitCode.OK, {"terminated": 1, "pending": 0, "messages": 3})
    assert count_messages(postroom, "Ordered") == 0


def test_several_instances_are_terminated_after_a_question(postroom: Run) -> None:
    ids = find_ids(postroom, "Europe")
    refused = postroom("instance", "terminate", *ids)
    assert refused.code == ExitCode.FAILED
    assert "3 messages will be terminated." in refused.err
    assert postroom("instance", "terminate", *ids, stdin=b"y\n").out == "3 instances terminated.\n"
    assert find_ids(postroom, "Europe") == []


def test_terminate_by_conditions_leaves_the_other_messages_of_an_ordered_port(postroom: Run) -> None:
    done = postroom("instance", "terminate", "--all", "--port", "Ordered", "--yes")
    assert (done.code, done.out) == (ExitCode.OK, "1 instance terminated.\n")
    assert "Only the first message of Ordered will be deleted." in done.err
    assert count_messages(postroom, "Ordered") == 2
    done = postroom("instance", "terminate", "--all", "--port", "Ordered", "--all-messages", "--yes", "-o", "json")
    assert done.json == {"terminated": 1, "pending": 0, "messages": 2}
    assert done.err == (
        "All 2 messages of Ordered will be deleted.\n1 instance (1 ready to run), 2 messages, will be terminated.\n"
    )
    assert count_messages(postroom, "Ordered") == 0


def test_a_skipped_message_is_shown_as_an_instance_of_its_own(postroom: Run) -> None:
    [port] = find_ids(postroom, "Ordered")
    skipped = postroom("instance", "skip", port, "--reason", "ticket 7", "-o", "json")
    assert skipped.code == ExitCode.OK
    [instance] = skipped.json["instances"]
    assert skipped.json["skipped"] == 1
    shown = postroom("instance", "show", instance, "-o", "json").json
    assert (shown["state"], shown["service"], shown["messages"]) == ("suspended", "Ordered", 1)
    assert postroom("instance", "skip", port).out.startswith("The message is now instance ")
    assert postroom("instance", "skip", instance).code == ExitCode.STATE
    assert [entry["reason"] for entry in postroom("audit", "list", "--action", "instance.skip", "-o", "json").json] == [
        None,
        "ticket 7",
    ]
