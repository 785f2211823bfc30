"""The orchestrations of a host, with their code from the files of their applications."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

from postroom.application.loading.orchestrations import load_orchestrations
from postroom.errors import PostroomError
from postroom.messagebox.orchestrations import DeployedOrchestration
from postroom.orchestrations.definition import Orchestration

_log = logging.getLogger(__name__)


class DeployedCode:
    """The code of deployed orchestrations, by service id. Threads read it while ``load`` replaces it."""

    def __init__(self) -> None:
        self._found: dict[uuid.UUID, tuple[DeployedOrchestration, Orchestration] | str] = {}
        self._deployed: list[DeployedOrchestration] = []

    @property
    def service_ids(self) -> list[uuid.UUID]:
        """The ids of the orchestrations that are loaded, or cannot be loaded."""
        return list(self._found)

    def find(self, service_id: uuid.UUID) -> tuple[DeployedOrchestration, Orchestration] | str:
        """Return the orchestration with its code, or the reason why there is none."""
        return self._found.get(service_id, "The orchestration was removed.")

    def load(self, deployed: list[DeployedOrchestration]) -> None:
        """Load the files of the deployed orchestrations, if anything was applied since the last time."""
        if deployed == self._deployed:
            return
        code = {file: _load(file) for file in {one.file for one in deployed}}
        found: dict[uuid.UUID, tuple[DeployedOrchestration, Orchestration] | str] = {}
        for one in deployed:
            declared = code[one.file]
            if isinstance(declared, str):
                found[one.service_id] = declared
            elif (orchestration := declared.get((one.name, one.version))) is not None:
                found[one.service_id] = (one, orchestration)
            else:
                found[one.service_id] = (
                    f"{one.file} does not declare the orchestration {one.name!r} with version {one.version} any more.\n"
                    "Restore it there, apply the application, and resume the instance."
                )
        self._found, self._deployed = found, list(deployed)


def _load(file: str) -> dict[tuple[str, int], Orchestration] | str:
    try:
        return load_orchestrations(Path(file))
    except PostroomError as error:
        _log.error("the orchestrations of %s cannot be loaded: %s", file, error)
        return f"The file {file} cannot be loaded on this machine.\n{error}\nCorrect it, and resume the instance."
