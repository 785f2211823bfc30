"""ACC-30, 31: a failed send is retried by the policy of the port, then suspended or routed as an error message."""

from __future__ import annotations

import postroom
from postroom import BTS, Property
from tests.support.http_receiver import http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_a_message_is_suspended_after_its_retries_and_can_be_resumed(installation: Installation) -> None:
    with http_receiver() as receiver:
        receiver.fail(times=4)
        installation.apply(
            f"""
            app.send_port("Web", adapters.Http("{receiver.url}"), filter=Region == "EU",
                          retry=Retry(count=3, interval=0))
            """
        )
        installation.start_host()
        with postroom.connect(installation.database) as client:
            client.publish(b"order", promoted={Region: "EU"})
        [instance] = wait_until(lambda: installation.list_suspended("resumable"), what="the suspended instance")
        assert len(receiver.requests) == 4
        assert instance["error_code"] == "DELIVERY"
        assert "503" in instance["error_description"]
        installation.run("instance", "resume", instance["instance_id"])
        wait_until(lambda: [request.body for request in receiver.accepted] == [b"order"], what="the order")
        wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")


def test_a_failed_message_is_routed_to_the_subscribers_of_error_reports(installation: Installation) -> None:
    """The error message has the body of the original. The original properties are written, not promoted."""
    with http_receiver() as receiver:
        receiver.fail(times=100)
        installation.apply(
            f"""
            app.send_port("Web", adapters.Http("{receiver.url}"), filter=Region == "EU",
                          retry=Retry(count=1, interval=0), route_failures=True)
            app.send_port("Failed", adapters.File("failed"), filter=ErrorReport.SendPortName == "Web")
            app.send_port("Kept", adapters.File("kept"), filter=ErrorReport.ErrorType == "FailedMessage",
                          state="stopped")
            app.send_port("ByType", adapters.File("by-type"), filter=BTS.MessageType == "order")
            app.send_port("OtherErrors", adapters.File("others"), filter=ErrorReport.SendPortName == "Failed")
            """
        )
        assert installation.run_json("port", "show", "Web")["route_failures"] is True
        host = installation.start_host()
        with postroom.connect(installation.database) as client:
            client.publish(b"an order", promoted={Region: "EU", BTS.MessageType: "order"})
        assert installation.wait_for_files("failed", 1) == [b"an order"]
        [suspended] = wait_until(
            lambda: installation.list_suspended("resumable"), what="the error message for the stopped port"
        )
        assert suspended["error_code"] == "PORT_STOPPED"
        message = installation.run_json("message", "show", suspended["message_id"])
        promoted = {row["property"]: row["value"] for row in message["context"] if row["promoted"]}
        written = {row["property"]: row["value"] for row in message["context"] if not row["promoted"]}
        assert promoted["ErrorReport.SendPortName"] == "Web"
        assert promoted["ErrorReport.MessageType"] == "order"
        assert (written["Orders.Region"], written["BTS.MessageType"]) == ("EU", "order")
        assert "503" in written["ErrorReport.Description"]
        assert installation.run_json("message", "list")[0]["failed_at"] == "Web"
        assert installation.run("explain", suspended["message_id"]).startswith(
            f"Error message {suspended['message_id']} about message"
        )
        installation.run("instance", "terminate", suspended["instance_id"])
        wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")
        assert host.stop() == 0
        assert len(receiver.requests) == 2
        assert len(installation.read_files("by-type")) == 1
        assert installation.read_files("others") == []
