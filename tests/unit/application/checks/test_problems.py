"""All problems of an application are reported together."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from postroom import BTS, Application, ErrorReport, Property, Retry, Schedule, adapters, pipelines
from postroom.application.checks.problems import find_declaration_problems
from postroom.errors import DefinitionRefused

Region = Property("Orders.Region", str)
NULL = adapters.Null()


def problems(declare: Callable[[Any], object], name: Any = "orders") -> list[str]:
    app = Application(name)
    declare(app)
    found = find_declaration_problems(app)
    assert all(problem.file == __file__ and problem.line for problem in found)
    return [problem.text for problem in found]


@pytest.mark.parametrize(
    "declare",
    [
        lambda app: app.send_port("x" * 256, NULL),
        lambda app: app.send_port("Ünïcode / with: anything", NULL),
        lambda app: [app.send_port("Same", NULL), app.receive_port("Same")],
        lambda app: [app.send_port("a", NULL), app.send_port("A", NULL)],
        lambda app: [app.host("A" * 31), app.send_port("a", NULL, host="a" * 31)],
        lambda app: app.send_port("a", NULL, host="MAIN"),
        lambda app: app.host("Main"),
        lambda app: app.host("Main", trusted=True, properties={Region: "EU"}),
        lambda app: app.host("Secure", trusted=False, properties={Region: ["EU", "US"]}),
        lambda app: app.send_port("a", NULL, filter=BTS.ReceivePortName == "x"),
        lambda app: [app.property(Region), app.send_port("a", NULL, filter=Region == "EU")],
        lambda app: [app.property(Region), app.property(Property("Orders.Region", str))],
        lambda app: app.send_port("a", NULL, retry=Retry(count=1000, interval=31_536_000), priority=10, state="bound"),
        lambda app: app.receive_port("empty"),
        lambda app: app.receive_port("in", route_failures=True),
        lambda app: app.send_port("a", NULL, filter=ErrorReport.SendPortName == "b", route_failures=True),
    ],
)
def test_a_correct_declaration_has_no_problems(declare: Callable[[Any], object]) -> None:
    assert problems(declare) == []


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (lambda app: app.send_port("", NULL), "send port: the name is empty"),
        (lambda app: app.receive_port("P", authentication="yes"), "authentication is 'yes', but must be one of none,"),
        (lambda app: app.host("A", threads=0), "host 'A': threads is 0, but must be a number from 1 to 100"),
        (lambda app: app.host("A", threads=101), "host 'A': threads is 101, but must be a number from 1 to 100"),
        (lambda app: app.host("A", threads=True), "host 'A': threads is True, but must be a number from 1 to 100"),
        (lambda app: app.host("A", trusted="yes"), "host 'A': trusted is 'yes', but must be True or False"),
        (lambda app: app.host("A", properties="EU"), "properties is 'EU', but must be something like"),
        (lambda app: app.host("A", properties={"Region": "EU"}), "'Region' is not a property"),
        (lambda app: app.host("A", properties={Region: 5}), "host 'A': Orders.Region: "),
        (lambda app: app.host("A", properties={Region: ["EU", None]}), "host 'A': Orders.Region: "),
        (lambda app: app.send_port(" a", NULL), "starts or ends with a space"),
        (lambda app: app.send_port("x" * 257, NULL), "257 characters"),
        (lambda app: app.send_port("a\nb", NULL), "control character"),
        (lambda app: app.send_port(5, NULL), "5, which is not text"),
        (lambda app: app.receive_port("\x85b"), "control character|space"),
        (lambda app: app.receive_port("in").location("", adapters.File("in")), "location: the name is empty"),
        (lambda app: [app.send_port("a", NULL), app.send_port("a", NULL)], r"two send ports named 'a'.*:\d+\."),
        (lambda app: [app.receive_port("a"), app.receive_port("a")], "two receive ports named 'a'.*Chain"),
        (
            lambda app: [app.receive_port(name).location("drop", adapters.File(name)) for name in ("one", "two")],
            "two locations named 'drop'",
        ),
        (lambda app: [app.host("Fast"), app.host("FAST")], "two hosts named 'FAST'"),
        (lambda app: app.host("1st"), "'1st' is not the name of a host"),
        (lambda app: app.host("A" * 32), "not the name of a host"),
        (lambda app: app.host("a-b"), "not the name of a host"),
        (lambda app: app.host(None), "not the name of a host"),
        (lambda app: app.send_port("a", NULL, host="Fast"), r"send port 'a': there is no host 'Fast'; .*app\.host"),
        (lambda app: app.send_port("a", NULL, host=None), "there is no host None"),
        (
            lambda app: app.receive_port("in").location("drop", adapters.File("in"), host="X"),
            "location 'drop'.*no host",
        ),
        (lambda app: app.send_port("a", "out"), "'out' is not an adapter"),
        (lambda app: app.send_port("a", adapters.File), "is not an adapter"),
        (lambda app: app.send_port("a", adapters.File("")), "send port 'a': adapter: path is empty"),
        (lambda app: app.receive_port("in").location("x", adapters.File("in", pattern="[")), r"pattern '\['"),
        (lambda app: app.receive_port("in").location("x", NULL), "'null' cannot receive"),
        (lambda app: app.receive_port("in").location("x", adapters.File("in"), pipeline="json"), "not a pipeline"),
        (
            lambda app: app.receive_port("in").location(
                "x", adapters.File("in"), pipeline=pipelines.Json(promote={Region: ""})
            ),
            "pipeline: .*Orders.Region",
        ),
        (lambda app: app.receive_port("in").location("x", adapters.File("in"), enabled="no"), "enabled is 'no'"),
        (
            lambda app: app.receive_port("in").location("x", adapters.File("in"), schedule="daily"),
            "schedule is 'daily'",
        ),
        (
            lambda app: app.receive_port("in").location("x", adapters.File("in"), schedule=Schedule(zone="Mars")),
            "schedule: there is no time zone 'Mars'",
        ),
        (lambda app: app.send_port("a", NULL, retry=Retry(count=-1)), "count is -1"),
        (lambda app: app.send_port("a", NULL, retry=Retry(count=1001)), "count is 1001"),
        (lambda app: app.send_port("a", NULL, retry=Retry(interval=-1)), "interval is -1 seconds"),
        (lambda app: app.send_port("a", NULL, retry=Retry(interval=31_536_001)), "interval"),
        (lambda app: app.send_port("a", NULL, retry=3), r"retry is 3, but .*Retry\("),
        (lambda app: app.send_port("a", NULL, priority=0), "priority is 0"),
        (lambda app: app.send_port("a", NULL, route_failures=1), "send port 'a': route_failures is 1, but must be"),
        (lambda app: app.receive_port("in", route_failures="no"), "receive port 'in': route_failures is 'no'"),
        (lambda app: app.send_port("a", NULL, priority=11), "priority is 11"),
        (lambda app: app.send_port("a", NULL, priority=True), "priority is True"),
        (lambda app: app.send_port("a", NULL, state="running"), "state is 'running'.*bound, stopped, started"),
        (lambda app: app.send_port("a", NULL, filter=False), "filter is False"),
        (lambda app: app.send_port("a", NULL, filter=Region), "filter is Property"),
        (lambda app: app.send_port("a", NULL, filter=Region == "EU"), "Orders.Region is not known.*app.property"),
        (
            lambda app: app.send_port("a", NULL, filter="Regoin == 'EU'"),
            "send port 'a': filter: There is no property Regoin",
        ),
        (lambda app: app.send_port("a", NULL, filter=""), "filter is empty"),
        (lambda app: app.send_port("a", NULL, filter="BTS.MessageType == 5"), "BTS.MessageType is text"),
        (lambda app: app.property("Orders.Region"), "'Orders.Region' is not a property"),
        (
            lambda app: app.property(Region, Property("Orders.Region", int)),
            r"Orders.Region has the type int here, but str in .*:\d+",
        ),
        (lambda app: app.property(Property("BTS.MessageType", int)), "type int here, but str, as a system property"),
    ],
)
def test_every_problem_of_a_declaration_is_reported(declare: Callable[[Any], object], expected: str) -> None:
    found = problems(declare)
    assert len(found) == 1, found
    assert re.search(expected, found[0]), found[0]


@pytest.mark.parametrize("name", ["", None, "a\0b"])
def test_an_application_needs_a_name(name: Any) -> None:
    assert len(problems(lambda app: None, name)) == 1


def test_the_hint_suggests_the_nearest_property() -> None:
    def declare(app: Application) -> None:
        app.property(Region)
        app.send_port("a", NULL, filter=Property("Orders.Regoin", str) == "EU")

    assert "Did you mean Orders.Region?" in problems(declare)[0]


def test_a_property_with_two_types_is_reported() -> None:
    def declare(app: Application) -> None:
        pipeline = pipelines.Json(promote={Property("Orders.Total", Decimal): "total"})
        app.receive_port("in").location("drop", adapters.File("in"), pipeline=pipeline)
        app.send_port("a", NULL, filter=Property("Orders.Total", int) > 5)

    assert len(problems(declare)) == 1


def test_all_problems_are_reported_together_in_the_order_of_the_file() -> None:
    def declare(app: Application) -> None:
        app.receive_port("in").location("drop", adapters.File("", pattern="["), host="Nowhere")
        app.send_port("a", NULL, priority=0, state="odd")  # type: ignore[arg-type]
        app.send_port("a", NULL, filter="Nope == 1")

    found = problems(declare)
    assert len(found) == 7
    assert [text for text in found if text.startswith("location")] == found[:3]
    app = Application("orders")
    declare(app)
    with pytest.raises(DefinitionRefused, match="7 problems") as caught:
        app.definition()
    assert all(str(problem) in str(caught.value) for problem in caught.value.problems)


def test_a_comparison_of_two_properties_is_rejected() -> None:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", adapters.File("out"), filter=Region == Region)  # type: ignore[arg-type]
    (problem,) = find_declaration_problems(app)
    assert "filter is True; a property has to be compared with a value" in problem.text
