"""Declarations of send port groups and their problems (SPT-10, SPT-14)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom import Application, Property, adapters
from postroom.application import ApplicationDefinition, conflicts, load
from postroom.application.checks.problems import find_declaration_problems
from postroom.errors import DefinitionRefused

Region = Property("Orders.Region", str)
NULL = adapters.Null()


def problems(declare: Callable[[Any], object]) -> list[str]:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", NULL)
    app.send_port("Audit", NULL)
    declare(app)
    found = find_declaration_problems(app)
    assert all(problem.file == __file__ and problem.line for problem in found)
    return [problem.text for problem in found]


@pytest.mark.parametrize(
    "declare",
    [
        lambda app: app.send_port_group("Everyone", ["Europe", "Audit"], filter=Region == "EU"),
        lambda app: app.send_port_group("Everyone", [app.send_port("x", NULL), "Audit"], filter="exists(Region)"),
        lambda app: app.send_port_group("Everyone", {"Europe"}),
        lambda app: app.dynamic_send_port("Anywhere", filter=Region == "EU", folders=["out"], urls=["https://a.b/c"]),
        lambda app: app.send_port_group("Nobody", [], state="bound"),
        lambda app: [app.send_port_group(name, ["Europe"]) for name in ("One", "Two")],
        lambda app: [app.send_port_group("Same", ["Europe"]), app.receive_port("Same")],
        lambda app: app.send_port_group("Everyone", ["Later"]) and app.send_port("Later", NULL),
        lambda app: app.send_port_group("Everyone", ["Europe"], description="x" * 256),
        lambda app: app.send_port("x", NULL, description="Für alle, die's angeht"),
    ],
)
def test_a_correct_group_has_no_problems(declare: Callable[[Any], object]) -> None:
    assert problems(declare) == []


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (lambda app: app.send_port_group("G", ["Europa"]), "no send port 'Europa' in .*; did you mean 'Europe'?"),
        (lambda app: app.send_port_group("G", "Nobody"), "group 'G': there is no send port 'Nobody'"),
        (lambda app: app.send_port_group("G", [app.dynamic_send_port("D")]), "'D' is dynamic; only static"),
        (lambda app: app.send_port_group("G", [5]), "members has 5, which is neither"),
        (lambda app: app.send_port_group("G", None), "members has None"),
        (lambda app: app.send_port_group("G", ["Europe", "Europe"]), "'Europe' is a member 2 times"),
        (lambda app: app.send_port_group("", ["Europe"]), "send port group: the name is empty"),
        (lambda app: app.send_port_group("Europe", ["Audit"]), r"a send port and a send port group .*:\d+\. Give"),
        (lambda app: [app.send_port_group("G", ["Audit"]) for _ in "ab"], "two send port groups named 'G'"),
        (lambda app: app.send_port_group("G", ["Europe"], filter=""), "group 'G': filter: .*empty"),
        (lambda app: app.send_port_group("G", ["Europe"], filter="Regoin == 'EU'"), "no property Regoin"),
        (lambda app: app.send_port_group("G", ["Europe"], filter=Property("A.B", str) == "x"), "A.B is not known"),
        (lambda app: app.send_port_group("G", ["Europe"], filter=5), "filter is 5"),
        (lambda app: app.send_port_group("G", ["Europe"], state="running"), "state is 'running'"),
        (lambda app: app.send_port_group("G", ["Europe"], description="x" * 257), "257 characters.*at most 256"),
        (lambda app: app.send_port_group("G", ["Europe"], description=7), "description is 7"),
        (lambda app: app.dynamic_send_port("x", folders=[""]), "send port 'x': adapter: folders is empty"),
        (lambda app: app.dynamic_send_port("x", urls=["out"]), "send port 'x': adapter: urls 'out' is not a URL"),
        (lambda app: app.dynamic_send_port("x", timeout=-1), "timeout is -1 seconds"),
        (lambda app: app.dynamic_send_port("x", filter="Regoin == 'EU'"), "no property Regoin"),
        (lambda app: app.dynamic_send_port("Europe"), "two send ports named 'Europe'"),
        (lambda app: app.send_port("x", NULL, description="x" * 257), "send port 'x': description has 257"),
        (lambda app: app.send_port("x", NULL, description="a\nb"), "control character"),
    ],
)
def test_every_problem_of_a_group_is_reported(declare: Callable[[Any], object], expected: str) -> None:
    found = problems(declare)
    assert len(found) == 1, found
    assert re.search(expected, found[0]), found[0]


def definition(name: str = "orders", group: str = "Everyone", port: str = "Europe") -> ApplicationDefinition:
    app = Application(name)
    app.property(Region)
    europe = app.send_port(port, NULL, description="What goes to Europe")
    app.send_port(f"{port}2", NULL)
    app.send_port_group(group, [f"{port}2", europe], filter=Region == "EU", state="stopped", description="All")
    return app.definition()


def test_a_group_is_stored_with_the_names_of_its_members() -> None:
    written = definition()
    (group,) = written.send_port_groups
    assert group.members == ("Europe", "Europe2")
    assert written.to_stored()["send_port_groups"] == [
        {
            "name": "Everyone",
            "members": ["Europe", "Europe2"],
            "filter": "Orders.Region == 'EU'",
            "state": "stopped",
            "description": "All",
        }
    ]
    assert ApplicationDefinition.from_stored(written.to_stored()) == written


def test_a_stored_definition_without_groups_can_be_read() -> None:
    stored = definition().to_stored()
    del stored["send_port_groups"]
    for port in stored["send_ports"]:
        del port["description"]
    assert ApplicationDefinition.from_stored(stored).send_port_groups == ()


def test_names_of_ports_and_groups_are_unique_among_all_applications() -> None:
    old = definition("old", group="Everyone", port="Europe")
    found = conflicts(definition("new", group="Europe", port="Everyone"), [old])
    assert [problem.text for problem in found] == [
        "the application 'old' has a send port group named 'Everyone' already.",
        "the application 'old' has a send port named 'Europe' already.",
    ]


def test_a_member_with_a_failed_declaration_is_not_reported_as_missing(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "from postroom import Application, adapters\n"
        "app = Application('orders')\n"
        "app.send_port('Europe', adapters.File())\n"
        "app.send_port_group('Everyone', ['Europe'])\n"
    )
    with pytest.raises(DefinitionRefused) as caught:
        load(file)
    assert [problem.line for problem in caught.value.problems] == [3]
