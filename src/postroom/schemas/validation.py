"""Compiles XSD files and validates documents. The files that they include and import are taken from the given files
only: nothing is read from disk or from the network."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lxml import etree

from postroom.errors import Problem
from postroom.schemas.xsd import XsdFile, parse_xsd, xs

#: The base address of the files while libxml2 compiles them.
_BASE = "postroom:///"
_REFERENCES = ("include", "import", "redefine")
#: The attributes that refer to types.
_TYPES = ("type", "base", "itemType", "memberTypes")
#: The maximum number of errors in a failure.
_MAX_ERRORS = 3


class CompiledSchemas:
    """Compiled schemas, each with the files that it refers to. It is safe for threads."""

    def __init__(self, contents: Mapping[str, bytes], names: Sequence[str]) -> None:
        self._contents = contents
        #: The schemas that are not in use. There is no lock: a validation that is abandoned keeps its schema.
        self._idle: dict[str, deque[etree.XMLSchema]] = {}
        #: By root: the schema that validates it, and the file that declares it.
        self._by_root: dict[str, tuple[str, str]] = {}
        self._has_ids = any(_declares_ids(name, content) for name, content in contents.items())
        self.problems: list[str] = []
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        resolver = _ShippedResolver(self._contents)
        try:
            schema = self._compile(name, resolver)
        except _UnreadableSchema as error:
            self.problems.append(str(error))
            return
        except etree.XMLSchemaParseError as error:
            log: Any = error.error_log
            self.problems += [f"{name}: {text}" for text in resolver.rejected]
            self.problems += dict.fromkeys(
                f"{(entry.filename or name).removeprefix(_BASE)}:{entry.line}: {entry.message.strip()}" for entry in log
            )
            return
        for root, file in _find_roots(self._contents, name):
            _, other = self._by_root.setdefault(root, (name, file))
            if other != file:
                self.problems.append(f"{file}: the root {root!r} is also declared in {other}.")
        self._idle[name] = deque([schema])

    def _compile(self, name: str, resolver: _ShippedResolver) -> etree.XMLSchema:
        parsed = parse_xsd(self._contents[name], Path(name), url=_BASE + name, resolver=resolver)
        if isinstance(parsed, Problem):
            raise _UnreadableSchema(str(parsed))
        return etree.XMLSchema(parsed.root)

    def _acquire(self, name: str) -> etree.XMLSchema:
        """Return a schema for this thread alone. A thread that is abandoned does not release it."""
        try:
            return self._idle[name].pop()
        except IndexError:
            return self._compile(name, _ShippedResolver(self._contents))

    def _release(self, name: str, schema: etree.XMLSchema) -> None:
        self._idle[name].append(schema)

    def declares_root(self, root: etree._Element) -> bool:
        """Return True if one of the files declares this root."""
        return str(root.tag) in self._by_root

    def is_certainly_valid(self, root: etree._Element) -> bool:
        """Return True if a document is certainly valid. The document may still be in its envelope. After False, parse
        it alone and call ``find_errors``."""
        known = self._by_root.get(str(root.tag))
        if known is None or (self._has_ids and root.getparent() is not None):
            return False
        schema = self._acquire(known[0])
        is_valid = schema.validate(root)
        self._release(known[0], schema)
        return is_valid

    def find_errors(self, root: etree._Element) -> list[str]:
        """Return the first errors of a document with a declared root, each with its line."""
        name, _ = self._by_root[str(root.tag)]
        schema = self._acquire(name)
        is_valid = schema.validate(root)
        log: Any = () if is_valid else schema.error_log
        found = [f"line {entry.line}: {entry.message.strip()}" for entry in log]
        self._release(name, schema)
        return found[:_MAX_ERRORS] + ([f"and {len(found) - _MAX_ERRORS} more"] if len(found) > _MAX_ERRORS else [])


def find_referenced_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Return these files and all files that they refer to, relative to ``folder``, including missing ones."""
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = None
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            parsed = parse_xsd(path.read_bytes(), path)
            if isinstance(parsed, XsdFile):
                pending += [other for _, other in _find_references(parsed, name)]
    return list(found)


def _find_references(parsed: XsdFile, name: str) -> Iterator[tuple[etree._Element, str]]:
    """Yield the relative paths that a file includes and imports. Other addresses cannot be shipped."""
    for element in parsed.root.iterchildren(*map(xs, _REFERENCES)):
        location = element.get("schemaLocation")
        if location and ":" not in location and not location.startswith("/"):
            yield element, posixpath.normpath((PurePosixPath(name).parent / location).as_posix())


def _find_roots(contents: Mapping[str, bytes], name: str) -> Iterator[tuple[str, str]]:
    """Yield every global element of a file and of the files that it refers to, in the notation of lxml, and its
    file."""
    visited: set[tuple[str, str]] = set()
    pending = [(name, "")]
    while pending:
        file, outer_namespace = pending.pop()
        if (file, outer_namespace) in visited or file not in contents:
            continue
        visited.add((file, outer_namespace))
        parsed = parse_xsd(contents[file], Path(file))
        if not isinstance(parsed, XsdFile):
            continue
        # A file without a namespace has the namespace of the file that includes it.
        namespace = parsed.namespace or outer_namespace
        for element in parsed.root.iterchildren(xs("element")):
            local = element.get("name")
            yield (f"{{{namespace}}}{local}" if namespace else str(local)), file
        for element, other in _find_references(parsed, file):
            pending.append((other, "" if element.tag == xs("import") else namespace))


def _declares_ids(name: str, content: bytes) -> bool:
    """Return True if the schema uses xs:ID. libxml2 collects IDs for a whole tree, so documents in one envelope would
    share them."""
    parsed = parse_xsd(content, Path(name))
    return isinstance(parsed, XsdFile) and any(
        used.rpartition(":")[2] == "ID"
        for element in parsed.root.iter(etree.Element)
        for attribute in _TYPES
        for used in element.get(attribute, "").split()
    )


class _UnreadableSchema(Exception):
    """A file is not a schema. The text is the reason."""


class _ShippedResolver(etree.Resolver):
    """Resolves the references of libxml2 to the shipped files."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self.rejected: list[str] = []

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        name = system_url.removeprefix(_BASE)
        content = self._contents.get(name) if system_url.startswith(_BASE) else None
        parsed = None if content is None else parse_xsd(content, Path(name))
        if isinstance(parsed, XsdFile):
            # Serialized again, so that it is in UTF-8, even if it declares another encoding.
            return self.resolve_string(etree.tostring(parsed.root), context, base_url=system_url)
        if isinstance(parsed, Problem):
            self.rejected.append(str(parsed))
        else:
            self.rejected.append(f"it refers to {name!r}, which is not in the application's folder.")
        raise LookupError(system_url)
