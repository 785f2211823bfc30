"""Loads the application that a user's file declares, or the functions of its orchestrations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from postroom.application.application import Application
from postroom.application.checks.problems import find_declaration_problems
from postroom.application.declarations import Declarations, Declared
from postroom.application.definition import ApplicationDefinition
from postroom.application.loading.run_file import FileRun, run_file
from postroom.application.loading.valid_subset import find_valid_subset
from postroom.errors import DefinitionRefused, Problem
from postroom.orchestrations.definition import Orchestration


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The application of a file, and its problems."""

    path: Path
    problems: tuple[Problem, ...]
    definition: ApplicationDefinition | None
    """The whole application if there are no problems, otherwise its valid subset. None if there is no such subset."""
    other_names: frozenset[str] = frozenset()
    """The names of ports and locations that are declared with problems, and their old names."""

    def build_error(self, further: Iterable[Problem] = ()) -> DefinitionRefused:
        """Return an error with every problem, problems in the file itself first."""
        problems = dict.fromkeys([*self.problems, *further])
        path = str(self.path)
        return DefinitionRefused(
            path, sorted(problems, key=lambda problem: (problem.file != path, problem.file, problem.line))
        )


def load(path: Path) -> ApplicationDefinition:
    """Return the one application in the file. Raise DefinitionRefused with every problem, each with file and line.

    The file runs in this process. While it runs, ``sys.path`` starts with its folder, so load one file at a time.

    >>> load(Path("examples/orders/app.py")).name
    'orders'
    """
    loaded = read(path)
    if loaded.problems or loaded.definition is None:
        raise loaded.build_error()
    return loaded.definition


def load_orchestrations(path: Path) -> dict[tuple[str, int], Orchestration]:
    """Return the orchestrations that a file declares, by name and version. Raise NotFound if the file cannot be read,
    and DefinitionRefused if it fails.

    The file runs in this process, so load one file at a time."""
    run = run_file(path)
    if run.problems:
        raise DefinitionRefused(str(path), run.problems)
    return {
        (declared.orchestration.name, declared.orchestration.version): declared.orchestration
        for application in _find_applications(run)
        for declared in application.orchestrations
    }


def read(path: Path) -> Loaded:
    """Like ``load``, but return the problems together with the valid subset."""
    run = run_file(path)
    applications = _find_applications(run)
    problems = list(run.problems)
    for application in applications:
        problems += find_declaration_problems(application)
    if not applications and not problems:
        problems.append(Problem('it declares no application; write app = Application("name").', str(path)))
    problems += [
        application.position.problem(
            f"there is another application, {application.name!r}; put each application into its own file."
        )
        for application in applications[1:]
    ]
    definition = find_valid_subset(applications[0]) if applications else None
    other_names = _list_other_names(applications[0], definition) if definition is not None else frozenset()
    return Loaded(path=path, problems=tuple(problems), definition=definition, other_names=other_names)


def _list_other_names(application: Declarations, subset: ApplicationDefinition) -> frozenset[str]:
    locations = [location for port in subset.receive_ports for location in port.locations]
    valid_names = {
        *(port.name for port in subset.send_ports),
        *(port.name for port in subset.receive_ports),
        *(location.name for location in locations),
        *(one.name for one in subset.orchestrations),
    }
    declared: list[Declared] = [
        *application.send_ports,
        *application.receive_ports,
        *application.orchestrations,
        *(location for port in application.receive_ports for location in port.locations),
    ]
    others = [each for each in declared if each.name not in valid_names]
    return frozenset(name for each in others for name in (each.name, each.renamed_from) if isinstance(name, str))


def _find_applications(run: FileRun) -> list[Application]:
    """Return the applications of a file. Several names may stand for the same one."""
    found = {id(value): value for value in run.names.values() if isinstance(value, Application)}
    return list(found.values())
