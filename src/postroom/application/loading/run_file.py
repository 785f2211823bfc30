"""Executes a user's file as Python executes a module, and restores the import state of this process."""

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

from postroom.application.source_position import get_caller_position, is_postroom_module
from postroom.errors import BadFilter, NotFound, PostroomError, Problem
from postroom.filters.expression import collect_bad_filters
from postroom.stored_definitions import to_reason


@dataclass(frozen=True, kw_only=True)
class FileRun:
    """The names that a file has defined (none if it failed), and the problems that occurred."""

    names: Mapping[str, Any]
    problems: list[Problem]


def run_file(path: Path) -> FileRun:
    """Run the file to its end, or to its first exception, which is a problem. A wrong comparison of a property is also
    a problem, but the file continues with another filter."""
    try:
        path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Write the path of a file.") from None
    problems: list[Problem] = []
    with (
        _create_module(path) as (loader, module),
        collect_bad_filters(lambda error: problems.append(_to_problem(error))),
    ):
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:
            return FileRun(names={}, problems=[*problems, *_problems(error, path)])
        return FileRun(names=dict(vars(module)), problems=problems)


@contextmanager
def _create_module(path: Path) -> Iterator[tuple[SourceFileLoader, ModuleType]]:
    """Yield a new module for the file at ``path``.

    Inside this context ``import schemas`` and ``from .schemas import Region`` find ``schemas.py`` in the same folder.
    At the end the imported modules are removed from ``sys``.
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
        for name in [name for name in sys.modules if name not in loaded and _is_in_folder(name, package, folder)]:
            del sys.modules[name]


def _is_in_folder(name: str, package: str, folder: Path) -> bool:
    top = name.partition(".")[0]
    return top == package or (not is_postroom_module(name) and _get_parent_folder(sys.modules.get(top)) == folder)


def _get_parent_folder(module: ModuleType | None) -> Path | None:
    """Return the folder that contains a top-level module or package."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return None
    found = next(iter(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None)
    return None if found is None else Path(found).parent


def _problems(error: BaseException, path: Path) -> Iterator[Problem]:
    file, line = _find_position(error, path)
    if isinstance(error, SyntaxError):
        yield Problem(f"{type(error).__name__}: {error.msg}", error.filename or file, error.lineno or line)
    elif isinstance(error, ValidationError):
        for item in error.errors():
            text = ": ".join([error.title, *map(str, item["loc"]), to_reason(item["msg"])])
            yield Problem(f"{text}.", file, line)
    elif isinstance(error, PostroomError):
        yield Problem(error.join_sentences(), file, line)
    elif isinstance(error, SystemExit):
        yield Problem("the file ends the program here.", file, line)
    else:
        yield Problem(f"{type(error).__name__}: {error}", file, line)


def _find_position(error: BaseException, path: Path) -> tuple[str, int]:
    """Return the innermost line in the application's folder that was running."""
    folder = path.resolve().parent
    position = str(path), 0
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file == str(path) or Path(file).parent == folder:
            position = file, line
    return position


def _to_problem(error: BadFilter) -> Problem:
    return get_caller_position().problem(error.join_sentences())
