"""Receive locations and send ports as the engine reads them: parsed once, from what is stored."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom import adapters, pipelines
from postroom.application import ReceiveLocationDefinition, ReceivePortDefinition, SendPortDefinition
from postroom.errors import DefinitionError
from postroom.maps.port_maps import NO_MAPS
from postroom.ports.receive_locations import build_receive_location
from postroom.ports.send_ports import build_send_port
from tests.support.setting_files import find_setting_files

FILE = adapters.File("in", order="name")
JSON = pipelines.Json(split="orders")

LOCATION = build_receive_location(
    ReceivePortDefinition(name="OrdersIn"),
    ReceiveLocationDefinition(name="drop", adapter=FILE, pipeline=JSON, host="Main"),
    location_id=uuid.uuid4(),
    port_id=uuid.uuid4(),
    host_id=1,
    home=Path(),
)
PORT = build_send_port(
    SendPortDefinition(name="Europe", adapter=adapters.Null(), host="Main"),
    port_id=uuid.uuid4(),
    host_id=1,
    home=Path(),
)


def test_a_location_has_its_adapter_and_pipeline_as_they_were_declared() -> None:
    assert (LOCATION.adapter, LOCATION.pipeline, LOCATION.maps) == (FILE, JSON, NO_MAPS)
    assert LOCATION.adapter.is_ordered
    assert LOCATION.adapter is LOCATION.adapter
    assert LOCATION.pipeline is LOCATION.pipeline


def test_a_port_has_its_adapter_as_it_was_declared() -> None:
    assert (PORT.adapter, PORT.maps) == (adapters.Null(), NO_MAPS)


def test_only_the_stored_json_is_pickled() -> None:
    fresh = replace(LOCATION)
    size = len(pickle.dumps(fresh))
    assert (fresh.adapter, fresh.pipeline) == (FILE, JSON)
    assert len(pickle.dumps(fresh)) == size
    again = pickle.loads(pickle.dumps(fresh))
    assert again == fresh
    assert again.pipeline is fresh.pipeline, "a worker keeps what a pipeline has compiled"


@pytest.mark.parametrize(
    ("changes", "read", "field"),
    [
        ({"adapter": {"kind": "carrier pigeon"}}, "adapter", "carrier pigeon"),
        ({"adapter": adapters.Null().model_dump(mode="json")}, "adapter", "null"),
        ({"adapter": {**LOCATION.adapter_json, "settle": "soon"}}, "adapter", "settle"),
        ({"adapter": {**LOCATION.adapter_json, "speed": 5}}, "adapter", "speed"),
        ({"pipeline": {"kind": "telex"}}, "pipeline", "telex"),
        ({"pipeline": {**LOCATION.definition["pipeline"], "split": 5}}, "pipeline", "split"),
        ({"maps": {"maps": [{"a": 1}]}}, "maps", "maps"),
    ],
)
def test_an_unreadable_location_is_reported_with_the_field(changes: Any, read: str, field: str) -> None:
    changed = replace(LOCATION.replace_settings(**changes), port={**LOCATION.port, **changes})
    with pytest.raises(DefinitionError) as refused:
        getattr(changed, read)
    assert refused.value.what == "The stored definition of the receive location 'drop' cannot be read."
    assert field in refused.value.why


def test_an_unreadable_port_is_reported() -> None:
    with pytest.raises(DefinitionError, match="send port 'Europe'"):
        _ = PORT.replace_settings(adapter=adapters.HttpReceive("/", port=80).model_dump(mode="json")).adapter


def test_the_adapter_type_needs_no_settings() -> None:
    lake = PORT.replace_settings(adapter={"kind": "spark_sink"})
    assert lake.is_sink
    assert not lake.is_dynamic


def test_only_the_signature_the_definition_and_the_use_name_a_setting() -> None:
    assert [str(file) for file in find_setting_files("stop_on_failure")] == [
        "application/application.py",
        "application/definition.py",
        "hosts/messaging/failures.py",
    ]
