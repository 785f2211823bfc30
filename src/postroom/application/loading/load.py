"""Load the application that a user's file declares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from postroom.application.application import Application
from postroom.application.checks.problems import problems_of
from postroom.application.definition import ApplicationDefinition
from postroom.application.loading.run_file import run_file
from postroom.application.loading.valid_subset import valid_subset
from postroom.errors import DefinitionRefused, Problem


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a file declares, and what is wrong with it."""

    path: Path
    problems: tuple[Problem, ...]
    definition: ApplicationDefinition | None
    """All of it if there are no problems, otherwise the part that is valid. None if there is no such part."""

    def refusal(self, further: Iterable[Problem] = ()) -> DefinitionRefused:
        """An error with every problem, those in the file itself first."""
        problems = dict.fromkeys([*self.problems, *further])
        path = str(self.path)
        return DefinitionRefused(path, sorted(problems, key=lambda one: (one.file != path, one.file, one.line)))


def load(path: Path) -> ApplicationDefinition:
    """Return the one application in the file. Raises DefinitionRefused with every problem, each with file and line.

    Runs the file in this process, one at a time: while it runs, ``sys.path`` begins with its folder.

    >>> load(Path("examples/orders/app.py")).name
    'orders'
    """
    loaded = read(path)
    if loaded.problems or loaded.definition is None:
        raise loaded.refusal()
    return loaded.definition


def read(path: Path) -> Loaded:
    """Like ``load``, but return the problems together with the part that is valid."""
    run = run_file(path)
    found = {id(value): value for value in run.names.values() if isinstance(value, Application)}
    applications = list(found.values())
    problems = list(run.problems)
    for application in applications:
        problems += problems_of(application)
    if not applications and not problems:
        problems.append(Problem('it declares no application; write app = Application("name").', str(path)))
    problems += [
        application.place.problem(
            f"there is another application, {application.name!r}; put each into a file of its own."
        )
        for application in applications[1:]
    ]
    definition = valid_subset(applications[0]) if applications else None
    return Loaded(path=path, problems=tuple(problems), definition=definition)
