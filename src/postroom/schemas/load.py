"""From a folder of XSD files to a registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import Problem
from postroom.schemas.annotations import read_annotations
from postroom.schemas.registry import Schema, Schemas
from postroom.schemas.xsd import XsdFile, read_xsd


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The registry, and what is wrong with the files that it came from."""

    schemas: Schemas
    problems: tuple[Problem, ...]


def load_schemas(paths: Iterable[Path]) -> Loaded:
    """The message types in these files, and in the files ``*.xsd`` of these folders."""
    problems: list[Problem] = []
    files: list[XsdFile] = []
    for path in dict.fromkeys(_files(paths, problems)):
        read = read_xsd(path)
        if isinstance(read, Problem):
            problems.append(read)
        else:
            files.append(read)
    reading = read_annotations(files)
    problems += reading.problems
    known: dict[str, tuple[Schema, Problem]] = {}
    for schema, place in reading.schemas:
        other = known.setdefault(schema.message_type, (schema, place))
        if other[0] is not schema:
            text = f"the message type {schema.message_type!r} is also in {other[1].file}:{other[1].line}; a pipeline "
            problems.append(Problem(text + "reads by one of them.", place.file, place.line))
    return Loaded(
        schemas=Schemas(schemas=tuple(known[key][0] for key in sorted(known))), problems=tuple(dict.fromkeys(problems))
    )


def _files(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        # BizTalk's users write both .xsd and .XSD.
        found = sorted(each for each in path.iterdir() if each.suffix.lower() == ".xsd")
        if not found:
            problems.append(Problem("there are no files *.xsd in this folder.", str(path)))
        yield from found
