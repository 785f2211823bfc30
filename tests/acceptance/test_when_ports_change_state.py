"""ACC-21, 22, 24: the effect of port states on messages."""

from __future__ import annotations

import postroom
from postroom import Property
from tests.support.house import House
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
PORT = 'app.send_port("P", adapters.File("out"), filter=Region == "EU", state="{state}")\n'


def publish(house: House, count: int) -> None:
    with postroom.connect(house.database) as client:
        for number in range(count):
            client.publish(f"order {number}".encode(), promoted={Region: "EU"})


def test_stopping_a_port_keeps_its_queue_and_suspends_later_messages(house: House) -> None:
    """ACC-21, ACC-22."""
    house.apply(PORT.format(state="started"))
    publish(house, 50)
    house.run("port", "stop", "P")
    publish(house, 5)
    house.start_host()
    house.wait_for_files("out", 50)
    suspended = house.suspended(error="PORT_STOPPED")
    assert len(suspended) == 5
    house.run("instance", "resume", suspended[0]["instance_id"])
    house.wait_for_files("out", 51)
    assert len(house.suspended()) == 4
    house.run("port", "start", "P")
    house.wait_for_files("out", 55)
    assert house.suspended() == []


def test_unenlisting_keeps_the_instance_that_is_retrying(house: House) -> None:
    """ACC-24."""
    (house.home / "out").write_text("a file where the folder should be: every send fails")
    house.apply(
        'app.send_port("P", adapters.File("out"), filter=Region == "EU", retry=Retry(count=1000, interval=3600))\n'
    )
    publish(house, 1)
    house.start_host()
    wait_until(lambda: house.ask("instance", "list", "--state", "retrying"), what="a retrying instance")
    house.run("port", "unenlist", "P")
    with postroom.connect(house.database) as client:
        try:
            client.publish(b"late", promoted={Region: "EU"})
        except postroom.errors.PublishFailed:
            refused = True
        else:
            refused = False
    assert refused
    [retrying] = house.ask("instance", "list", "--state", "retrying")
    house.run("instance", "terminate", retrying["instance_id"])
