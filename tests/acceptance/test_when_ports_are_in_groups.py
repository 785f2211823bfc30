"""ACC-23: a send port group and its members have states of their own."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Property
from postroom.errors import PublishFailed
from tests.support.house import House
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
GROUP = """
one = app.send_port("P1", adapters.File("out/1"), filter=Region == "US")
two = app.send_port("P2", adapters.File("out/2"), state="stopped")
app.send_port_group("Everyone", [one, two], filter=Region == "EU")
"""


def publish(house: House, body: bytes, region: str = "EU") -> None:
    with postroom.connect(house.database) as client:
        client.publish(body, promoted={Region: region})


def test_a_copy_goes_out_where_both_are_started_and_waits_where_one_is_not(house: House) -> None:
    """ACC-23."""
    house.apply(GROUP)
    house.start_host()
    publish(house, b"first")
    assert house.wait_for_files("out/1", 1) == [b"first"]
    [waiting] = wait_until(lambda: house.suspended("resumable"), 30, what="the copy of P2")
    assert (waiting["service"], waiting["error_code"]) == ("P2", "PORT_STOPPED")

    house.run("group", "stop", "Everyone")
    publish(house, b"second")
    assert sorted(one["service"] for one in house.suspended("resumable")) == ["P1", "P2", "P2"]
    assert house.arrived("out/2") == []

    house.run("group", "start", "Everyone")
    assert sorted(house.wait_for_files("out/1", 2)) == [b"first", b"second"]
    house.run("port", "start", "P2")
    assert sorted(house.wait_for_files("out/2", 2)) == [b"first", b"second"]
    wait_until(lambda: house.ask("instance", "list") == [], 30, what="nothing left to do")


def test_a_filter_does_not_restrict_what_is_directed_to_a_port(house: House) -> None:
    """SUB-13."""
    house.apply(GROUP)
    [port] = [one for one in house.ask("port", "list") if one["name"] == "P1"]
    with postroom.connect(house.database) as client:
        directed = client.publish(b"", promoted={Region: "MOON", BTS.SPTransportID: port["transport_id"]})
        assert directed.subscribers == ("P1",)
        with pytest.raises(PublishFailed):
            client.publish(b"", promoted={Region: "MOON"})


def test_a_port_is_deleted_with_its_subscriptions_and_leaves_its_instances(house: House) -> None:
    """SPT-09: what waits for a port that is gone cannot be sent, and stays, suspended."""
    house.apply(GROUP)
    publish(house, b"an order")
    house.apply('app.send_port("P1", adapters.File("out/1"), filter=Region == "US")')
    assert [one["name"] for one in house.ask("port", "list")] == ["P1"]
    assert [one["service_name"] for one in house.ask("subscription", "list")] == ["P1"]
    house.start_host()
    assert house.wait_for_files("out/1", 1) == [b"an order"]
    [left] = wait_until(lambda: house.suspended("resumable"), 30, what="the copy of the port that is gone")
    house.run("instance", "resume", left["instance_id"])
    again = wait_until(
        lambda: [one for one in house.suspended("resumable") if one["suspended_at"] != left["suspended_at"]],
        30,
        what="the copy, suspended again",
    )
    assert again[0]["instance_id"] == left["instance_id"]
