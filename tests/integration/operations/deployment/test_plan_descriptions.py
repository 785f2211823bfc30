"""The text of plans: differences and notes without secrets."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Application, Property, adapters, pipelines
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.apply import plan
from postroom.operations.deployment.plan import Action, ChangeKind
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy

Region = Property("Orders.Region", str)


def test_a_changed_promotion_is_described_by_its_property(connection: Connection) -> None:
    def app(**paths: str) -> Application:
        declared = Application("orders")
        promote = {Property(f"Orders.{name}", str): path for name, path in paths.items()}
        adapter = adapters.File("in")
        declared.receive_port("OrdersIn").location("drop", adapter, pipeline=pipelines.Json(promote=promote))
        return declared

    deploy(connection, app(Region="region", Kind="kind"))
    planned = plan(connection, app(Region="area", Status="status").definition(), home=HOME)
    (step,) = planned.select(ChangeKind.LOCATION, Action.CHANGE)
    assert [(difference.field, difference.before, difference.after) for difference in step.differences] == [
        ("pipeline promote Orders.Region", "'region' as str", "'area' as str"),
        ("pipeline promote Orders.Status", "none", "'status' as str"),
        ("pipeline promote Orders.Kind", "'kind' as str", "none"),
    ]


def test_a_port_that_writes_into_a_watched_folder_is_noted(connection: Connection) -> None:
    app = Application("orders")
    app.property(Region)
    app.receive_port("OrdersIn").location("drop", adapters.File("in"), pipeline=pipelines.Json())
    app.send_port("Europe", adapters.File("out"), filter=Region == "EU")
    app.send_port("Again", adapters.File("out/../in"), filter=Region == "US")
    app.send_port("Elsewhere", adapters.File("in/sub"), filter=Region == "US")
    planned = plan(connection, app.definition(), home=HOME)
    notes = {step.name: step.note for step in planned.select(ChangeKind.SEND_PORT, Action.CREATE)}
    assert "writes into the folder of location drop" in notes["Again"]
    assert "writes into" not in notes["Elsewhere"] + notes["Europe"]
    deploy(connection, app)
    (kept,) = (step for step in plan(connection, app.definition(), home=HOME).steps if step.name == "Again")
    assert "writes into the folder of location drop" in kept.note


def test_secrets_are_not_in_a_plan_and_not_in_the_database(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def app(variable: str) -> Application:
        made = Application("web")
        made.property(Region)
        made.send_port(
            "Web",
            adapters.Http(
                "https://example.com",
                headers={"Authorization": postroom.secret(env=variable), "X-Note": variable},
                proxy=postroom.secret(file=f"/run/{variable}"),
            ),
            filter=BTS.ReceivePortName == "x",
        )
        return made

    for variable in ("OLD", "NEW"):
        monkeypatch.setenv(variable, "s3cret")
    deploy(connection, app("OLD"))
    planned = plan(connection, app("NEW").definition(), home=HOME)
    (step,) = planned.select(ChangeKind.SEND_PORT, Action.CHANGE)
    assert {(difference.field, difference.before, difference.after) for difference in step.differences} == {
        ("adapter headers Authorization", "secret (env=OLD)", "secret (env=NEW)"),
        ("adapter proxy file", "/run/OLD", "/run/NEW"),
    }
    assert "s3cret" not in repr(planned)
    assert "s3cret" not in repr(Contents(connection).port("Web"))


def test_notes_of_new_objects_describe_their_settings(connection: Connection) -> None:
    app = Application("orders")
    app.host("Main", trusted=True)
    port = app.receive_port("OrdersIn", route_failures=True, authentication="keep")
    port.location("drop", adapters.File("in"))
    app.dynamic_send_port("Anywhere", route_failures=True)
    planned = plan(connection, app.definition(), home=HOME)
    notes = {step.name: step.note for step in planned.steps}
    assert notes["OrdersIn"] == "routes failures, requires authentication (keep)"
    assert notes["Anywhere"] == "started, dynamic, without a filter; routes failures"
