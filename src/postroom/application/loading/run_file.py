"""Execute a user's file as Python executes a module, and leave no trace in this process."""

from __future__ import annotations

import importlib.util
import sys
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from postroom.application.place import here, is_ours
from postroom.errors import BadFilter, NotFound, PostroomError, Problem
from postroom.filters.bad_filters import collect_bad_filters


@dataclass(frozen=True, kw_only=True)
class FileRun:
    """The names that a file has defined, none if it failed, and what went wrong while it ran."""

    names: Mapping[str, Any]
    problems: list[Problem]


def run_file(path: Path) -> FileRun:
    """Run the file to its end, or to its first exception. That is a problem, and so is each comparison of a property
    with a value that it cannot have: a filter takes its place, so that the file runs on."""
    try:
        path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Give the path of a file.") from None
    problems: list[Problem] = []
    with (
        _module_beside(path) as (loader, module),
        collect_bad_filters(lambda error: problems.append(_comparison(error))),
    ):
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:
            return FileRun(names={}, problems=[*problems, *_problems(error, path)])
        return FileRun(names=dict(vars(module)), problems=problems)


@contextmanager
def _module_beside(path: Path) -> Iterator[tuple[SourceFileLoader, ModuleType]]:
    """Yield a new module for the file at ``path``.

    Until the end, ``import schemas`` and ``from .schemas import Region`` find ``schemas.py`` in the same folder;
    afterwards nothing of it is left in ``sys``.
    """
    folder = path.resolve().parent
    package = f"_application_{uuid.uuid4().hex}"
    parent = ModuleSpec(package, None, is_package=True)
    parent.submodule_search_locations = [str(folder)]
    name = f"{package}.{path.stem.replace('.', '_')}"
    loader = SourceFileLoader(name, str(path))
    own = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert own is not None
    search_path, loaded, without_bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    try:
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        sys.modules[package] = importlib.util.module_from_spec(parent)
        module = sys.modules[name] = importlib.util.module_from_spec(own)
        yield loader, module
    finally:
        sys.path[:] = search_path
        sys.dont_write_bytecode = without_bytecode
        sys.path_importer_cache.pop(str(folder), None)
        for name in [name for name in sys.modules if name not in loaded and _is_beside(name, package, folder)]:
            del sys.modules[name]


def _is_beside(name: str, package: str, folder: Path) -> bool:
    top = name.partition(".")[0]
    return top == package or (not is_ours(name) and _container(sys.modules.get(top)) == folder)


def _container(module: ModuleType | None) -> Path | None:
    """The folder in which a top-level module or package was found."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return None
    found = next(iter(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None)
    return None if found is None else Path(found).parent


def _problems(error: BaseException, path: Path) -> Iterator[Problem]:
    file, line = _where(error, path)
    if isinstance(error, SyntaxError):
        yield Problem(f"{type(error).__name__}: {error.msg}", error.filename or file, error.lineno or line)
    elif isinstance(error, ValidationError):
        for item in error.errors():
            yield Problem(": ".join([error.title, *map(str, item["loc"]), item["msg"]]) + ".", file, line)
    elif isinstance(error, PostroomError):
        yield Problem(_in_words(error), file, line)
    elif isinstance(error, SystemExit):
        yield Problem("the file ends the program here.", file, line)
    else:
        yield Problem(f"{type(error).__name__}: {error}", file, line)


def _where(error: BaseException, path: Path) -> tuple[str, int]:
    """The innermost line of the user's own that was being run."""
    folder = path.resolve().parent
    place = str(path), 0
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file == str(path) or Path(file).parent == folder:
            place = file, line
    return place


def _comparison(error: BadFilter) -> Problem:
    return here().problem(_in_words(error))


def _in_words(error: PostroomError) -> str:
    return " ".join(text for text in (error.what, error.why, error.hint) if text)
