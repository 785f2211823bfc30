"""Conflicts between applications in one MessageBox."""

from __future__ import annotations

from postroom import Application, Property, adapters
from postroom.application import ApplicationDefinition, conflicts

NULL = adapters.Null()


def application(name: str, *, suffix: str = "", kind: type = str) -> ApplicationDefinition:
    app = Application(name)
    app.host("Shared")
    app.property(Property("Orders.Region", kind))
    app.receive_port(f"In{suffix}").location(f"drop{suffix}", adapters.File("in"))
    app.send_port(f"Out{suffix}", NULL)
    return app.definition()


def test_names_are_unique_among_all_applications() -> None:
    found = conflicts(application("new"), [application("other", suffix="2"), application("old")])
    assert [problem.text for problem in found] == [
        "the application 'old' has a receive port named 'In' already.",
        "the application 'old' has a receive location named 'drop' already.",
        "the application 'old' has a send port named 'Out' already.",
    ]
    assert all(problem.file == __file__ and problem.line for problem in found)


def test_an_application_does_not_conflict_with_itself() -> None:
    assert conflicts(application("same", kind=int), [application("same")]) == []


def test_a_property_has_one_type_in_all_applications() -> None:
    """CTX-09."""
    found = conflicts(application("new", kind=int), [application("old", suffix="2")])
    assert [problem.text for problem in found] == [
        "Orders.Region has the type int here, but str in the application 'old'."
    ]
    assert conflicts(application("new"), [application("old", suffix="2")]) == []
