"""ACC-30, 31: a failed send is retried by the policy of the port, then suspended or routed as an error message."""

from __future__ import annotations

import postroom
from postroom import BTS, Property
from tests.support.house import House
from tests.support.http_receiver import http_receiver
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_a_message_is_suspended_after_its_retries_and_can_be_resumed(house: House) -> None:
    with http_receiver() as receiver:
        receiver.fail(times=4)
        house.apply(
            f"""
            app.send_port("Web", adapters.Http("{receiver.url}"), filter=Region == "EU",
                          retry=Retry(count=3, interval=0))
            """
        )
        house.start_host()
        with postroom.connect(house.database) as client:
            client.publish(b"order", promoted={Region: "EU"})
        [instance] = wait_until(lambda: house.suspended("resumable"), what="the suspended instance")
        assert len(receiver.requests) == 4
        assert instance["error_code"] == "DELIVERY"
        assert "503" in instance["error_description"]
        house.run("instance", "resume", instance["instance_id"])
        wait_until(lambda: [one.body for one in receiver.accepted] == [b"order"], what="the order")
        wait_until(lambda: house.ask("instance", "list") == [], what="no instances")


def test_a_failed_message_is_routed_to_the_subscribers_of_error_reports(house: House) -> None:
    """The error message has the body of the original. The original properties are written, not promoted."""
    with http_receiver() as receiver:
        receiver.fail(times=100)
        house.apply(
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
        assert house.ask("port", "show", "Web")["route_failures"] is True
        host = house.start_host()
        with postroom.connect(house.database) as client:
            client.publish(b"an order", promoted={Region: "EU", BTS.MessageType: "order"})
        assert house.wait_for_files("failed", 1) == [b"an order"]
        [suspended] = wait_until(lambda: house.suspended("resumable"), what="the error message for the stopped port")
        assert suspended["error_code"] == "PORT_STOPPED"
        message = house.ask("message", "show", suspended["message_id"])
        promoted = {row["property"]: row["value"] for row in message["context"] if row["promoted"]}
        written = {row["property"]: row["value"] for row in message["context"] if not row["promoted"]}
        assert promoted["ErrorReport.SendPortName"] == "Web"
        assert promoted["ErrorReport.MessageType"] == "order"
        assert (written["Orders.Region"], written["BTS.MessageType"]) == ("EU", "order")
        assert "503" in written["ErrorReport.Description"]
        assert house.ask("message", "list")[0]["failed_at"] == "Web"
        assert house.run("explain", suspended["message_id"]).startswith(
            f"Error message {suspended['message_id']} about message"
        )
        house.run("instance", "terminate", suspended["instance_id"])
        wait_until(lambda: house.ask("instance", "list") == [], what="no instances")
        assert host.stop() == 0
        assert len(receiver.requests) == 2
        assert len(house.arrived("by-type")) == 1
        assert house.arrived("others") == []
