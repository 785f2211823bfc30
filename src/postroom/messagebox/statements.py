"""The SQL files beside this module, by name: ``statement("procedures/lock_routing")``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """The text of one .sql file. Nothing of it comes from outside the package."""
    return (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")


@cache
def list_statements(folder: str) -> tuple[str, ...]:
    """The statements in a folder, in the order of their names."""
    return tuple(
        sorted(
            f"{folder}/{entry.name.removesuffix('.sql')}"
            for entry in (files(__package__) / folder).iterdir()
            if entry.name.endswith(".sql")
        )
    )
