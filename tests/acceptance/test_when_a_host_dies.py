"""ACC-33: a host instance is killed while it delivers messages; another instance delivers all of them."""

from __future__ import annotations

import postroom
from postroom import Property
from tests.support.http_receiver import Handler, http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_another_instance_delivers_the_messages_that_were_in_flight(installation: Installation) -> None:
    with http_receiver() as receiver:
        receiver.behave = Handler.hang
        installation.apply(f'app.send_port("Web", adapters.Http("{receiver.url}"), filter=Region == "EU")\n')
        with postroom.connect(installation.database) as client:
            for number in range(20):
                client.publish(f"order {number}".encode(), promoted={Region: "EU"})
        first = installation.start_host()
        wait_until(
            lambda: len(installation.run_json("instance", "list", "--state", "active")) == 20, what="20 in flight"
        )
        first.kill()
        receiver.behave = Handler.accept
        receiver.released.set()
        installation.start_host()
        orders = {f"order {number}".encode() for number in range(20)}
        wait_until(lambda: orders <= {request.body for request in receiver.accepted}, what="all 20 orders")
        wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")
