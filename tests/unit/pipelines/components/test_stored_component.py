"""Stored components refer to the public package, which does not change."""

from __future__ import annotations

import pytest

from postroom import maps
from postroom.pipelines import components
from postroom.pipelines.components import Component
from postroom.pipelines.components.stored_component import StoredComponent, refer_to
from postroom.pipelines.shipping.shipped_files import NO_FILES


@pytest.mark.parametrize(
    ("component", "package"),
    [
        (components.Gzip(), "postroom.pipelines.components"),
        (components.Charset("latin-1"), "postroom.pipelines.components"),
        (components.Xsd("order.xsd"), "postroom.pipelines.components"),
        (maps.Xslt("order.xslt", source="order", target="invoice"), "postroom.maps"),
    ],
)
def test_a_component_of_postroom_is_stored_by_the_package_that_exports_it(component: Component, package: str) -> None:
    """Modules inside a package may move, and stored definitions stay readable."""
    stored = refer_to(component, None)
    assert stored.to_stored()["builtin"] == package
    loaded = StoredComponent.read(stored.to_stored()).load(NO_FILES)
    assert isinstance(loaded, type(component))
    assert loaded.model_dump() == component.model_dump()


def test_a_component_that_was_stored_by_its_module_is_loaded() -> None:
    stored = StoredComponent(target="builtin", where=components.Gzip.__module__, name="Gzip", settings={})
    assert stored.load(NO_FILES) == components.Gzip()
