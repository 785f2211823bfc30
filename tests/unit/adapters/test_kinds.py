"""Adapters as they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.adapters.kinds import load_port_adapter
from postroom.errors import DefinitionError


@pytest.mark.parametrize(
    "stored",
    [
        {"kind": "http", "url": "https://user:sesame@example.com", "settings": {"password": "sesame"}},
        {"kind": "file", "path": ["sesame"]},
        {"kind": "carrier pigeon", "password": "sesame"},
        {"password": "sesame"},
    ],
)
def test_an_invalid_stored_definition_is_reported_without_its_values(stored: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_port_adapter(stored)
    said = " ".join(filter(None, (refused.value.what, refused.value.why, refused.value.hint)))
    assert "sesame" not in said
