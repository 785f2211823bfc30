"""Publish from Python with `postroom.connect`."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Application, Client, Message, Property, PublishFailed, adapters
from postroom.agent.idempotency import unit_for_key
from postroom.errors import (
    BadValue,
    KeyReused,
    LockTimeout,
    NotAllowed,
    NotFound,
    RoutingFailure,
    StateError,
    Unavailable,
)
from postroom.message import FRAGMENT_SIZE, Bytes, Part
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import migrate
from postroom.operations.deployment.apply import apply
from postroom.operations.explain.explanation import explain_message
from postroom.operations.ports import send_ports
from tests.support.contents import Contents
from tests.support.contents.counts import Countable

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)


def deploy(url: str, *, host: str = "Main") -> None:
    app = Application("orders")
    if host != "Main":
        app.host(host)
    app.property(Total)
    app.send_port("Europe", adapters.Null(), filter=Region == "EU")
    app.send_port("Audit", adapters.Null(), filter=Region.exists(), host=host)
    app.property(Region)
    with connect(url) as connection:
        apply(connection, app.definition(), home=Path("/home"))


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    deploy(database)
    with postroom.connect(database) as opened:
        yield opened


def count(url: str, what: Countable) -> int:
    with connect(url) as connection:
        return Contents(connection).count(what)


def terminate_client_connections(url: str) -> None:
    """Terminate the connections of all clients on the server."""
    with connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'postroom client'"
            " AND datname = current_database()"
        )


def test_publish_returns_the_subscribers_of_the_message(client: Client, database: str) -> None:
    published = client.publish(b"{}", promoted={Region: "EU"}, written={Total: Decimal(1)})
    assert published.subscribers == ("Audit", "Europe")
    assert count(database, "queued") == 2
    with connect(database) as connection:
        [message] = Contents(connection).messages()
    assert message.message_id == published.message_id
    assert message.context.get(Total) == Decimal(1)


def test_publish_many_publishes_all_or_none_with_a_result_per_message(client: Client, database: str) -> None:
    good = Message.of(b"1", promoted={Region: "EU"})
    with pytest.raises(PublishFailed) as error:
        client.publish_many([good, Message.of(b"2"), Message.of(b"3", promoted={Property("Orders.Region", int): 7})])
    assert [type(result.failure) for result in error.value.results] == [type(None), type(None), BadValue]
    with pytest.raises(PublishFailed) as error:
        client.publish_many([good, Message.of(b"2")])
    assert [type(result.failure) for result in error.value.results] == [type(None), RoutingFailure]
    assert [result.report_id is None for result in error.value.results] == [True, False]
    assert count(database, "queued") == 0
    published = client.publish_many([good, Message.of(b"2", promoted={Region: "US"})])
    assert [message.subscribers for message in published] == [("Audit", "Europe"), ("Audit",)]


def test_explain_knows_the_message_that_had_no_subscriber(client: Client, database: str) -> None:
    with pytest.raises(PublishFailed) as error:
        client.publish(b"", written={Region: "MARS"})
    [result] = error.value.results
    assert f"postroom explain {result.report_id}" in error.value.hint
    assert result.report_id is not None
    with connect(database) as connection:
        [explained] = explain_message(connection, result.report_id)
    assert explained.context.get(Region) == "MARS"


def test_properties_can_be_given_by_name(client: Client, database: str) -> None:
    published = client.publish(b"", promoted={"Orders.Region": "EU"}, written={"Total": Decimal(1)})
    assert published.subscribers == ("Audit", "Europe")
    terminate_client_connections(database)
    with pytest.raises(NotFound, match=r"There is no property 'Orders.Regin'") as unknown:
        client.publish(b"", promoted={"Orders.Regin": "EU"})
    assert "Orders.Region" in unknown.value.hint


def test_a_property_can_be_used_after_it_is_deployed(client: Client, database: str) -> None:
    nope = Property("Inv.Nope", str)
    with pytest.raises(NotFound, match=r"There is no property 'Inv.Nope'"):
        client.publish(b"", promoted={Region: "EU", nope: "A"})
    assert count(database, "messages") == 0
    app = Application("invoices")
    app.property(nope)
    with connect(database) as connection:
        apply(connection, app.definition(), home=Path("/home"))
    assert client.publish(b"", promoted={Region: "EU", nope: "A"}).subscribers == ("Audit", "Europe")


def test_a_property_whose_namespace_is_a_url_can_be_published(client: Client, database: str) -> None:
    number = Property("Number", str, namespace="http://example.com/invoices")
    app = Application("invoices")
    app.property(number)
    app.send_port("Invoices", adapters.Null(), filter=number == "1")
    with connect(database) as connection:
        apply(connection, app.definition(), home=Path("/home"))
    assert client.publish(b"", promoted={number: "1"}).subscribers == ("Invoices",)
    assert client.publish(b"", promoted={"{http://example.com/invoices}Number": "1"}).subscribers == ("Invoices",)


def test_the_error_of_a_wrong_type_names_the_property_and_the_fix(client: Client) -> None:
    with pytest.raises(PublishFailed) as error:
        client.publish(b"", promoted={Property("Orders.Total", str): "much"})
    assert "Orders.Total is deployed as Decimal, not str" in error.value.why
    assert error.value.hint == "Give each value the type that its property is deployed with."


@pytest.mark.parametrize("body", ["text", {"region": "EU"}, 7])
def test_a_body_must_be_bytes(client: Client, body: object) -> None:
    with pytest.raises(BadValue, match=f"is bytes, not {type(body).__name__}") as error:
        client.publish(body, promoted={Region: "EU"})  # type: ignore[arg-type]
    assert "encode()" in error.value.hint


def test_publish_accepts_a_message(client: Client) -> None:
    message = Message.of(bytearray(b"{}"), promoted={Region: "EU"})
    assert client.publish(message, key="k").message_id == message.message_id
    assert client.publish(Message.of(b"{}", promoted={Region: "EU"}), key="k").repeated
    with pytest.raises(BadValue, match="already has its properties"):
        client.publish(Message.of(b"{}"), promoted={Region: "EU"})


def test_a_publish_uses_changes_that_others_have_committed(client: Client, database: str) -> None:
    client.publish(b"", promoted={Region: "EU"})
    with connect(database) as connection:
        send_ports.unenlist(connection, "Europe")
        assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Audit",)
        send_ports.start(connection, "Europe")
        assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Audit", "Europe")


def test_a_publish_with_a_key_survives_a_lost_connection(client: Client, database: str) -> None:
    first = client.publish(b"", promoted={Region: "EU"}, key="order-1")
    terminate_client_connections(database)
    assert client.publish(b"", promoted={Region: "EU"}, key="order-1") == first
    terminate_client_connections(database)
    client.publish(b"", promoted={Region: "EU"}, key="order-2")
    assert count(database, "messages") == 2


def order(body: bytes = b"{}", region: str = "EU", **others: Any) -> Message:
    return Message.of(body, promoted={Region: region}, **others)


@pytest.mark.parametrize(
    "other",
    [
        [order(b"[]"), order(b"2")],
        [order(region="US"), order(b"2")],
        [order(b"2"), order()],
        [order()],
        [order(), order(b"2"), order(b"2")],
        [],
        [order(content_type="text/plain"), order(b"2")],
        [order(parts=[Part(name="more", body=Bytes(b""))]), order(b"2")],
        [order(b"{}2"), order(b"")],
    ],
)
def test_a_key_is_rejected_with_other_messages(client: Client, database: str, other: list[Message]) -> None:
    first = client.publish_many([order(), order(b"2")], key="k")
    with pytest.raises(KeyReused) as error:
        client.publish_many(other, key="k")
    assert error.value.code == "KEY_REUSED"
    assert "new key" in error.value.hint
    assert client.publish_many([order(), order(b"2")], key="k") == first
    assert count(database, "messages") == 2


def test_publish_many_of_a_thousand_messages_delays_garbage_collection(client: Client) -> None:
    messages = [order() for _ in range(1000)]
    phases: list[str] = []

    def record(phase: str, _: dict[str, int]) -> None:
        phases.append(phase)

    gc.collect()
    gc.callbacks.append(record)
    try:
        client.publish_many(messages)
    finally:
        gc.callbacks.remove(record)
    assert phases in ([], ["start", "stop"]), "garbage is collected once at most, after the publish"


def test_a_key_of_publish_many_is_rejected_by_publish_with_another_message(client: Client) -> None:
    client.publish_many([order() for _ in range(1000)], key="k")
    with pytest.raises(KeyReused):
        client.publish(b"{}", promoted={Region: "EU"}, key="k")
    [first] = client.publish_many([order()], key="one")
    assert client.publish(b"{}", promoted={Region: "EU"}, key="one") == first, "the same message"


def test_a_large_body_is_part_of_the_digest(client: Client) -> None:
    large = bytes(3 * FRAGMENT_SIZE)
    client.publish(large, promoted={Region: "EU"}, key="k")
    assert client.publish(large, promoted={Region: "EU"}, key="k").repeated
    with pytest.raises(KeyReused):
        client.publish(large[:-1] + b"x", promoted={Region: "EU"}, key="k")


def test_a_receipt_that_was_taken_in_advance_is_an_error(client: Client, database: str) -> None:
    """A program of the same host cannot make the publish of another disappear."""
    with connect(database) as connection:
        [host] = read_hosts(connection)
        secret = Contents(connection).read_key_secret(host.host_id)
        connection.execute("SELECT take_receipts(%s::uuid[], '{0}', '{\"{}\"}')", ([unit_for_key(secret, "k")],))
    with pytest.raises(KeyReused):
        client.publish(b"{}", promoted={Region: "EU"}, key="k")


def test_a_publish_without_key_fails_if_the_connection_is_lost_and_the_client_reconnects(
    client: Client, database: str
) -> None:
    client.publish(b"", promoted={Region: "EU"})
    terminate_client_connections(database)
    with pytest.raises(Unavailable, match="may or may not") as lost:
        client.publish(b"", promoted={Region: "EU"})
    assert "key=" in lost.value.hint
    client.publish(b"", promoted={Region: "EU"})
    assert count(database, "messages") == 2


def test_an_error_that_is_not_a_lost_connection_is_not_repeated(client: Client, database: str) -> None:
    with connect(database) as connection:
        connection.execute("ALTER DATABASE " + connection.info.dbname + " SET lock_timeout = '50ms'")
        with connection.transaction():
            connection.execute("SELECT change_routing()")
            with postroom.connect(database) as impatient, pytest.raises(LockTimeout):
                impatient.publish(b"", promoted={Region: "EU"}, key="k")
    assert count(database, "messages") == 0


def test_threads_can_share_a_client(client: Client, database: str) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(10):
                client.publish(b"", promoted={Region: "EU"})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert count(database, "messages") == 40


def test_a_client_publishes_as_the_given_host(database: str) -> None:
    deploy(database, host="Edge")
    with postroom.connect(database, host="edge") as client, pytest.raises(PublishFailed):
        client.publish(b"unroutable")
    with connect(database) as connection:
        hosts = {host.host_id: host.name for host in read_hosts(connection)}
        assert [hosts[row.host_id] for row in Contents(connection).suspended_rows()] == ["Edge"]
    with pytest.raises(NotFound, match="'nowhere'"):
        postroom.connect(database, host="nowhere")


def test_a_closed_client_raises_an_error(client: Client) -> None:
    client.close()
    client.close()
    with pytest.raises(StateError, match="closed"):
        client.publish(b"")


def test_connect_fails_without_a_messagebox(server: EmbeddedServer, database: str) -> None:
    with pytest.raises(StateError, match="no hosts"):
        postroom.connect(database)
    with pytest.raises(StateError, match="no MessageBox"):
        postroom.connect(server.url(database="postgres"))
    with pytest.raises(Unavailable):
        postroom.connect("postgresql://127.0.0.1:1/nothing")


def test_the_database_can_be_set_in_the_environment(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(database)
    monkeypatch.setenv("POSTROOM_DATABASE", database)
    with postroom.connect() as client:
        client.publish(b"", promoted={Region: "EU"})


def test_the_embedded_messagebox_runs_as_long_as_the_client(home: Path) -> None:
    with pytest.raises(NotFound, match="There is no MessageBox"):
        postroom.connect(home=home)
    server = EmbeddedServer(server_folder(home), settings={"fsync": "off"})
    with server:
        migrate(server.url())
        deploy(server.url())
    assert server.pid is None
    with postroom.connect(home=str(home)) as client:
        assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Audit", "Europe")
        assert server.pid is not None
    assert server.pid is None


def test_a_message_can_be_directed_to_a_port_by_name(client: Client) -> None:
    """The message keeps its id, and ports with a matching filter receive it too."""
    message = Message.of(b"x", promoted={Region: "US"})
    published = client.publish(message, to="Europe")
    assert published.message_id == message.message_id
    assert published.subscribers == ("Audit", "Europe")
    assert client.publish_many([Message(context=client.directed_to("Audit"))])[0].subscribers == ("Audit",)
    with pytest.raises(NotFound, match="Nowhere"):
        client.publish(b"x", to="Nowhere")


@pytest.mark.parametrize("key", ["", " ", "\t\n"])
def test_an_empty_key_is_rejected(client: Client, database: str, key: str) -> None:
    with pytest.raises(BadValue, match="key of a publish is empty"):
        client.publish(b"{}", promoted={Region: "EU"}, key=key)
    assert count(database, "queued") == 0


def test_a_login_without_the_right_to_publish_gets_an_error(client: Client, database: str) -> None:
    with connect(database) as connection:
        box_id = Contents(connection).read_id()
        connection.execute("CREATE ROLE client_olga LOGIN")
        connection.execute("CREATE ROLE client_sam LOGIN")
        connection.execute(f"GRANT postroom_{box_id}_operators TO client_olga")
    try:
        with pytest.raises(NotAllowed) as error:
            postroom.connect(database.replace("postgres@", "client_sam@"))
        assert error.value.code == "NOT_ALLOWED"
        with (
            postroom.connect(database.replace("postgres@", "client_olga@")) as other,
            pytest.raises(NotAllowed, match="permission denied"),
        ):
            other.publish(b"{}", promoted={Region: "EU"})
    finally:
        with connect(database) as connection:
            connection.execute(f"REVOKE postroom_{box_id}_operators FROM client_olga")
            connection.execute("DROP ROLE client_olga, client_sam")


def test_message_predicates_are_checked_like_promoted_properties(database: str) -> None:
    """They can be given by name. An unknown property is not found, and a value of another type is a bad value."""
    level, clearance = Property("Sec.Level", int), Property("Sec.Clearance", str)
    app = Application("secure")
    app.host("Secure", properties={level: 3, clearance: "secret"})
    app.property(Region)
    app.send_port("Bank", adapters.Null(), filter=Region == "EU", host="Secure")
    app.send_port("Open", adapters.Null(), filter=Region == "EU")
    with connect(database) as connection:
        apply(connection, app.definition(), home=Path("/home"))
    with postroom.connect(database) as client:
        assert client.publish(b"x", promoted={Region: "EU"}, predicates={level: 3}).subscribers == ("Bank",)
        by_name = {"Sec.Level": 3, "Clearance": "secret"}
        assert client.publish(b"x", promoted={Region: "EU"}, predicates=by_name).subscribers == ("Bank",)
        with pytest.raises(PublishFailed) as error:
            client.publish(b"x", promoted={Region: "EU"}, predicates={Property("Sec.Level", str): "3"})
        assert isinstance(error.value.results[0].failure, BadValue)
        with pytest.raises(BadValue):
            client.publish(b"x", promoted={Region: "EU"}, predicates={"Sec.Level": "3"})
        for unknown in ({Property("Sec.Leven", int): 3}, {"Sec.Leven": 3}):
            with pytest.raises(NotFound, match=r"Sec\.Leven"):
                client.publish(b"x", promoted={Region: "EU"}, predicates=unknown)
        with pytest.raises(BadValue, match="value of a message predicate is empty"):
            client.publish(b"x", promoted={Region: "EU"}, predicates={clearance: ""})
