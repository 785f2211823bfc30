"""Dynamic send ports, from the application to the delivered message: SUB-10, SND-17, SND-18, SPT-14."""

from __future__ import annotations

from typing import Any

import postroom
from postroom import BTS, Property
from tests.support.http_receiver import http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
DYNAMIC = """
app.dynamic_send_port("Anywhere", filter=Region == "EU", folders=["out"], retry=Retry(count=2, interval=0))
"""


def publish(installation: Installation, body: bytes, address: str | None, *, to: str | None = None) -> tuple[str, ...]:
    promoted: dict[Property, object] = {Region: "EU"} if to is None else {}
    written = {} if address is None else {BTS.OutboundTransportLocation: address}
    with postroom.connect(installation.database) as client:
        return client.publish(body, promoted=promoted, written=written, to=to).subscribers


def wait_for_suspended(installation: Installation, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(installation.list_suspended(error="ADDRESS")) == count, what=f"{count} suspended messages")
    return installation.list_suspended(error="ADDRESS")


def test_a_message_is_sent_to_the_file_or_server_of_its_address(installation: Installation) -> None:
    """SND-17. A message can also be directed by the name of the port (SUB-10)."""
    installation.apply(DYNAMIC)
    installation.start_host()
    with http_receiver() as receiver:
        publish(installation, b"one", "file:out/first/%MessageID%.txt")
        assert publish(installation, b"two", f"file://{installation.home}/out/second/", to="Anywhere") == ("Anywhere",)
        publish(installation, b"three", receiver.url)
        assert installation.wait_for_files("out/first", 1) == [b"one"]
        assert installation.wait_for_files("out/second", 1) == [b"two"]
        wait_until(lambda: [request.body for request in receiver.accepted] == [b"three"], what="the request")
        receiver.fail(times=3)
        publish(installation, b"four", receiver.url)
        [failed] = wait_until(lambda: installation.list_suspended(error="DELIVERY"), what="the failed message")
        assert (failed["attempt"], failed["adapter"], failed["uri"]) == (3, "http", receiver.url)


def test_a_message_without_an_allowed_address_is_suspended_and_can_be_resumed_after_a_change(
    installation: Installation,
) -> None:
    """SND-18. The application decides where a dynamic port may send."""
    file = installation.apply(DYNAMIC)
    installation.start_host()
    publish(installation, b"nowhere", None)
    publish(installation, b"escaped", "file:../escaped.txt")
    publish(installation, b"elsewhere", "file:elsewhere/a.txt")
    publish(installation, b"unknown", "ftp://example.com/a.txt")
    suspended = wait_for_suspended(installation, 4)
    reasons = [instance["error_description"].splitlines()[0] for instance in suspended]
    assert any("has no address" in reason for reason in reasons)
    assert any("There is no adapter" in reason for reason in reasons)
    assert sum("may not be sent to" in reason for reason in reasons) == 2
    assert not (installation.home.parent / "escaped.txt").exists()
    # Now the port may send to `elsewhere` too. Resumed messages are sent only there.
    file.write_text(file.read_text().replace('folders=["out"]', 'folders=["out", "elsewhere"]'))
    installation.run("apply", str(file))
    for instance in suspended:
        installation.run("instance", "resume", instance["instance_id"])
    assert installation.wait_for_files("elsewhere", 1) == [b"elsewhere"]
    installation.run(
        "instance", "terminate", "--yes", *[instance["instance_id"] for instance in wait_for_suspended(installation, 3)]
    )


def test_a_static_port_cannot_become_dynamic(installation: Installation) -> None:
    """SPT-14."""
    installation.apply('app.send_port("Anywhere", adapters.Null())\n')
    output = installation.run("plan", str(installation.write(DYNAMIC)), exit_code=3)
    assert "deployed as a static one and cannot become dynamic" in output
