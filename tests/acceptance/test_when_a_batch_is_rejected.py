"""ACC-10: a batch with one unroutable message is rejected. Sent again with the flag, that message is suspended."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Message, Property
from postroom.errors import PublishFailed, RoutingFailure
from tests.support.installation import Installation

Region = Property("Orders.Region", str)


def order(number: int, *, suspend: bool = False) -> Message:
    """Return an order. The 57th is for a region without a subscriber."""
    flag = {BTS.SuspendMessageOnRoutingFailure: True} if suspend else {}
    return Message.of(f"order {number}".encode(), promoted={Region: "MOON" if number == 57 else "EU", **flag})


def test_one_unroutable_message_rejects_the_batch_unless_it_may_be_suspended(installation: Installation) -> None:
    installation.apply('app.send_port("Europe", adapters.File("out"), filter=Region == "EU")')
    with postroom.connect(installation.database) as client:
        with pytest.raises(PublishFailed) as error:
            client.publish_many([order(number) for number in range(1, 101)])
        failed = [number for number, result in enumerate(error.value.results, 1) if result.failure is not None]
        assert failed == [57]
        assert isinstance(error.value.results[56].failure, RoutingFailure)
        # The MessageBox contains only the routing failure report.
        [report] = installation.list_suspended("not-resumable")
        assert installation.list_suspended("resumable") == []
        assert len(installation.run_json("message", "list")) == 1
        installation.run("instance", "terminate", report["instance_id"])

        published = client.publish_many([order(number, suspend=number == 57) for number in range(1, 101)])
    assert [number for number, message in enumerate(published, 1) if message.suspended] == [57]
    host = installation.start_host()
    bodies = installation.wait_for_files("out", 99)
    assert sorted(bodies) == sorted(f"order {number}".encode() for number in range(1, 101) if number != 57)
    assert host.stop() == 0
    [suspended] = installation.list_suspended("resumable")
    assert (suspended["message_id"], suspended["error_code"]) == (str(published[56].message_id), "ROUTING")
    [report] = installation.list_suspended("not-resumable")
    assert (
        installation.run_json("instance", "show", report["instance_id"])["related_instance_id"]
        == suspended["instance_id"]
    )
