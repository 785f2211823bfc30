"""Problems of lookups. All of them are listed together."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Application, Lookup, Property
from postroom.application import conflicts
from postroom.errors import DefinitionRefused

Kind = Property("Crm.Kind", str)
CustomerId = Property("Crm.CustomerId", str)


def declare(name: str = "Customers", application: str = "crm", **options: Any) -> Application:
    app = Application(application)
    app.property(Kind, CustomerId)
    app.lookup(name, **{"key": CustomerId, "filter": Kind == "customer", **options})
    return app


def find_problems(app: Application) -> list[str]:
    try:
        app.definition()
    except DefinitionRefused as error:
        return [problem.text for problem in error.problems]
    return []


def test_a_lookup_is_returned_where_it_is_declared() -> None:
    app = declare()
    assert app.lookup("Others", key=CustomerId, filter="Crm.Kind == 'other'") == Lookup("Others")
    assert find_problems(app) == []
    assert [lookup.host for lookup in app.definition().lookups] == ["Main", "Main"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": " "}, "lookup: the name is empty"),
        ({"key": "CustomerId"}, "key is 'CustomerId', but must be a property"),
        ({"key": Property("Crm.Number", int)}, "Crm.Number is not known"),
        ({"filter": None}, "it has no filter"),
        ({"filter": "Crm.Kin == 'customer'"}, "filter: "),
        ({"filter": Property("Crm.Other", str) == "x"}, "Crm.Other is not known"),
        ({"filter": Property("Crm.Kind", int) == 1}, "Crm.Kind has the type int here, but str"),
        ({"host": "Nowhere"}, "there is no host 'Nowhere'"),
        ({"renamed_from": "Customers"}, "renamed_from is its own name"),
    ],
)
def test_a_lookup_that_cannot_work_is_a_problem(options: dict[str, Any], why: str) -> None:
    assert any(why in problem for problem in find_problems(declare(**options)))


def test_the_name_of_a_lookup_is_unique() -> None:
    app = declare()
    app.lookup("Customers", key=CustomerId, filter=Kind == "other")
    assert any("there are two lookups named 'Customers'" in problem for problem in find_problems(app))
    [conflict] = conflicts(declare().definition(), [declare(application="shop").definition()])
    assert conflict.text == "the application 'shop' has a lookup named 'Customers' already."
