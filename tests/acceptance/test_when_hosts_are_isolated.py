"""ACC-70, 71, 72: the authorisation of receivers, trusted hosts, isolated hosts, and the rights of their logins."""

from __future__ import annotations

import urllib.request
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import postroom
from postroom import BTS, Property
from postroom.errors import PublishFailed
from tests.support.http_receiver import Handler, http_receiver
from tests.support.installation import Installation
from tests.support.reserved_port import is_listening, reserve_port
from tests.support.waiting import PATIENCE, wait_until

Region = Property("Orders.Region", str)
Thumbprint = Property("Security.Thumbprint", str)
HOSTS = """
Thumbprint = Property("Security.Thumbprint", str)
app.host("H1", properties={Thumbprint: "T"}, trusted=True)
app.host("H2")
app.send_port("One", adapters.File("out/1"), filter=Region == "EU", host="H1")
app.send_port("Two", adapters.File("out/2"), filter=Region == "EU", host="H2")
"""


def login_url(installation: Installation, host: str) -> str:
    """Return the connection URL for the role of a host."""
    [role] = [listed["role_name"] for listed in installation.run_json("host", "list") if listed["name"] == host]
    assert installation.database is not None
    return make_conninfo(installation.database, user=role)


def test_a_message_is_delivered_only_to_hosts_with_the_properties_that_its_predicates_require(
    installation: Installation,
) -> None:
    """ACC-70, CTX-25, NRF-17."""
    installation.apply(HOSTS)
    with postroom.connect(installation.database) as client:
        secret = client.publish(b"secret", promoted={Region: "EU"}, predicates={Thumbprint: "T"})
        assert secret.subscribers == ("One",)
        assert client.publish(b"open", promoted={Region: "EU"}).subscribers == ("One", "Two")
        with pytest.raises(PublishFailed, match="no host that subscribes is authorised"):
            client.publish(b"lost", promoted={Region: "EU"}, predicates={Thumbprint: "U"})
    [report] = installation.list_suspended("not-resumable")
    installation.run("instance", "terminate", report["instance_id"])
    explained = installation.run("explain", str(secret.message_id))
    assert "may not receive it: host H2 lacks Security.Thumbprint = 'T'" in explained
    installation.start_host("H1")
    installation.start_host("H2")
    assert sorted(installation.wait_for_files("out/1", 2)) == [b"open", b"secret"]
    assert installation.wait_for_files("out/2", 1) == [b"open"]
    wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")


@pytest.mark.parametrize(("host", "trusted"), [("H1", True), ("H2", False)])
def test_only_a_trusted_host_can_set_the_originator_of_a_message(
    installation: Installation, host: str, trusted: bool
) -> None:
    """ACC-71, SEC-07, SEC-08."""
    installation.apply(HOSTS)
    forged = {BTS.OriginatorSID: "CONTOSO\\boss", BTS.OriginatorPID: "Contoso"}
    url = login_url(installation, host)
    with postroom.connect(url, host=host) as client:
        published = client.publish(b"", promoted={Region: "EU"}, written=forged)
    context = {
        row["property"]: row["value"]
        for row in installation.run_json("message", "show", str(published.message_id))["context"]
    }
    role = psycopg.conninfo.conninfo_to_dict(url)["user"]
    expected = ("CONTOSO\\boss", "Contoso") if trusted else (role, "Guest")
    assert (context["BTS.OriginatorSID"], context["BTS.OriginatorPID"]) == expected


def test_a_host_cannot_call_the_procedures_of_another_host(installation: Installation) -> None:
    """ACC-72."""
    installation.apply(HOSTS)
    with psycopg.connect(login_url(installation, "H2"), autocommit=True) as connection:
        for statement in (
            "SELECT * FROM messagebox.dequeue_messages_h1(gen_random_uuid(), 1, 'messaging_in_process', 10)",
            "SELECT messagebox.create_subscription_h1('messaging_in_process', gen_random_uuid(), 'x', '')",
            "SELECT * FROM messagebox.h1_q",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_every_service_class_subscribes_and_receives(installation: Installation) -> None:
    """SUB-06, HST-02, INS-18: a caller at the isolated host Web waits for an orchestration on Main, which waits for a
    send port. Each service class has subscribed, and gets its message."""
    with http_receiver() as receiver, reserve_port() as port, ThreadPoolExecutor() as pool:

        def answer_after_release(handler: Handler) -> None:
            asked = handler.take().body
            receiver.released.wait()
            handler.respond(200, asked + b" at 7 EUR")

        receiver.behave = answer_after_release
        installation.apply(
            f"""
            from postroom import Message, orchestrations

            app.host("Web", isolated=True)
            app.receive_port("Quotes", two_way=True).location(
                "quotes",
                adapters.HttpReceive("/quotes", port={port}, response_timeout={PATIENCE}),
                pipeline=pipelines.PassThrough(),
                host="Web",
            )
            app.send_port("Pricing", adapters.Http("{receiver.url}"), two_way=True)

            @app.orchestration(activate=BTS.ReceivePortName == "Quotes")
            async def price(quote: Message) -> None:
                found = await orchestrations.request(Message.of(quote.data), to="Pricing")
                await orchestrations.send(Message.of(found.data), to=orchestrations.reply_port(quote))
            """
        )
        installation.start_host("Web")
        with installation.run_host("Main"):
            call = pool.submit(ask, port, b"ten apples")
            wait_until(lambda: receiver.requests, what="the request")
            subscriptions = installation.run_json("subscription", "list")
            assert {(one["service_class"], one["type"], one["host"]) for one in subscriptions} == {
                ("messaging_isolated", "instance", "Web"),
                ("orchestrations", "activation", "Main"),
                ("orchestrations", "instance", "Main"),
                ("messaging_in_process", "activation", "Main"),
            }
            receiver.released.set()
            assert call.result(PATIENCE) == b"ten apples at 7 EUR"
            wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")
    file = installation.write(
        """
        app.host("Web", isolated=True)
        app.send_port("Pricing", adapters.Null(), host="Web")

        @app.orchestration(activate=Region == "EU", host="Web")
        async def price(quote: object) -> None: ...
        """
    )
    refused = installation.run("plan", str(file), exit_code=3)
    assert "send port 'Pricing': the host 'Web' is isolated" in refused
    assert "orchestration 'price': the host 'Web' is isolated" in refused


def ask(port: int, body: bytes) -> bytes:
    wait_until(lambda: is_listening(port), what="the listener")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/quotes", body, timeout=PATIENCE) as answer:
        response: bytes = answer.read()
    return response
