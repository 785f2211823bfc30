"""Loads the functions of orchestrations from the file of their application."""

from __future__ import annotations

from pathlib import Path

from postroom.application.application import Application
from postroom.application.loading.run_file import run_file
from postroom.errors import DefinitionRefused
from postroom.orchestrations.definition import Orchestration


def load_orchestrations(path: Path) -> dict[tuple[str, int], Orchestration]:
    """Return the orchestrations that a file declares, by name and version. Raise NotFound if the file cannot be read,
    and DefinitionRefused if it fails.

    The file runs in this process, so load one file at a time."""
    run = run_file(path)
    if run.problems:
        raise DefinitionRefused(str(path), run.problems)
    applications = {id(value): value for value in run.names.values() if isinstance(value, Application)}
    return {
        (declared.orchestration.name, declared.orchestration.version): declared.orchestration
        for application in applications.values()
        for declared in application.orchestrations
    }
