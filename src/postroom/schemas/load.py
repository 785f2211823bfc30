"""Loads XSD files into a registry of message types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import Problem
from postroom.schemas.annotations import read_annotations
from postroom.schemas.registry import Schema, Schemas
from postroom.schemas.xsd import XsdFile, read_xsd


@dataclass(frozen=True, kw_only=True)
class LoadedSchemas:
    """The registry, and the problems of its files."""

    schemas: Schemas
    problems: tuple[Problem, ...]


def load_schemas(paths: Iterable[Path]) -> LoadedSchemas:
    """Load the message types of these files, and of the files ``*.xsd`` in these folders."""
    problems: list[Problem] = []
    files: list[XsdFile] = []
    for path in dict.fromkeys(_list_files(paths, problems)):
        read = read_xsd(path)
        if isinstance(read, Problem):
            problems.append(read)
        else:
            files.append(read)
    reading = read_annotations(files)
    problems += reading.problems
    known: dict[str, tuple[Schema, Problem]] = {}
    for schema, position in reading.schemas:
        other = known.setdefault(schema.message_type, (schema, position))
        if other[0] is not schema:
            text = f"the message type {schema.message_type!r} is also in {other[1].file}:{other[1].line}; "
            problems.append(Problem(text + "a message type can have one schema.", position.file, position.line))
    return LoadedSchemas(
        schemas=Schemas(schemas=tuple(known[key][0] for key in sorted(known))), problems=tuple(dict.fromkeys(problems))
    )


def _list_files(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        # BizTalk projects have both .xsd and .XSD.
        found = sorted(each for each in path.iterdir() if each.suffix.lower() == ".xsd")
        if not found:
            problems.append(Problem("there are no files *.xsd in this folder.", str(path)))
        yield from found
