"""Handlers: the adapters that a host runs, each in one direction. HST-02, HST-05, DEQ-17."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from postroom import Application, BackupTransport, Handler, Property, adapters, pipelines
from postroom.errors import DefinitionError, DefinitionRefused
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.hosts import delete_host, list_handlers
from postroom.ports.handlers import read_send_handlers
from tests.support.deployment import deploy

Region = Property("Orders.Region", str)
WEB = Handler("http", "send", high_watermark=20, low_watermark=10)


def build(name: str = "web", *, handlers: Sequence[Handler] | None = None, isolated: bool | None = None) -> Application:
    app = Application(name)
    app.host("Web", handlers=handlers, isolated=isolated)
    app.property(Region)
    return app


def add_http_port(app: Application, name: str = "Shop") -> None:
    app.send_port(name, adapters.Http("http://localhost:1/orders"), filter=Region == "EU", host="Web")


def list_keys(connection: Connection) -> list[tuple[str, str, bool]]:
    return [(each.adapter, each.direction, each.declared) for each in list_handlers(connection, "Web")]


def test_a_host_has_all_handlers_by_default(connection: Connection) -> None:
    app = build()
    add_http_port(app)
    deploy(connection, app)
    found = list_keys(connection)
    assert {("file", "receive", False), ("file", "send", False), ("http", "send", False)} < set(found)
    assert ("http", "receive", False) not in found
    [used] = [each for each in list_handlers(connection) if each.used_by]
    assert (used.host, used.adapter, used.direction, used.high_watermark) == ("Web", "http", "send", 200)


def test_an_isolated_host_has_the_handler_that_receives_by_http(connection: Connection) -> None:
    deploy(connection, build(isolated=True))
    assert ("http_receive", "receive", False) in list_keys(connection)
    assert not [key for key in list_keys(connection) if key[:2] == ("file", "receive") or key[1] == "send"]


def test_declared_handlers_are_stored_and_changed(connection: Connection) -> None:
    app = build(handlers=[WEB, Handler("file", "receive")])
    add_http_port(app)
    deploy(connection, app)
    assert list_keys(connection) == [("file", "receive", True), ("http", "send", True)]
    [host_id] = [host.host_id for host in read_hosts(connection) if host.name == "Web"]
    assert list(read_send_handlers(connection, host_id).values()) == [WEB]
    same = build(handlers=[Handler("file", "receive"), WEB])
    add_http_port(same)
    assert deploy(connection, same).changes == ()
    app = build()
    add_http_port(app)
    (step,) = deploy(connection, app).select(ChangeKind.HOST, Action.CHANGE)
    assert [(each.field, each.before, each.after) for each in step.differences] == [
        ("handlers", "file receive, http send (watermarks 20 and 10)", "default")
    ]
    assert list(read_send_handlers(connection, host_id).values()) == [Handler("http", "send")]


def test_ports_and_locations_without_a_handler_are_refused(connection: Connection) -> None:
    app = build(handlers=[WEB])
    app.send_port(
        "Shop",
        adapters.Http("http://localhost:1/orders"),
        filter=Region == "EU",
        host="Web",
        backup=BackupTransport(adapters.File("late")),
    )
    app.receive_port("FilesIn").location("drop", adapters.File("in"), pipeline=pipelines.PassThrough(), host="Web")
    with pytest.raises(DefinitionRefused) as refused:
        deploy(connection, app)
    advice = "the host 'Web' has no handler for this adapter. Give it another host, or add Handler('file', '{}') to"
    port, location = (problem.text for problem in refused.value.problems)
    assert f"send port 'Shop': {advice.format('send')} the handlers of the host." in port
    assert f"location 'drop': {advice.format('receive')} the handlers of the host." in location


def test_an_application_cannot_remove_a_handler_that_another_one_uses(connection: Connection) -> None:
    app = build()
    add_http_port(app)
    deploy(connection, app)
    with pytest.raises(DefinitionRefused, match="It belongs to the application 'web'"):
        deploy(connection, build("other", handlers=[Handler("file", "send")]))
    deploy(connection, build("other", handlers=[WEB]))
    with pytest.raises(DefinitionRefused, match="its handlers are http send"):
        deploy(connection, build("third", handlers=[Handler("http", "send")]))


def test_an_isolated_host_cannot_have_a_send_handler(connection: Connection) -> None:
    with pytest.raises(DefinitionRefused, match="An isolated host only receives"):
        deploy(connection, build(isolated=True, handlers=[WEB, Handler("http_receive", "receive")]))


def test_the_handlers_of_a_removed_host_are_removed(connection: Connection) -> None:
    deploy(connection, build(handlers=[WEB]))
    deploy(connection, Application("web"))
    delete_host(connection, "Web")
    deploy(connection, build())
    assert not any(declared for *_, declared in list_keys(connection))


@pytest.mark.parametrize(
    ("handlers", "problem"),
    [
        ([], "handlers is \\[\\], but must be a list"),
        (["http"], "handlers is \\['http'\\], but must be a list"),
        ([WEB, Handler("http", "send")], "handlers has http send 2 times"),
        ([Handler("http", "receive")], "no adapter 'http' can receive; the adapters that can are file, http_receive"),
        ([Handler("http", "send", high_watermark=5)], "its low watermark is 100 and its high watermark 5"),
    ],
)
def test_wrong_handlers_are_refused(handlers: list[Handler], problem: str) -> None:
    with pytest.raises(DefinitionRefused, match=problem):
        build(handlers=handlers).definition()


def test_a_handler_has_a_direction() -> None:
    with pytest.raises(DefinitionError, match="Handler cannot be created from these arguments: direction"):
        Handler("http", "both")  # type: ignore[arg-type]
