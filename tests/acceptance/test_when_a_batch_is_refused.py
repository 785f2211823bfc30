"""ACC-10: a batch with one message that nobody subscribes to is refused whole; sent again, that one is suspended."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Message, Property
from postroom.errors import PublishFailed, RoutingFailure
from tests.support.house import House

Region = Property("Orders.Region", str)


def order(number: int, *, kept: bool = False) -> Message:
    """The 57th is for a region that nobody serves."""
    flag = {BTS.SuspendMessageOnRoutingFailure: True} if kept else {}
    return Message.of(f"order {number}".encode(), promoted={Region: "MOON" if number == 57 else "EU", **flag})


def test_one_in_a_hundred_that_nobody_wants(house: House) -> None:
    house.apply('app.send_port("Europe", adapters.File("out"), filter=Region == "EU")')
    with postroom.connect(house.database) as client:
        with pytest.raises(PublishFailed) as refused:
            client.publish_many([order(number) for number in range(1, 101)])
        failed = [number for number, one in enumerate(refused.value.results, 1) if one.failure is not None]
        assert failed == [57]
        assert isinstance(refused.value.results[56].failure, RoutingFailure)
        # Nothing of it is in the MessageBox but the report of the refusal.
        [report] = house.suspended("not-resumable")
        assert house.suspended("resumable") == []
        assert len(house.ask("message", "list")) == 1
        house.run("instance", "terminate", report["instance_id"])

        published = client.publish_many([order(number, kept=number == 57) for number in range(1, 101)])
    assert [number for number, one in enumerate(published, 1) if one.suspended] == [57]
    host = house.start_host()
    bodies = house.wait_for_files("out", 99)
    assert sorted(bodies) == sorted(f"order {number}".encode() for number in range(1, 101) if number != 57)
    assert host.stop() == 0
    [kept] = house.suspended("resumable")
    assert (kept["message_id"], kept["error_code"]) == (str(published[56].message_id), "ROUTING")
    [report] = house.suspended("not-resumable")
    assert house.ask("instance", "show", report["instance_id"])["related_instance_id"] == kept["instance_id"]
