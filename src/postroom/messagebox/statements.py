"""The SQL files of this package, by name: ``statement("procedures/lock_routing")``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the text of one .sql file of the package."""
    return (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")


@cache
def list_statements(folder: str) -> tuple[str, ...]:
    """Return the names of the statements in a folder, sorted."""
    return tuple(
        sorted(
            f"{folder}/{entry.name.removesuffix('.sql')}"
            for entry in (files(__package__) / folder).iterdir()
            if entry.name.endswith(".sql")
        )
    )
