"""Dynamic send ports, from the application to the delivered message: SUB-10, SND-17, SND-18, SPT-14."""

from __future__ import annotations

from typing import Any

import postroom
from postroom import BTS, Property
from tests.support.house import House
from tests.support.http_receiver import http_receiver
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
DYNAMIC = """
app.dynamic_send_port("Anywhere", filter=Region == "EU", folders=["out"], retry=Retry(count=2, interval=0))
"""


def publish(house: House, body: bytes, address: str | None, *, to: str | None = None) -> tuple[str, ...]:
    promoted: dict[Property, object] = {Region: "EU"} if to is None else {}
    written = {} if address is None else {BTS.OutboundTransportLocation: address}
    with postroom.connect(house.database) as client:
        return client.publish(body, promoted=promoted, written=written, to=to).subscribers


def wait_for_suspended(house: House, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(house.suspended(error="ADDRESS")) == count, what=f"{count} suspended messages")
    return house.suspended(error="ADDRESS")


def test_a_message_is_sent_to_the_file_or_server_of_its_address(house: House) -> None:
    """SND-17. A message can also be directed by the name of the port (SUB-10)."""
    house.apply(DYNAMIC)
    house.start_host()
    with http_receiver() as receiver:
        publish(house, b"one", "file:out/first/%MessageID%.txt")
        assert publish(house, b"two", f"file://{house.home}/out/second/", to="Anywhere") == ("Anywhere",)
        publish(house, b"three", receiver.url)
        assert house.wait_for_files("out/first", 1) == [b"one"]
        assert house.wait_for_files("out/second", 1) == [b"two"]
        wait_until(lambda: [one.body for one in receiver.accepted] == [b"three"], what="the request")
        receiver.fail(times=3)
        publish(house, b"four", receiver.url)
        [failed] = wait_until(lambda: house.suspended(error="DELIVERY"), what="the failed message")
        assert (failed["attempt"], failed["adapter"], failed["uri"]) == (3, "http", receiver.url)


def test_a_message_without_an_allowed_address_is_suspended_and_can_be_resumed_after_a_change(house: House) -> None:
    """SND-18. The application decides where a dynamic port may send."""
    file = house.apply(DYNAMIC)
    house.start_host()
    publish(house, b"nowhere", None)
    publish(house, b"escaped", "file:../escaped.txt")
    publish(house, b"elsewhere", "file:elsewhere/a.txt")
    publish(house, b"unknown", "ftp://example.com/a.txt")
    suspended = wait_for_suspended(house, 4)
    reasons = [one["error_description"].splitlines()[0] for one in suspended]
    assert any("has no address" in reason for reason in reasons)
    assert any("There is no adapter" in reason for reason in reasons)
    assert sum("may not be sent to" in reason for reason in reasons) == 2
    assert not (house.home.parent / "escaped.txt").exists()
    # Now the port may send to `elsewhere` too. Resumed messages are sent only there.
    file.write_text(file.read_text().replace('folders=["out"]', 'folders=["out", "elsewhere"]'))
    house.run("apply", str(file))
    for one in suspended:
        house.run("instance", "resume", one["instance_id"])
    assert house.wait_for_files("elsewhere", 1) == [b"elsewhere"]
    house.run("instance", "terminate", *[one["instance_id"] for one in wait_for_suspended(house, 3)])


def test_a_static_port_cannot_become_dynamic(house: House) -> None:
    """SPT-14."""
    house.apply('app.send_port("Anywhere", adapters.Null())\n')
    output = house.run("plan", str(house.write(DYNAMIC)), exit_code=3)
    assert "deployed as a static one and cannot become dynamic" in output
