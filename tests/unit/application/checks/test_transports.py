"""Problems of the transports of send ports: service windows and backup transports."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Application, BackupTransport, Property, Retry, Schedule, adapters
from postroom.adapters import PortAdapter
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.checks.problems import find_declaration_problems
from postroom.application.definition import ApplicationDefinition
from postroom.errors import DefinitionError

Region = Property("Orders.Region", str)
LATE = BackupTransport(
    adapters.File("out/late"), retry=Retry(count=0), service_window=Schedule(window=("22:00", "06:00"))
)


def declare(adapter: PortAdapter | None = None, **settings: Any) -> Application:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", adapter or adapters.Http("https://example.com/"), filter=Region == "EU", **settings)
    return app


def list_texts(app: Application) -> list[str]:
    return [problem.text for problem in find_declaration_problems(app)]


def test_transports_are_part_of_the_stored_definition() -> None:
    definition = declare(service_window=Schedule(window=("08:00", "18:00")), backup=LATE).definition()
    (port,) = definition.send_ports
    assert port.backup == LATE
    assert ApplicationDefinition.from_stored(definition.to_stored()) == definition


def test_a_definition_without_transports_is_read_as_before() -> None:
    stored = declare().definition().to_stored()
    for port in stored["send_ports"]:
        del port["service_window"], port["backup"]
    (port,) = ApplicationDefinition.from_stored(stored).send_ports
    assert (port.service_window, port.backup) == (None, None)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"service_window": "08:00-18:00"}, "service_window is '08:00-18:00', but must be something like Schedule("),
        ({"service_window": Schedule(zone="Mars/Base")}, "service_window: there is no time zone 'Mars/Base'"),
        ({"backup": adapters.File("late")}, "must be something like BackupTransport(adapters.File('out/late'))"),
        ({"backup": BackupTransport(adapters.File(""))}, "backup: adapter: path is empty"),
        ({"backup": BackupTransport(adapters.Null(), retry=Retry(count=-1))}, "backup: retry: count is -1"),
        ({"backup": BackupTransport(Dynamic())}, "the adapter 'dynamic' cannot be that of a backup transport"),
        (
            {"backup": BackupTransport(adapters.SparkSink("parquet", "lake"))},
            "the adapter 'spark_sink' cannot be that of a backup transport",
        ),
    ],
)
def test_a_wrong_transport_is_a_problem(settings: dict[str, Any], text: str) -> None:
    assert any(text in found for found in list_texts(declare(**settings))), list_texts(declare(**settings))


def test_a_sink_has_neither_a_service_window_nor_a_backup_transport() -> None:
    sink = adapters.SparkSink("parquet", "lake")
    found = list_texts(declare(sink, service_window=Schedule(window=("08:00", "18:00")), backup=LATE))
    assert found == [
        "send port 'Europe': a sink has no service_window: Spark writes its batches at any time.",
        "send port 'Europe': a sink has no backup transport: Spark repeats a batch until it is written.",
    ]


def test_a_backup_transport_with_a_wrong_argument_is_refused() -> None:
    with pytest.raises(DefinitionError, match="adapter"):
        BackupTransport("out/late")  # type: ignore[arg-type]
