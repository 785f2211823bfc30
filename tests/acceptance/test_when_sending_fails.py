"""ACC-30: a send that fails is tried again by the port's policy, then suspended; and resumed once it can succeed."""

from __future__ import annotations

import postroom
from postroom import Property
from tests.support.house import House
from tests.support.http_receiver import http_receiver
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_four_attempts_then_suspended_then_resumed(house: House) -> None:
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
        [instance] = wait_until(lambda: house.suspended("resumable"), 30, what="the suspended instance")
        assert len(receiver.requests) == 4
        assert instance["error_code"] == "DELIVERY"
        assert "503" in instance["error_description"]
        house.run("instance", "resume", instance["instance_id"])
        wait_until(lambda: [one.body for one in receiver.accepted] == [b"order"], 30, what="the order")
        wait_until(lambda: house.ask("instance", "list") == [], 30, what="nothing left to do")
