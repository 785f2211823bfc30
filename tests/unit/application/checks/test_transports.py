"""Problems of the transports of send ports: service windows and backup transports."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom import Application, BackupTransport, CircuitBreaker, Property, Retry, Schedule, adapters
from postroom.adapters import SendDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.checks.problems import find_declaration_problems
from postroom.application.definition import ApplicationDefinition
from postroom.errors import DefinitionError

Region = Property("Orders.Region", str)
LATE = BackupTransport(
    adapters.File("out/late"), retry=Retry(count=0), service_window=Schedule(window=("22:00", "06:00"))
)


def declare(adapter: SendDefinition | None = None, **settings: Any) -> Application:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", adapter or adapters.Http("https://example.com/"), filter=Region == "EU", **settings)
    return app


def list_texts(app: Application) -> list[str]:
    return [problem.text for problem in find_declaration_problems(app)]


def test_transports_are_part_of_the_stored_definition() -> None:
    window = Schedule(window=("08:00", "18:00"))
    definition = declare(service_window=window, backup=LATE, expire_after=90).definition()
    (port,) = definition.send_ports
    assert (port.backup, port.expire_after) == (LATE, timedelta(seconds=90))
    assert ApplicationDefinition.from_stored(definition.to_stored()) == definition


def test_a_definition_without_transports_is_read_as_before() -> None:
    stored = declare().definition().to_stored()
    for stored_port in stored["send_ports"]:
        for field in ("service_window", "backup", "expire_after", "circuit_breaker"):
            del stored_port[field]
    (port,) = ApplicationDefinition.from_stored(stored).send_ports
    assert (port.service_window, port.backup, port.expire_after) == (None, None, None)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"service_window": "08:00-18:00"}, "service_window is '08:00-18:00', but must be something like Schedule("),
        ({"service_window": Schedule(zone="Mars/Base")}, "service_window: there is no time zone 'Mars/Base'"),
        ({"circuit_breaker": 10}, "circuit_breaker is 10, but must be something like CircuitBreaker(failures=10)"),
        ({"circuit_breaker": CircuitBreaker(failures=0)}, "circuit_breaker: failures is 0, but must be between 1"),
        ({"circuit_breaker": CircuitBreaker(period=-1)}, "circuit_breaker: period is -1 seconds"),
        ({"circuit_breaker": CircuitBreaker(), "backup": LATE}, "either a circuit_breaker or a backup transport"),
        ({"ordered": True, "backup": LATE}, "an ordered send port has no backup transport"),
        ({"ordered": 1}, "ordered is 1, but must be True or False"),
        ({"stop_on_failure": True}, "stop_on_failure=True needs ordered=True"),
        ({"expire_after": "soon"}, "expire_after is 'soon', but must be a number of seconds or a timedelta"),
        ({"expire_after": 0}, "expire_after is 0, but must be more than 0"),
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


def test_a_sink_has_no_service_window_no_expiration_and_no_backup_transport() -> None:
    sink = adapters.SparkSink("parquet", "lake")
    found = list_texts(declare(sink, service_window=Schedule(window=("08:00", "18:00")), backup=LATE, expire_after=60))
    assert found == [
        "send port 'Europe': a sink has no service_window: Spark writes its batches at any time.",
        "send port 'Europe': a sink has no expire_after: Spark writes every message.",
        "send port 'Europe': a sink has no backup transport: Spark repeats a batch until it is written.",
    ]


def test_a_backup_transport_with_a_wrong_argument_is_refused() -> None:
    with pytest.raises(DefinitionError, match="adapter"):
        BackupTransport("out/late")  # type: ignore[arg-type]
