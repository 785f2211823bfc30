"""Compiles XSD files and validates documents. The files that they include and import are taken from the given files
only: nothing is read from disk or from the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lxml import etree

from postroom.errors import Problem
from postroom.schemas.xsd import XsdFile, parse_xsd, xs

#: The base address of the files while libxml2 compiles them.
_BASE = "postroom:///"
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
        if missing := list(_find_missing_files(self._contents, name)):
            self.problems += missing
            return
        try:
            schema = self._compile(name, resolver)
        except _UnreadableSchema as error:
            self.problems.append(str(error))
            return
        except etree.XMLSchemaParseError as error:
            log: Any = error.error_log
            self.problems += [f"{name}: {text}" for text in resolver.rejected]
            self.problems += dict.fromkeys(
                f"{unquote(entry.filename or name).removeprefix(_BASE)}:{entry.line}: {entry.message.strip()}"
                for entry in log
            )
            return
        for root, file in _find_roots(self._contents, name):
            _, other = self._by_root.setdefault(root, (name, file))
            if other != file:
                self.problems.append(f"{file}: the root {root!r} is also declared in {other}.")
        self._idle[name] = deque([schema])

    def _compile(self, name: str, resolver: _ShippedResolver) -> etree.XMLSchema:
        parsed = parse_xsd(self._contents[name], Path(name), url=_to_url(name), resolver=resolver)
        if isinstance(parsed, Problem):
            raise _UnreadableSchema(str(parsed))
        return etree.XMLSchema(_rewrite_locations(parsed))

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
    """Return these files and all files in ``folder`` that they refer to, relative to ``folder``.

    ``CompiledSchemas`` reports references to other files."""
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        path = (folder / name).resolve()
        is_readable = path.is_relative_to(folder.resolve()) and path.is_file()
        if is_readable or name in names:
            found[name] = None
        if is_readable:
            parsed = parse_xsd(path.read_bytes(), Path(name))
            if isinstance(parsed, XsdFile):
                pending += [reference.name for reference in parsed.find_references() if reference.name is not None]
    return list(found)


def _find_missing_files(contents: Mapping[str, bytes], name: str) -> Iterator[str]:
    """Yield a problem for each reference of a file, and of the files that it refers to, to a file that is missing."""
    visited: set[str] = set()
    pending = [name]
    while pending:
        file = pending.pop()
        parsed = parse_xsd(contents[file], Path(file))
        if file in visited or not isinstance(parsed, XsdFile):
            continue
        visited.add(file)
        for reference in parsed.find_references():
            if reference.name is None or reference.name.startswith("../"):
                reason = "which is outside the application's folder"
            elif reference.name in contents:
                pending.append(reference.name)
                continue
            else:
                reason = "and there is no such file"
            yield str(parsed.problem(f"it {reference.verb} '{reference.location}', {reason}.", reference.node))


def _to_url(name: str) -> str:
    return _BASE + quote(name)


def _rewrite_locations(parsed: XsdFile) -> etree._Element:
    """Return the root of a file with the addresses of shipped files as locations."""
    for reference in parsed.find_references():
        if reference.name is not None:
            reference.node.set("schemaLocation", _to_url(reference.name))
    return parsed.root


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
        for reference in parsed.find_references():
            if reference.name is not None:
                pending.append((reference.name, "" if reference.node.tag == xs("import") else namespace))


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
        name = unquote(system_url.removeprefix(_BASE))
        content = self._contents.get(name) if system_url.startswith(_BASE) else None
        parsed = None if content is None else parse_xsd(content, Path(name))
        if isinstance(parsed, XsdFile):
            # Serialized again, so that it is in UTF-8, even if it declares another encoding.
            return self.resolve_string(etree.tostring(_rewrite_locations(parsed)), context, base_url=system_url)
        if isinstance(parsed, Problem):
            self.rejected.append(str(parsed))
        else:
            self.rejected.append(f"it refers to {name!r}, which is not in the application's folder.")
        raise LookupError(system_url)
