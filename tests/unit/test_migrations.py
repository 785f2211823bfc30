"""Migrations are numbered one after the other: two of one number would be one too many for a MessageBox."""

from __future__ import annotations

from pathlib import PurePosixPath

from postroom.messagebox.statements import list_statements


def test_every_migration_has_a_number_of_its_own() -> None:
    numbers = [int(PurePosixPath(name).name.partition("_")[0]) for name in list_statements("schema")]
    assert numbers == list(range(1, len(numbers) + 1))
