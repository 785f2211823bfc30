"""The files of the schema are numbered one after the other, and the procedures only create what is there now."""

from __future__ import annotations

from pathlib import PurePosixPath

from postroom.messagebox.statements import list_statements, statement


def test_every_migration_has_a_number_of_its_own() -> None:
    numbers = [int(PurePosixPath(name).name.partition("_")[0]) for name in list_statements("schema")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_procedure_drops_a_function_of_an_unreleased_version() -> None:
    names = [name for folder in ("", "/host", "/jobs") for name in list_statements(f"procedures{folder}")]
    assert "procedures/host/dequeue_messages" in names
    assert [name for name in names if "DROP FUNCTION" in statement(name)] == []
