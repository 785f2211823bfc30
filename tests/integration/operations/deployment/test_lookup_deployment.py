"""Lookups in plans: created, changed, moved, renamed, removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom import Application
from postroom.errors import DefinitionRefused
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.lookups import list_lookups, read_lookup
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment.apply import remove
from postroom.operations.deployment.plan import Plan
from postroom.operations.subscriptions import list_subscriptions
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy, list_changes
from tests.support.lookups import CustomerId, Kind, customers_app, publish_customer


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        yield opened


def get_note(plan: Plan) -> str:
    return next(step.note for step in plan.steps if step.kind == "lookup")


def build_app(name: str = "Customers", **options: object) -> Application:
    app = Application("crm")
    app.host("Other")
    app.property(Kind, CustomerId)
    app.lookup(name, **{"key": CustomerId, "filter": Kind == "customer", **options})  # type: ignore[arg-type]
    return app


def test_a_lookup_is_created_once(connection: Connection) -> None:
    plan = deploy(connection, build_app())
    assert ("create", "lookup", "Customers") in list_changes(plan)
    assert get_note(plan) == "by Crm.CustomerId, filter: Crm.Kind == 'customer'"
    assert list_changes(deploy(connection, build_app())) == set()
    assert find_violations(connection) == []


def test_another_filter_replaces_the_subscription(connection: Connection) -> None:
    deploy(connection, build_app())
    plan = deploy(connection, build_app(filter=Kind == "client"))
    assert "entries stay as they are" in get_note(plan)
    [subscription] = list_subscriptions(connection)
    assert (subscription.filter, subscription.state) == ("Crm.Kind == 'client'", "started")
    assert find_violations(connection) == []


def test_a_lookup_moves_to_another_host(connection: Connection) -> None:
    deploy(connection, build_app())
    plan = deploy(connection, build_app(host="Other"))
    assert "queued messages stay with host Main" in get_note(plan)
    assert [listing.host for listing in list_lookups(connection)] == ["Other"]
    assert find_violations(connection) == []


def test_a_renamed_lookup_keeps_its_entries(connection: Connection) -> None:
    deploy(connection, build_app())
    before = read_lookup(connection, "Customers")
    deploy(connection, build_app("Clients", renamed_from="Customers"))
    after = read_lookup(connection, "Clients")
    assert before is not None
    assert after is not None
    assert after.lookup_id == before.lookup_id
    assert read_lookup(connection, "Customers") is None
    assert [one.service_name for one in Contents(connection).subscriptions()] == ["Clients"]
    assert find_violations(connection) == []


def test_the_key_of_a_lookup_cannot_change(connection: Connection) -> None:
    deploy(connection, build_app())
    with pytest.raises(DefinitionRefused, match=r"entries by Crm\.CustomerId, and its key cannot become Crm\.Kind"):
        deploy(connection, build_app(key=Kind))


def test_a_lookup_on_an_isolated_host_is_refused(connection: Connection) -> None:
    """HST-02: an isolated host only receives."""
    app = build_app(host="Web")
    app.host("Web", isolated=True)
    with pytest.raises(DefinitionRefused, match="lookup 'Customers': the host 'Web' is isolated"):
        deploy(connection, app)


def test_a_removed_lookup_loses_its_entries(connection: Connection) -> None:
    deploy(connection, build_app())
    before = read_lookup(connection, "Customers")
    plan = deploy(connection, Application("crm"))
    assert "its entries are deleted" in get_note(plan)
    assert read_lookup(connection, "Customers") is None
    assert find_violations(connection) == []
    plan = deploy(connection, build_app())
    assert "starts without entries" in get_note(plan)
    after = read_lookup(connection, "Customers")
    assert before is not None
    assert after is not None
    assert after.lookup_id != before.lookup_id
    remove(connection, "crm", home=HOME)
    assert find_violations(connection) == []


def test_a_lookup_with_messages_is_not_removed_without_a_decision(connection: Connection) -> None:
    deploy(connection, customers_app())
    publish_customer(connection, "C-1", b"Acme")
    with pytest.raises(DefinitionRefused, match="lookup 'Customers' cannot be removed"):
        deploy(connection, Application("crm"))
