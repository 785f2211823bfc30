"""THR-04, 05: what publishes for a host slows down while more messages wait than its threshold."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import pytest

import postroom
from postroom import Message, Property, Throttled
from tests.support.installation import Installation
from tests.support.reserved_port import is_listening, reserve_port
from tests.support.waiting import PATIENCE, wait_until

Region = Property("Orders.Region", str)


def publish(installation: Installation, count: int) -> None:
    """Publish messages for a stopped port in one transaction."""
    with postroom.connect(installation.database, throttle_wait=0) as client:
        client.publish_many([Message.of(b"", promoted={Region: "EU"}) for _ in range(count)])


def show_publishing(installation: Installation) -> dict[str, Any]:
    [shown] = [one for one in installation.run_json("throttling", "list") if one["direction"] == "publishing"]
    return dict(shown)


def wait_for_delay(installation: Installation, seconds: float) -> None:
    wait_until(lambda: show_publishing(installation)["delay"] == seconds, what=f"a delay of {seconds} s")


def post(port: int) -> int:
    """Send a request, and return the status of the answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/orders", b"order", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_publishers_wait_longer_the_more_messages_wait(installation: Installation) -> None:
    """THR-04, THR-05: suspended messages count, too. The delay is the longest at twice the threshold. Requests are
    refused meanwhile, and accepted again when no more messages wait than the threshold allows."""
    with reserve_port() as port:
        installation.apply(
            f"""
            from postroom import Throttling
            app.host("Main", throttling=Throttling(messages=50, spool_multiplier=0, longest_delay=2))
            app.receive_port("Web").location(
                "web", adapters.HttpReceive("/orders", port={port}), pipeline=pipelines.PassThrough()
            )
            app.send_port("Held", adapters.Null(), filter=Region == "EU", state="stopped")
            """
        )
        with installation.run_host():
            wait_until(lambda: is_listening(port), what="the listener")
            publish(installation, 50)
            assert post(port) == 202
            publish(installation, 25)
            wait_for_delay(installation, 1)
            shown = show_publishing(installation)
            assert (shown["state"], shown["description"]) == (6, "database size")
            assert shown["reason"] == "75 messages are in the queues; the threshold is 50"
            wait_until(lambda: post(port) == 503, what="refused requests")
            with pytest.raises(Throttled):
                publish(installation, 1)
            with postroom.connect(installation.database) as client:
                client.publish_many([Message.of(b"", promoted={Region: "EU"}) for _ in range(75)])
            wait_for_delay(installation, 2)
            held = installation.list_suspended()
            installation.run("instance", "terminate", "--yes", *[one["instance_id"] for one in held[50:]])
            wait_for_delay(installation, 0)
            wait_until(lambda: post(port) == 202, what="accepted requests")


def test_publishers_wait_while_the_spool_is_full(installation: Installation) -> None:
    """THR-04: a message stays in the spool until a job deletes it."""
    installation.apply(
        """
        from postroom import Throttling
        app.host("Main", throttling=Throttling(messages=100, spool_multiplier=0.2, longest_delay=2))
        app.send_port("Held", adapters.Null(), filter=Region == "EU", state="stopped")
        """
    )
    publish(installation, 30)
    wait_until(lambda: show_publishing(installation)["state"] == 6, what="a full spool")
    assert show_publishing(installation)["reason"] == "30 messages are in the spool; the threshold is 20"
    installation.run("instance", "terminate", "--all", "--port", "Held", "--yes")
    with pytest.raises(Throttled):
        publish(installation, 1)
    wait_until(lambda: installation.run("jobs", "run") and show_publishing(installation)["state"] == 0, what="room")
    publish(installation, 1)
