"""Send port groups, from the application to the delivered messages: SUB-13, 15, 16; SPT-09, 11, 12; ACC-23."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Property
from tests.support.http_receiver import http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
GROUPED = """
a = app.send_port("A", adapters.File("out/a"), filter=Region == "EU")
app.send_port("B", adapters.File("out/b"))
app.send_port_group("Everyone", [a, "B"], filter=Region.exists())
"""


def publish(installation: Installation, body: bytes, region: str | None, *, to: str | None = None) -> tuple[str, ...]:
    with postroom.connect(installation.database) as client:
        promoted = {} if region is None else {Region: region}
        return client.publish(body, promoted=promoted, to=to).subscribers


def is_everything_sent(installation: Installation) -> bool:
    return not installation.run_json("instance", "list")


def test_a_member_receives_one_copy_for_each_subscription_that_matches(installation: Installation) -> None:
    """SUB-15, SUB-16, SUB-13: by the filters of port and group, and by the name of either."""
    installation.apply(GROUPED)
    installation.start_host()
    assert publish(installation, b"both", "EU") == ("A", "A", "B")
    assert publish(installation, b"group", "US") == ("A", "B")
    assert publish(installation, b"named group", None, to="Everyone") == ("A", "B")
    assert publish(installation, b"named port", None, to="A") == ("A",)
    wait_until(lambda: is_everything_sent(installation), what="everything sent")
    assert sorted(installation.read_files("out/a")) == [b"both", b"both", b"group", b"named group", b"named port"]
    assert sorted(installation.read_files("out/b")) == [b"both", b"group", b"named group"]


def test_two_copies_are_two_requests(installation: Installation) -> None:
    """SUB-15: the receiver can tell the copies apart by their idempotency keys."""
    with http_receiver() as receiver:
        installation.apply(
            f"""
            app.send_port("Web", adapters.Http("{receiver.url}"), filter=Region == "EU")
            app.send_port_group("Everyone", ["Web"], filter=Region == "EU")
            """
        )
        assert publish(installation, b"order", "EU") == ("Web", "Web")
        installation.start_host()
        wait_until(lambda: len(receiver.accepted) == 2, what="both copies")
        wait_until(lambda: is_everything_sent(installation), what="everything sent")
        assert [request.body for request in receiver.accepted] == [b"order", b"order"]
        assert len({request.headers["Idempotency-Key"] for request in receiver.accepted}) == 2


def test_copies_for_a_stopped_member_or_a_stopped_group_are_suspended(installation: Installation) -> None:
    """ACC-23: the copy of a stopped member is suspended, and so are all copies of a stopped group."""
    installation.apply(GROUPED)
    installation.start_host()
    installation.run("port", "stop", "B")
    assert publish(installation, b"first", "US") == ("A", "B")
    assert installation.wait_for_files("out/a", 1) == [b"first"]
    wait_until(lambda: len(installation.run_json("instance", "list")) == 1, what="the copy of A completed")
    assert [row["service"] for row in installation.list_suspended(error="PORT_STOPPED")] == ["B"]
    installation.run("group", "stop", "Everyone")
    assert publish(installation, b"second", "US") == ("A", "B")
    assert sorted(row["service"] for row in installation.list_suspended(error="PORT_STOPPED")) == ["A", "B", "B"]
    # The subscription of port A itself is still started.
    assert publish(installation, b"named", None, to="A") == ("A",)
    wait_until(lambda: len(installation.run_json("instance", "list")) == 3, what="only the suspended instances")
    assert sorted(installation.read_files("out/a")) == [b"first", b"named"]
    assert installation.read_files("out/b") == []
    installation.run("group", "start", "Everyone")
    installation.run("port", "start", "B")
    wait_until(lambda: is_everything_sent(installation), what="everything sent")
    assert sorted(installation.read_files("out/a")) == [b"first", b"named", b"second"]
    assert sorted(installation.read_files("out/b")) == [b"first", b"second"]


def test_operations_that_the_states_do_not_allow_fail_with_the_reason(installation: Installation) -> None:
    """SPT-11, SPT-12."""
    file = installation.apply(GROUPED)
    installation.run("port", "unenlist", "B")
    assert "last enlisted member of the group 'Everyone'" in installation.run("port", "unenlist", "A", exit_code=5)
    file.write_text(file.read_text().replace('[a, "B"]', '["B"]'))
    output = installation.run("plan", str(file), exit_code=3)
    assert "the started send port 'A' cannot be removed" in output
    assert f"{file}:" in output
    installation.run("group", "unenlist", "Everyone")
    installation.run("port", "unenlist", "A")
    assert "it has no enlisted member" in installation.run("group", "start", "Everyone", exit_code=5)
    installation.run("apply", str(file))
    [group] = installation.run_json("group", "list")
    assert group["members"] == ["B"]


def test_removing_a_port_removes_its_memberships_and_suspends_its_instances(installation: Installation) -> None:
    """SPT-09: a port cannot be removed while a group names it. Its instances are suspended when they are dequeued."""
    file = installation.apply(GROUPED)
    publish(installation, b"waiting", "US")
    without_b = file.read_text().replace('app.send_port("B", adapters.File("out/b"))\n', "")
    file.write_text(without_b)
    assert "there is no send port 'B' in this application" in installation.run("plan", str(file), exit_code=3)
    file.write_text(without_b.replace('[a, "B"]', "[a]"))
    assert "it still has 1 instance (1 ready to run)" in installation.run("apply", str(file), exit_code=3)
    planned = installation.run_json("plan", str(file), "--backlog", "keep")
    [removed] = [step for step in planned["steps"] if step["action"] == "remove"]
    note = "is started and will be unenlisted; 1 instance (1 ready to run) stays"
    assert (removed["name"], removed["note"]) == ("B", note)
    installation.run("apply", str(file), "--backlog", "keep")
    installation.start_host()
    [gone] = wait_until(lambda: installation.list_suspended(error="PORT_GONE"), what="the instance of the removed port")
    assert installation.wait_for_files("out/a", 1) == [b"waiting"]
    # A port that is declared again is the same port and sends the resumed message.
    installation.apply(GROUPED)
    installation.run("instance", "resume", gone["instance_id"])
    assert installation.wait_for_files("out/b", 1) == [b"waiting"]


@pytest.mark.parametrize("prop", [BTS.SPGroupID, BTS.SPTransportID], ids=["group", "port"])
def test_a_message_can_be_directed_by_the_id_of_a_port_or_a_group(installation: Installation, prop: Property) -> None:
    installation.apply(GROUPED)
    group_id = installation.run_json("group", "show", "Everyone")["group_id"]
    transport_id = installation.run_json("port", "show", "B")["transport_id"]
    expected_id = group_id if prop is BTS.SPGroupID else transport_id
    with postroom.connect(installation.database) as client:
        subscribers = client.publish(b"x", promoted={prop: expected_id}).subscribers
    assert subscribers == (("A", "B") if prop is BTS.SPGroupID else ("B",))
