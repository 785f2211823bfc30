"""Isolated hosts only receive: HST-02."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, Property, adapters, pipelines
from postroom.errors import DefinitionRefused
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.apply import apply
from postroom.operations.hosts import list_hosts

Region = Property("Orders.Region", str)


def build(name: str = "web", *, isolated: bool | None = True) -> Application:
    app = Application(name)
    app.host("Web", isolated=isolated)
    app.property(Region)
    return app


def add_http_location(app: Application) -> None:
    adapter = adapters.HttpReceive("/orders", port=8080)
    app.receive_port("OrdersIn").location("http", adapter, pipeline=pipelines.PassThrough(), host="Web")


def test_an_isolated_host_receives_by_http(connection: Connection, tmp_path: Path) -> None:
    app = build()
    add_http_location(app)
    apply(connection, app.definition(), home=tmp_path)
    assert {host.name: host.isolated for host in list_hosts(connection)} == {"Main": False, "Web": True}
    app = build(isolated=False)
    add_http_location(app)
    apply(connection, app.definition(), home=tmp_path)
    assert {host.name: host.isolated for host in list_hosts(connection)} == {"Main": False, "Web": False}


def test_send_ports_and_other_locations_on_an_isolated_host_are_refused(connection: Connection, tmp_path: Path) -> None:
    app = build()
    app.send_port("Europe", adapters.Null(), filter=Region == "EU", host="Web")
    app.receive_port("FilesIn").location("drop", adapters.File("in"), pipeline=pipelines.PassThrough(), host="Web")
    with pytest.raises(DefinitionRefused) as refused:
        apply(connection, app.definition(), home=tmp_path)
    texts = [problem.text for problem in refused.value.problems]
    assert len(texts) == 2
    assert "send port 'Europe': the host 'Web' is isolated" in texts[0]
    assert "location 'drop': the host 'Web' is isolated" in texts[1]


def test_an_orchestration_on_an_isolated_host_is_refused(connection: Connection, tmp_path: Path) -> None:
    app = build()

    @app.orchestration(activate=Region == "EU", host="Web")
    async def procure(message: Message) -> None: ...

    with pytest.raises(DefinitionRefused) as refused:
        apply(connection, app.definition(), home=tmp_path)
    [problem] = refused.value.problems
    assert problem.text == (
        "orchestration 'procure': the host 'Web' is isolated. An isolated host only receives, by HTTP or with adapters "
        "that it polls. Give it another host."
    )
    assert problem.file == __file__


def test_a_host_with_orchestrations_of_another_application_cannot_become_isolated(
    connection: Connection, tmp_path: Path
) -> None:
    other = build("other", isolated=None)

    @other.orchestration(activate=Region == "EU", host="Web")
    async def procure(message: Message) -> None: ...

    apply(connection, other.definition(), home=tmp_path)
    with pytest.raises(DefinitionRefused) as refused:
        apply(connection, build().definition(), home=tmp_path)
    [problem] = refused.value.problems
    assert problem.text.endswith("Give it another host. It belongs to the application 'other'.")


def test_a_host_with_ports_of_another_application_cannot_become_isolated(
    connection: Connection, tmp_path: Path
) -> None:
    other = build("other", isolated=None)
    other.send_port("Europe", adapters.Null(), filter=Region == "EU", host="Web")
    apply(connection, other.definition(), home=tmp_path)
    with pytest.raises(DefinitionRefused) as refused:
        apply(connection, build().definition(), home=tmp_path)
    [problem] = refused.value.problems
    assert "It belongs to the application 'other'." in problem.text


def test_the_default_host_cannot_be_isolated() -> None:
    app = Application("web")
    app.host("Main", isolated=True)
    with pytest.raises(DefinitionRefused, match="default host, which cannot be isolated"):
        app.definition()
