"""ACC-21, 22, 24: the effect of port states on messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import postroom
from postroom import Property
from postroom.errors import PublishFailed
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def publish(installation: Installation, *bodies: bytes) -> None:
    with postroom.connect(installation.database) as client:
        for body in bodies:
            client.publish(body, promoted={Region: "EU"})


def wait_until_sent(installation: Installation, folder: str, bodies: Sequence[bytes]) -> None:
    """Wait until nothing can be sent any more, and compare the files."""
    unsent = ("instance", "list", "--state", "ready", "--state", "active")
    wait_until(lambda: installation.run_json(*unsent) == [], what="no message that can be sent")
    assert sorted(installation.read_files(folder)) == sorted(bodies)


def test_stopping_a_port_keeps_its_queue_and_suspends_later_messages(installation: Installation) -> None:
    """SPT-04, SPT-05, SPT-06, ACC-21, ACC-22, INS-08: what came before the stop is sent. What came after it is
    suspended, and can be resumed while the port is stopped."""
    installation.apply('app.send_port("P", adapters.File("out"), filter=Region == "EU")\n')
    early = [f"early {number}".encode() for number in range(50)]
    late = [f"late {number}".encode() for number in range(5)]
    publish(installation, *early)
    installation.run("port", "stop", "P")
    publish(installation, *late)
    with installation.run_host():
        wait_until_sent(installation, "out", early)
        suspended = installation.list_suspended("resumable", error="PORT_STOPPED")
        assert len(suspended) == len(installation.list_suspended()) == 5
        resumed = installation.run("message", "body", suspended[2]["instance_id"]).encode()
        installation.run("instance", "resume", suspended[2]["instance_id"])
        wait_until_sent(installation, "out", [*early, resumed])
        assert resumed in late
        [port] = installation.run_json("port", "list")
        assert (port["state"], len(installation.list_suspended())) == ("stopped", 4)
        installation.run("port", "start", "P")
        wait_until_sent(installation, "out", [*early, *late])
        assert installation.list_suspended() == []


def test_unenlisting_keeps_the_instance_that_is_retrying(installation: Installation) -> None:
    """ACC-24: it is sent as soon as the receiver accepts it."""
    folder = installation.home / "out"
    folder.write_text("a file where the folder should be: every send fails")
    installation.apply(
        'app.send_port("P", adapters.File("out"), filter=Region == "EU", retry=Retry(count=1000, interval=0.5))\n'
    )
    publish(installation, b"early")
    with installation.run_host():
        retrying = ("instance", "list", "--state", "retrying")
        [instance] = wait_until(lambda: installation.run_json(*retrying), what="a retrying instance")
        installation.run("port", "unenlist", "P")
        with pytest.raises(PublishFailed, match="no subscriber"):
            publish(installation, b"late")
        folder.unlink()
        assert installation.wait_for_files("out", 1) == [b"early"]
        # What is left is the report of the refused publish.
        wait_until(lambda: instance["instance_id"] not in list_ids(installation), what="the end of the instance")
        [report] = installation.list_suspended()
        assert report["service_class"] == "routing_failure_report"
    assert installation.read_files("out") == [b"early"]


def list_ids(installation: Installation) -> list[str]:
    return [one["instance_id"] for one in installation.run_json("instance", "list")]


def test_terminating_an_instance_keeps_a_message_that_another_one_refers_to(installation: Installation) -> None:
    """INS-09."""
    installation.apply(
        """
        app.send_port("P", adapters.Null(), filter=Region == "EU", state="stopped")
        app.send_port("Q", adapters.Null(), filter=Region == "EU", state="stopped")
        """
    )
    publish(installation, b"shared")
    first, second = installation.list_suspended()
    installation.run("instance", "terminate", first["instance_id"])
    installation.run("jobs", "run")
    assert list_ids(installation) == [second["instance_id"]]
    assert installation.run("message", "body", second["message_id"]) == "shared"
    installation.run("instance", "terminate", second["instance_id"])
    installation.run("jobs", "run")
    assert (list_ids(installation), installation.run_json("message", "list")) == ([], [])
