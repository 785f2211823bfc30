"""ACC-21, 22, 24: the effect of port states on messages."""

from __future__ import annotations

import postroom
from postroom import Property
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
PORT = 'app.send_port("P", adapters.File("out"), filter=Region == "EU", state="{state}")\n'


def publish(installation: Installation, count: int) -> None:
    with postroom.connect(installation.database) as client:
        for number in range(count):
            client.publish(f"order {number}".encode(), promoted={Region: "EU"})


def test_stopping_a_port_keeps_its_queue_and_suspends_later_messages(installation: Installation) -> None:
    """SPT-04, SPT-06, ACC-21, ACC-22."""
    installation.apply(PORT.format(state="started"))
    publish(installation, 50)
    installation.run("port", "stop", "P")
    publish(installation, 5)
    installation.start_host()
    installation.wait_for_files("out", 50)
    suspended = installation.list_suspended(error="PORT_STOPPED")
    assert len(suspended) == 5
    installation.run("instance", "resume", suspended[0]["instance_id"])
    installation.wait_for_files("out", 51)
    assert len(installation.list_suspended()) == 4
    installation.run("port", "start", "P")
    installation.wait_for_files("out", 55)
    assert installation.list_suspended() == []


def test_unenlisting_keeps_the_instance_that_is_retrying(installation: Installation) -> None:
    """ACC-24."""
    (installation.home / "out").write_text("a file where the folder should be: every send fails")
    installation.apply(
        'app.send_port("P", adapters.File("out"), filter=Region == "EU", retry=Retry(count=1000, interval=3600))\n'
    )
    publish(installation, 1)
    installation.start_host()
    wait_until(lambda: installation.run_json("instance", "list", "--state", "retrying"), what="a retrying instance")
    installation.run("port", "unenlist", "P")
    with postroom.connect(installation.database) as client:
        try:
            client.publish(b"late", promoted={Region: "EU"})
        except postroom.errors.PublishFailed:
            refused = True
        else:
            refused = False
    assert refused
    [retrying] = installation.run_json("instance", "list", "--state", "retrying")
    installation.run("instance", "terminate", retrying["instance_id"])
