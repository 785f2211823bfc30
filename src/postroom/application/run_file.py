"""Runs a user's file, and goes on after a mistake to find the next one.

The file is run a statement at a time. One that fails is a problem with a file and a line, and the rest is run all the
same; what fails only because an earlier statement did is not reported again.
"""

from __future__ import annotations
import __future__

import ast
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pydantic import ValidationError

from postroom.application.beside import module_beside
from postroom.application.place import here
from postroom.errors import BadFilter, NotFound, PostroomError, Problem
from postroom.filters.refusals import collecting
from postroom.properties import Property


@dataclass
class Run:
    """What came of it. ``excused`` is what the statements that failed were about: the properties and texts in them."""

    values: Mapping[str, Any]
    problems: list[Problem] = field(default_factory=list)
    excused: set[object] = field(default_factory=set)


def run_file(path: Path) -> Run:
    """Runs the file. The problems are all that is wrong with it as Python, and every comparison that cannot be made."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Give the path of a file.") from None
    try:
        tree = ast.parse(source, filename=str(path))
        statements = list(_compiled(tree, str(path)))
    except SyntaxError as error:
        return Run({}, [_syntax_problem(error, path)])
    except ValueError as error:
        return Run({}, [Problem(f"{error}.", str(path))])
    with module_beside(path) as module:
        module.__doc__ = ast.get_docstring(tree, clean=False)
        run = Run(vars(module))
        with collecting(lambda error: run.problems.append(_comparison_problem(error))):
            _run(statements, run, path)
    return run


def _compiled(tree: ast.Module, file: str) -> Iterator[tuple[ast.stmt, CodeType]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each comes again from its statement
        compile(tree, file, "exec", dont_inherit=True)  # some mistakes show only in the whole
    flags = 0
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            for alias in statement.names:
                flags |= getattr(__future__, alias.name).compiler_flag
        # A text alone would be taken for the docstring of the module that each statement is compiled as.
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield statement, compile(ast.Module([statement], []), file, "exec", flags, dont_inherit=True)


def _run(statements: list[tuple[ast.stmt, CodeType]], run: Run, path: Path) -> None:
    values = run.values
    assert isinstance(values, dict)
    missing: set[str] = set()
    for statement, code in statements:
        try:
            exec(code, values)
        except (Exception, SystemExit) as error:
            if not (isinstance(error, NameError) and (error.name in missing or "*" in missing)):
                run.problems += _problems(error, statement, path)
            missing |= {name for name in _bound(statement) if name not in values}
            run.excused |= set(_mentioned(statement, values))


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that the statement would have given a value."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _mentioned(statement: ast.stmt, values: Mapping[str, Any]) -> Iterator[object]:
    """The properties and texts in the statement; it might have promoted the ones, and have declared the others."""
    for node in ast.walk(statement):
        found: object = None
        match node:
            case ast.Constant(value=str(text)):
                found = text
            case ast.Name(id=name):
                found = values.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                module = values.get(name)
                found = vars(module).get(attribute) if isinstance(module, ModuleType) else None
        if isinstance(found, Property | str):
            yield found


def _problems(error: BaseException, statement: ast.stmt, path: Path) -> Iterator[Problem]:
    if isinstance(error, SyntaxError):
        yield _syntax_problem(error, path)
        return
    file, line = _where(error, statement, path)
    if isinstance(error, ValidationError):
        for item in error.errors():
            yield Problem(": ".join([error.title, *map(str, item["loc"]), item["msg"]]) + ".", file, line)
    elif isinstance(error, PostroomError):
        yield Problem(_in_words(error), file, line)
    elif isinstance(error, SystemExit):
        yield Problem("the file ends the program here.", file, line)
    else:
        yield Problem(f"{type(error).__name__}: {error}", file, line)


def _where(error: BaseException, statement: ast.stmt, path: Path) -> tuple[str, int]:
    """The innermost line of the user's own that was being run."""
    folder = path.resolve().parent
    place = str(path), statement.lineno
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file == str(path) or Path(file).parent == folder:
            place = file, line
    return place


def _comparison_problem(error: BadFilter) -> Problem:
    place = here()
    return Problem(_in_words(error), place.file, place.line)


def _syntax_problem(error: SyntaxError, path: Path) -> Problem:
    return Problem(f"{type(error).__name__}: {error.msg}", error.filename or str(path), error.lineno or 0)


def _in_words(error: PostroomError) -> str:
    return " ".join(text for text in (error.what, error.why, error.hint) if text)
