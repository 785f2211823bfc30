"""From a user's file to the definition of its application."""

from __future__ import annotations

from pathlib import Path

from postroom.application.application import Application
from postroom.application.check import problems_of
from postroom.application.definition import ApplicationDefinition
from postroom.application.run_file import run_file
from postroom.errors import DefinitionRefused, Problem


def load(path: Path) -> ApplicationDefinition:
    """The one application in the file; DefinitionRefused with every problem, each with its file and line.

    Runs the file in this process, one at a time: while it runs, ``sys.path`` begins with its folder.

    >>> load(Path("examples/orders/app.py")).name
    'orders'
    """
    run = run_file(path)
    found = {id(value): value for value in run.values.values() if isinstance(value, Application)}
    applications = list(found.values())
    problems = list(run.problems)
    for application in applications:
        problems += problems_of(application, run.excused)
    if not applications and not problems:
        problems.append(Problem('it declares no application; write app = Application("name").', str(path)))
    problems += [
        Problem(
            f"there is another application, {application.name!r}; put each into a file of its own.",
            application.place.file,
            application.place.line,
        )
        for application in applications[1:]
    ]
    if problems:
        own_file_first = sorted(dict.fromkeys(problems), key=lambda p: (p.file != str(path), p.file, p.line))
        raise DefinitionRefused(str(path), own_file_first)
    return applications[0].definition()
