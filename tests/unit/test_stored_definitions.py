"""Values that users declare, and stored definitions: damaged ones are refused when they are read, not when they are
stored again."""

from __future__ import annotations

from datetime import timedelta
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from postroom import Application, adapters, pipelines
from postroom.application import ApplicationDefinition
from postroom.errors import DefinitionError
from postroom.stored_definitions import DeclaredValue, OptionalPath, Seconds, TextPath


def store() -> dict[str, Any]:
    app = Application("orders")
    app.send_port("Europe", adapters.Null(), pipeline=pipelines.Send())
    return app.definition().to_stored()


@pytest.mark.parametrize("item", [[], "gzip", 5, None])
@pytest.mark.parametrize(("field", "stage"), [("maps", "maps"), ("response_maps", "maps"), ("pipeline", "encoders")])
def test_an_item_that_is_no_object_is_refused(field: str, stage: str, item: object) -> None:
    stored = store()
    stored["send_ports"][0][field][stage] = [item]
    with pytest.raises(DefinitionError, match="each item is an object"):
        ApplicationDefinition.from_stored(stored)


def test_a_definition_that_is_nested_too_deeply_is_refused() -> None:
    stored = store()
    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    stored["send_ports"][0]["adapter"] = nested
    with pytest.raises(DefinitionError, match="more than 100 levels"):
        ApplicationDefinition.from_stored(stored)


class _Archive(DeclaredValue):
    folder: TextPath = Field(kw_only=False)
    copy_to: OptionalPath = Field(default=None, validate_default=True)
    delay: Seconds = Field(default=1.0, validate_default=True)


def test_a_declared_value_converts_its_arguments() -> None:
    declared = _Archive(Path("old"), copy_to=Path("older"), delay=timedelta(minutes=1))
    assert declared == _Archive(folder="old", copy_to="older", delay=60)
    assert declared.model_dump(mode="json") == {"folder": "old", "copy_to": "older", "delay": 60.0}


def test_the_signature_of_a_declared_value_has_the_types_of_its_arguments() -> None:
    parameters = signature(_Archive).parameters
    assert [(name, each.kind) for name, each in parameters.items()] == [
        ("folder", Parameter.POSITIONAL_OR_KEYWORD),
        ("copy_to", Parameter.KEYWORD_ONLY),
        ("delay", Parameter.KEYWORD_ONLY),
    ]
    assert parameters["delay"].annotation == float | timedelta


def test_wrong_arguments_of_a_declared_value_are_named_without_their_values() -> None:
    with pytest.raises(DefinitionError, match=r"_Archive cannot be created from these arguments: delay: .* number"):
        _Archive("old", delay="hunter2")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="folder: Field required"):
        _Archive()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 1 positional arguments, not 2"):
        _Archive("old", "older")  # type: ignore[call-arg]
