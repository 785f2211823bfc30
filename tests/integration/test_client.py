"""`postroom.connect`: publishing from Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import postroom
from postroom import Application, Client, Message, Property, PublishFailed, adapters
from postroom.errors import BadValue, LockTimeout, NotAllowed, NotFound, RoutingFailure, StateError, Unavailable
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import migrate
from postroom.operations.deployment.apply import apply
from postroom.operations.ports import send_ports

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


def count(url: str, table: str) -> int:
    with connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row is not None
        return int(row[0])


def cut_off(url: str) -> None:
    """Ends every client's connection on the server's side."""
    with connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postroom client'"
            " AND datname = current_database()"
        )


def test_one_message_and_who_receives_it(client: Client, database: str) -> None:
    published = client.publish(b"{}", promoted={Region: "EU"}, written={Total: Decimal(1)})
    assert published.subscribers == ("Audit", "Europe")
    assert count(database, "work_queue") == 2
    with connect(database) as connection:
        row = connection.execute("SELECT message_id, context FROM spool").fetchone()
    assert row is not None
    assert row[0] == published.message_id
    assert postroom.Context.from_json(row[1]).get(Total) == Decimal(1)


def test_many_messages_or_none_with_a_result_for_each(client: Client, database: str) -> None:
    good = Message.of(b"1", promoted={Region: "EU"})
    with pytest.raises(PublishFailed) as refused:
        client.publish_many([good, Message.of(b"2"), Message.of(b"3", promoted={Property("Orders.Region", int): 7})])
    assert [type(result.failure) for result in refused.value.results] == [type(None), type(None), BadValue]
    with pytest.raises(PublishFailed) as refused:
        client.publish_many([good, Message.of(b"2")])
    assert [type(result.failure) for result in refused.value.results] == [type(None), RoutingFailure]
    assert count(database, "work_queue") == 0
    published = client.publish_many([good, Message.of(b"2", promoted={Region: "US"})])
    assert [one.subscribers for one in published] == [("Audit", "Europe"), ("Audit",)]


def test_properties_by_name(client: Client, database: str) -> None:
    published = client.publish(b"", promoted={"Orders.Region": "EU"}, written={"Total": Decimal(1)})
    assert published.subscribers == ("Audit", "Europe")
    cut_off(database)
    with pytest.raises(NotFound, match=r"There is no property 'Orders.Regin'") as unknown:
        client.publish(b"", promoted={"Orders.Regin": "EU"})
    assert "Orders.Region" in unknown.value.hint


def test_a_property_that_is_not_deployed_is_named_until_it_is(client: Client, database: str) -> None:
    nope = Property("Inv.Nope", str)
    with pytest.raises(NotFound, match=r"There is no property 'Inv.Nope'"):
        client.publish(b"", promoted={Region: "EU", nope: "A"})
    assert count(database, "spool") == 0
    app = Application("invoices")
    app.property(nope)
    with connect(database) as connection:
        apply(connection, app.definition(), home=Path("/home"))
    assert client.publish(b"", promoted={Region: "EU", nope: "A"}).subscribers == ("Audit", "Europe")


def test_a_value_of_another_type_names_the_property_and_what_to_do(client: Client) -> None:
    with pytest.raises(PublishFailed) as refused:
        client.publish(b"", promoted={Property("Orders.Total", str): "much"})
    assert "Orders.Total is deployed as Decimal, not str" in refused.value.why
    assert refused.value.hint == "Give each value the type that its property is deployed with."


@pytest.mark.parametrize("body", ["text", {"region": "EU"}, 7])
def test_a_body_is_bytes(client: Client, body: object) -> None:
    with pytest.raises(BadValue, match=f"is bytes, not {type(body).__name__}") as refused:
        client.publish(body, promoted={Region: "EU"})  # type: ignore[arg-type]
    assert "encode()" in refused.value.hint


def test_a_whole_message_may_be_published_too(client: Client) -> None:
    message = Message.of(bytearray(b"{}"), promoted={Region: "EU"})
    assert client.publish(message, key="k").message_id == message.message_id
    assert client.publish(Message.of(b"{}"), key="k").repeated
    with pytest.raises(BadValue, match="already has its properties"):
        client.publish(Message.of(b"{}"), promoted={Region: "EU"})


def test_changes_of_others_are_seen_at_once(client: Client, database: str) -> None:
    client.publish(b"", promoted={Region: "EU"})
    with connect(database) as connection:
        send_ports.unenlist(connection, "Europe")
        assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Audit",)
        send_ports.start(connection, "Europe")
        assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Audit", "Europe")


def test_a_publish_with_a_key_survives_a_lost_connection(client: Client, database: str) -> None:
    first = client.publish(b"", promoted={Region: "EU"}, key="order-1")
    cut_off(database)
    assert client.publish(b"", promoted={Region: "EU"}, key="order-1") == first
    cut_off(database)
    client.publish(b"", promoted={Region: "EU"}, key="order-2")
    assert count(database, "spool") == 2


def test_without_a_key_nobody_knows_and_the_client_goes_on(client: Client, database: str) -> None:
    client.publish(b"", promoted={Region: "EU"})
    cut_off(database)
    with pytest.raises(Unavailable, match="may or may not") as lost:
        client.publish(b"", promoted={Region: "EU"})
    assert "key=" in lost.value.hint
    client.publish(b"", promoted={Region: "EU"})
    assert count(database, "spool") == 2


def test_an_error_that_is_not_a_lost_connection_is_not_repeated(client: Client, database: str) -> None:
    with connect(database) as connection:
        connection.execute("ALTER DATABASE " + connection.info.dbname + " SET lock_timeout = '50ms'")
        with connection.transaction():
            connection.execute("SELECT change_routing()")
            with postroom.connect(database) as hurried, pytest.raises(LockTimeout):
                hurried.publish(b"", promoted={Region: "EU"}, key="k")
    assert count(database, "spool") == 0


def test_threads_share_a_client(client: Client, database: str) -> None:
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
    assert count(database, "spool") == 40


def test_the_host_on_whose_behalf_it_publishes(database: str) -> None:
    deploy(database, host="Edge")
    with postroom.connect(database, host="edge") as client, pytest.raises(PublishFailed):
        client.publish(b"nobody wants me")
    assert (count(database, "edge_q_suspended"), count(database, "main_q_suspended")) == (1, 0)
    with pytest.raises(NotFound, match="'nowhere'"):
        postroom.connect(database, host="nowhere")


def test_a_closed_client_says_so(client: Client) -> None:
    client.close()
    client.close()
    with pytest.raises(StateError, match="closed"):
        client.publish(b"")


def test_a_database_without_a_messagebox_is_refused(server: EmbeddedServer, database: str) -> None:
    with pytest.raises(StateError, match="no hosts"):
        postroom.connect(database)
    with pytest.raises(StateError, match="no MessageBox"):
        postroom.connect(server.url(database="postgres"))
    with pytest.raises(Unavailable):
        postroom.connect("postgresql://127.0.0.1:1/nothing")


def test_the_environment_names_the_database(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_message_is_directed_by_the_name_of_a_port(client: Client) -> None:
    """A whole message keeps its id, and others get it by their filters."""
    message = Message.of(b"x", promoted={Region: "US"})
    published = client.publish(message, to="Europe")
    assert published.message_id == message.message_id
    assert published.subscribers == ("Audit", "Europe")
    assert client.publish_many([Message(context=client.directed_to("Audit"))])[0].subscribers == ("Audit",)
    with pytest.raises(NotFound, match="Nowhere"):
        client.publish(b"x", to="Nowhere")


@pytest.mark.parametrize("key", ["", " ", "\t\n"])
def test_an_empty_key_is_refused_and_publishes_nothing(client: Client, database: str, key: str) -> None:
    with pytest.raises(BadValue, match="key of a publish is empty"):
        client.publish(b"{}", promoted={Region: "EU"}, key=key)
    assert count(database, "work_queue") == 0


def test_a_login_that_may_not_publish_is_told_so(client: Client, database: str) -> None:
    with connect(database) as connection:
        box = connection.execute("SELECT id FROM message_box").fetchone()
        assert box is not None
        connection.execute("CREATE ROLE client_olga LOGIN")
        connection.execute("CREATE ROLE client_sam LOGIN")
        connection.execute(f"GRANT postroom_{box[0]}_operators TO client_olga")
    try:
        with pytest.raises(NotAllowed) as refused:
            postroom.connect(database.replace("postgres@", "client_sam@"))
        assert refused.value.code == "NOT_ALLOWED"
        with (
            postroom.connect(database.replace("postgres@", "client_olga@")) as other,
            pytest.raises(NotAllowed, match="permission denied"),
        ):
            other.publish(b"{}", promoted={Region: "EU"})
    finally:
        with connect(database) as connection:
            connection.execute(f"REVOKE postroom_{box[0]}_operators FROM client_olga")
            connection.execute("DROP ROLE client_olga, client_sam")


def test_what_is_asked_of_receivers_has_a_type_and_may_be_named(database: str) -> None:
    """As what is promoted: a property that is not there is not found, one of another type is a bad value."""
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
        with pytest.raises(PublishFailed) as refused:
            client.publish(b"x", promoted={Region: "EU"}, predicates={Property("Sec.Level", str): "3"})
        assert isinstance(refused.value.results[0].failure, BadValue)
        with pytest.raises(BadValue):
            client.publish(b"x", promoted={Region: "EU"}, predicates={"Sec.Level": "3"})
        for unknown in ({Property("Sec.Leven", int): 3}, {"Sec.Leven": 3}):
            with pytest.raises(NotFound, match=r"Sec\.Leven"):
                client.publish(b"x", promoted={Region: "EU"}, predicates=unknown)
        with pytest.raises(BadValue, match="value of a message predicate is empty"):
            client.publish(b"x", promoted={Region: "EU"}, predicates={clearance: ""})
