"""The orchestrations of a host, with their code from the files of their applications.

Only the code that was applied runs. A file that was edited since is not loaded: its orchestrations wait until it is
applied or restored. Code that was loaded before the edit continues to run.
"""

from __future__ import annotations

import linecache
import logging
import shlex
import uuid
from dataclasses import replace
from pathlib import Path

from postroom.application.loading.load import load_orchestrations
from postroom.errors import PostroomError
from postroom.messagebox.orchestrations import DeployedOrchestration
from postroom.orchestrations.components import Components
from postroom.orchestrations.definition import Orchestration
from postroom.pipelines.shipping.modules import digest_code, find_imported_files
from postroom.pipelines.shipping.reached_code import find_reached_code

_log = logging.getLogger(__name__)

#: The orchestrations that a file declares, by name and version.
_Declared = dict[tuple[str, int], Orchestration]


class DeployedCode:
    """The code of deployed orchestrations, by service id. Threads read it while ``load`` replaces it."""

    def __init__(self) -> None:
        self._found: dict[uuid.UUID, tuple[DeployedOrchestration, Orchestration] | str] = {}
        self._deployed: list[DeployedOrchestration] = []
        #: What was loaded, or why it cannot be, by the file and the digest of its code.
        self._files: dict[tuple[str, str], _Declared | str] = {}
        #: Why files are not loaded, by path. Their orchestrations wait.
        self.problems: dict[str, str] = {}

    @property
    def waiting(self) -> dict[uuid.UUID, str]:
        """Why orchestrations wait, by their ids."""
        return {one.service_id: self.problems[one.file] for one in self._deployed if one.file in self.problems}

    @property
    def service_ids(self) -> list[uuid.UUID]:
        """The ids of the orchestrations that are loaded, or cannot be loaded. Those that wait are not among them."""
        return list(self._found)

    def find(self, service_id: uuid.UUID) -> tuple[DeployedOrchestration, Orchestration] | str:
        """Return the orchestration with its code, or the reason why there is none."""
        return self._found.get(service_id, "The orchestration was removed.")

    def load(self, deployed: list[DeployedOrchestration]) -> None:
        """Load the files of the deployed orchestrations, if anything was applied since the last time, or files differ
        from what was applied."""
        is_same = deployed == self._deployed
        if is_same and not self.problems:
            return
        known = {key: code for key, code in self._files.items() if is_same or not isinstance(code, str)}
        files: dict[tuple[str, str], _Declared | str] = {}
        problems: dict[str, str] = {}
        for key in sorted({(orchestration.file, orchestration.code) for orchestration in deployed}):
            try:
                files[key] = known[key] if key in known else _load_applied(*key)
            except _CodeDiffers as error:
                problems[key[0]] = str(error)
        for file, problem in problems.items():
            if self.problems.get(file) != problem:
                _log.error("%s", problem)
        self._found = {
            orchestration.service_id: _find_declared(orchestration, files[orchestration.file, orchestration.code])
            for orchestration in deployed
            if (orchestration.file, orchestration.code) in files
        }
        self._deployed, self._files, self.problems = list(deployed), files, problems


class _CodeDiffers(Exception):
    """The file is not the one that was applied."""


def _load_applied(file: str, digest: str) -> _Declared | str:
    """Load a file. Return the reason if it cannot be loaded. Raise _CodeDiffers if it is not the applied one, even if
    it was edited during the load."""
    _check_digest(file, digest)
    _keep_source(Path(file))
    declared: _Declared | str
    try:
        declared = {key: _add_digest(one, Path(file).parent) for key, one in load_orchestrations(Path(file)).items()}
    except PostroomError as error:
        _log.error("the orchestrations of %s cannot be loaded: %s", file, error)
        declared = f"The file {file} cannot be loaded on this machine.\n{error}\nCorrect it, and resume the instance."
    _check_digest(file, digest)
    return declared


def _add_digest(orchestration: Orchestration, folder: Path) -> Orchestration:
    reached = find_reached_code(orchestration.function, folder)
    return replace(orchestration, code=None if reached is None else reached.located_digest)


def _keep_source(file: Path) -> None:
    """Keep the lines of a file and of what it imports, so that tracebacks show the code that runs, not a later edit."""
    for name in find_imported_files(file.parent, file.name):
        path = file.parent / name
        text = path.read_text(encoding="utf-8", errors="replace")
        # Without a time of change the lines are not read again.
        linecache.cache[str(path)] = len(text), None, text.splitlines(keepends=True), str(path)


def _check_digest(file: str, digest: str) -> None:
    try:
        found = digest_code(Path(file))
    except OSError as error:
        raise _CodeDiffers(
            f"{file} cannot be read on this machine: {error.strerror}. Its orchestrations wait. "
            "Copy the folder of the application to this machine."
        ) from None
    if found != digest:
        raise _CodeDiffers(
            f"{file}, or a file that it imports, is not what was applied. Its orchestrations wait. "
            f"Run 'postroom apply {shlex.quote(file)}', or restore what was applied."
        )


def _find_declared(
    deployed: DeployedOrchestration, declared: _Declared | str
) -> tuple[DeployedOrchestration, Orchestration] | str:
    if isinstance(declared, str):
        return declared
    code = declared.get((deployed.name, deployed.version))
    if code is not None:
        return deployed, replace(code, deployed=Components.from_stored(deployed.definition))
    return (
        f"{deployed.file} does not declare the orchestration {deployed.name!r} with version {deployed.version} any"
        " more.\n"
        "Restore it there, apply the application, and resume the instance."
    )
