"""ACC-03 … 09, 11: which subscribers receive a message."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Message, Property
from postroom.client.client import Client
from postroom.errors import PublishFailed
from tests.support.installation import Installation

A = Property("T.A", int)
B = Property("T.B", int)
C = Property("T.C", str)


@pytest.fixture
def client(installation: Installation) -> Client:
    installation.apply(
        """
        A, B, C = Property("T.A", int), Property("T.B", int), Property("T.C", str)
        app.property(A, B, C)
        app.send_port("Mixed", adapters.Null(), filter=(A == 1) & (B == 2) | C.exists())
        app.send_port("Rounded", adapters.Null(), filter="A == '9.5'")
        app.send_port("Lower", adapters.Null(), filter=C == "abc")
        app.send_port("Plain", adapters.Null())
        """
    )
    return installation._stack.enter_context(postroom.connect(installation.database))


def publish_one(client: Client, message: Message) -> tuple[str, ...]:
    """Publish the message and return its subscribers, or () if the publish fails."""
    try:
        [published] = client.publish_many([message])
    except PublishFailed:
        return ()
    return published.subscribers


def test_a_port_without_filter_receives_only_messages_that_are_addressed_to_it(
    installation: Installation, client: Client
) -> None:
    """FLT-03, ACC-03."""
    [plain] = [port for port in installation.run_json("port", "list") if port["name"] == "Plain"]
    assert publish_one(client, Message.of(b"", promoted={BTS.SPTransportID: plain["transport_id"]})) == ("Plain",)
    assert publish_one(client, Message.of(b"", promoted={A: 5})) == ()


def test_an_or_of_and_groups_matches_when_any_group_does(client: Client) -> None:
    """ACC-04."""
    contexts: list[dict[Property, object]] = [{A: 1, B: 2}, {A: 1}, {C: ""}, {A: 1, B: 2, C: "9"}, {}]
    results = [publish_one(client, Message.of(b"", promoted=context)) for context in contexts]
    assert results == [("Mixed",), (), ("Mixed",), ("Mixed",), ()]


def test_written_properties_do_not_route(client: Client) -> None:
    """ACC-06, ACC-07."""
    assert publish_one(client, Message.of(b"", promoted={A: 1, B: 2})) == ("Mixed",)
    assert publish_one(client, Message.of(b"", written={A: 1, B: 2})) == ()
    message = Message.of(b"", promoted={A: 1, B: 2})
    assert publish_one(client, message.with_context(message.context.write(A, 1))) == ()
    assert publish_one(client, message.with_context(message.context.promote(A, None))) == ()


def test_decimal_text_for_an_int_property_is_rounded(client: Client) -> None:
    """ACC-08."""
    assert publish_one(client, Message.of(b"", promoted={A: 10})) == ("Rounded",)
    assert publish_one(client, Message.of(b"", promoted={A: 9})) == ()


def test_text_is_compared_case_sensitively(client: Client) -> None:
    """ACC-09."""
    assert publish_one(client, Message.of(b"", promoted={C: "abc"})) == ("Lower", "Mixed")
    assert publish_one(client, Message.of(b"", promoted={C: "ABC"})) == ("Mixed",)


def test_no_properties_of_a_batch_are_left(installation: Installation) -> None:
    """ACC-11: neither of a batch that was published nor of one that was refused. The command line has no index of the
    subscriptions, so it inserts the properties and predicates of its messages."""
    installation.apply(
        """
        app.host("Main", properties={Region: "EU"})
        app.send_port("Urgent", adapters.Null(), filter=Priority == 1)
        """
    )
    body = installation.home / "body"
    body.write_bytes(b"x")
    publish = ("publish", str(body), "--require", "Orders.Region=EU", "--promoted")
    installation.run(*publish, "Orders.Priority=1")
    installation.run("check")
    installation.run(*publish, "Orders.Priority=2", exit_code=1)
    installation.run(*publish, "Orders.Priority=1", "--require", "Orders.Total=5", exit_code=1)
    installation.run("check")
    [queued] = installation.run_json("instance", "list", "--state", "ready")
    assert queued["service"] == "Urgent"
