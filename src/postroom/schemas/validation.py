"""XSD files compiled to validate by. What they include and import is found among the files that are given, and nowhere
else: nothing is read from a disk or a network."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lxml import etree

from postroom.errors import Problem
from postroom.schemas.xsd import XsdFile, parse_xsd, xs

#: Where the files seem to be while libxml2 compiles them.
_HERE = "postroom:///"
_REFERENCES = ("include", "import", "redefine")
#: Where a schema refers to types.
_TYPES = ("type", "base", "itemType", "memberTypes")
#: How many of the problems of a document are told.
_SHOWN = 3


class XsdSet:
    """Some files, each with all that it refers to. One object may serve many threads."""

    def __init__(self, contents: Mapping[str, bytes], names: Sequence[str]) -> None:
        self._contents = contents
        #: Those that nobody uses right now. No lock: a document that is given up keeps the schema that judges it.
        self._idle: dict[str, deque[etree.XMLSchema]] = {}
        #: By whose schema a root is validated, and which file declares it.
        self._by_root: dict[str, tuple[str, str]] = {}
        self._has_ids = any(_declares_ids(name, content) for name, content in contents.items())
        self.problems: list[str] = []
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        resolver = _Given(self._contents)
        try:
            schema = self._compile(name, resolver)
        except _Unreadable as error:
            self.problems.append(str(error))
            return
        except etree.XMLSchemaParseError as error:
            log: Any = error.error_log
            self.problems += [f"{name}: {text}" for text in resolver.refused]
            self.problems += dict.fromkeys(
                f"{(entry.filename or name).removeprefix(_HERE)}:{entry.line}: {entry.message.strip()}" for entry in log
            )
            return
        for root, file in _roots(self._contents, name):
            _, other = self._by_root.setdefault(root, (name, file))
            if other != file:
                self.problems.append(f"{file}: the root {root!r} is declared in {other}, too.")
        self._idle[name] = deque([schema])

    def _compile(self, name: str, resolver: _Given) -> etree.XMLSchema:
        parsed = parse_xsd(self._contents[name], Path(name), url=_HERE + name, resolver=resolver)
        if isinstance(parsed, Problem):
            raise _Unreadable(str(parsed))
        return etree.XMLSchema(parsed.root)

    def _take(self, name: str) -> etree.XMLSchema:
        """One for this thread alone, until it gives it back. One that was interrupted does not."""
        try:
            return self._idle[name].pop()
        except IndexError:
            return self._compile(name, _Given(self._contents))

    def _give_back(self, name: str, schema: etree.XMLSchema) -> None:
        self._idle[name].append(schema)

    def knows(self, root: etree._Element) -> bool:
        """Whether one of the files declares this root."""
        return str(root.tag) in self._by_root

    def passes(self, root: etree._Element) -> bool:
        """Whether a document is valid for certain. It may still stand in its envelope: False then also says that only
        ``check`` can tell, once it is read alone."""
        known = self._by_root.get(str(root.tag))
        if known is None or (self._has_ids and root.getparent() is not None):
            return False
        schema = self._take(known[0])
        is_valid = schema.validate(root)
        self._give_back(known[0], schema)
        return is_valid

    def check(self, root: etree._Element) -> list[str]:
        """The first few things that are wrong with a document that is known, each with its line."""
        name, _ = self._by_root[str(root.tag)]
        schema = self._take(name)
        is_valid = schema.validate(root)
        log: Any = () if is_valid else schema.error_log
        found = [f"line {entry.line}: {entry.message.strip()}" for entry in log]
        self._give_back(name, schema)
        return found[:_SHOWN] + ([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else [])


def referred_files(folder: Path, names: Sequence[str]) -> list[str]:
    """These files and all that they refer to, relative to ``folder``; what is not there is among them all the same."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            parsed = parse_xsd(path.read_bytes(), path)
            if isinstance(parsed, XsdFile):
                waiting += [other for _, other in _references(parsed, name)]
    return list(found)


def _references(parsed: XsdFile, name: str) -> Iterator[tuple[etree._Element, str]]:
    """What a file includes and imports from beside it; other addresses are nothing that could come along."""
    for element in parsed.root.iterchildren(*map(xs, _REFERENCES)):
        location = element.get("schemaLocation")
        if location and ":" not in location and not location.startswith("/"):
            yield element, posixpath.normpath((PurePosixPath(name).parent / location).as_posix())


def _roots(contents: Mapping[str, bytes], name: str) -> Iterator[tuple[str, str]]:
    """Every global element of a file and of what it refers to, as lxml writes names, and the file that has it."""
    seen: set[tuple[str, str]] = set()
    waiting = [(name, "")]
    while waiting:
        file, around = waiting.pop()
        if (file, around) in seen or file not in contents:
            continue
        seen.add((file, around))
        parsed = parse_xsd(contents[file], Path(file))
        if not isinstance(parsed, XsdFile):
            continue
        # A file without a namespace has that of the file that includes it.
        namespace = parsed.namespace or around
        for element in parsed.root.iterchildren(xs("element")):
            local = element.get("name")
            yield (f"{{{namespace}}}{local}" if namespace else str(local)), file
        for element, other in _references(parsed, file):
            waiting.append((other, "" if element.tag == xs("import") else namespace))


def _declares_ids(name: str, content: bytes) -> bool:
    """Whether something here is an xs:ID. libxml2 keeps these for a whole tree, so that documents of one envelope would
    not each have their own."""
    parsed = parse_xsd(content, Path(name))
    return isinstance(parsed, XsdFile) and any(
        used.rpartition(":")[2] == "ID"
        for element in parsed.root.iter(etree.Element)
        for attribute in _TYPES
        for used in element.get(attribute, "").split()
    )


class _Unreadable(Exception):
    """A file that is no schema; says why."""


class _Given(etree.Resolver):
    """Gives libxml2 the files that it asks for, if they are among those given."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self.refused: list[str] = []

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        name = system_url.removeprefix(_HERE)
        content = self._contents.get(name) if system_url.startswith(_HERE) else None
        parsed = None if content is None else parse_xsd(content, Path(name))
        if isinstance(parsed, XsdFile):
            # Written anew: it is in UTF-8 then, whatever it says.
            return self.resolve_string(etree.tostring(parsed.root), context, base_url=system_url)
        if isinstance(parsed, Problem):
            self.refused.append(str(parsed))
        else:
            self.refused.append(f"it refers to {name!r}, which is not in the application's folder.")
        raise LookupError(system_url)
