"""Stored definitions that are damaged are refused when they are read, not when they are stored again."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Application, adapters, pipelines
from postroom.application import ApplicationDefinition
from postroom.errors import DefinitionError


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
