"""BizTalk's annotations in XSD files: property schemas, promoted and distinguished fields, envelopes.

b:schemaInfo schema_type="property"              a property schema; its elements are properties
b:schemaInfo is_envelope="yes"                   the roots of this schema are envelopes
b:imports/b:namespace prefix uri                 the property schemas that a schema promotes into
b:properties/b:property name xpath               a promoted field
b:properties/b:property distinguished xpath      a distinguished field
b:recordInfo body_xpath                          the path of the documents in an envelope

``load_schemas`` reads XSD files into a registry of message types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from postroom.errors import BadValue, Problem
from postroom.properties import Property, dotted_name, property_key
from postroom.schemas.registry import PromotedField, Schema, Schemas, WrittenField
from postroom.schemas.xsd import Declaration, UnknownType, XsdFile, XsdSet, parse_path, read_xsd, xs
from postroom.schemas.xsd_types import describe_unsupported_type, to_value_type
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.values import ValueType

_BIZTALK = "http://schemas.microsoft.com/BizTalk/2003"


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """The schemas that the annotations define, and their problems."""

    schemas: list[tuple[Schema, Problem]] = field(default_factory=list)
    """Each with its position, as a problem without a text."""
    problems: list[Problem] = field(default_factory=list)


def _read_annotations(files: Sequence[XsdFile]) -> Annotations:
    """Read the message types of all files that are not property schemas."""
    annotations = Annotations()
    property_files = [file for file in files if _read_schema_info(file).get("schema_type") == "property"]
    property_namespaces = {file.namespace for file in property_files}
    properties: dict[tuple[str, str], tuple[Property, str]] = {}
    known = XsdSet(files=tuple(files))
    for file in property_files:
        for node in file.root.findall(xs("element")):
            _read_property(known, file, node, properties, annotations.problems)
    for file in files:
        if file not in property_files:
            for node in file.root.findall(xs("element")):
                root = Declaration(file=file, node=node, namespace=file.namespace)
                schema = _Root(known, root, properties, property_namespaces, annotations.problems).read()
                annotations.schemas.append((schema, file.problem("", node)))
    return annotations


def _read_property(
    known: XsdSet,
    file: XsdFile,
    node: etree._Element,
    properties: dict[tuple[str, str], tuple[Property, str]],
    problems: list[Problem],
) -> None:
    name = node.get("name", "")
    try:
        form, value_type = _read_type(known, Declaration(file=file, node=node, namespace=file.namespace))
    except _UnusableType as error:
        problems.append(file.problem(f"{name!r} cannot be a property: {error}.", node))
        return
    try:
        prop = Property(name, value_type.python_type, namespace=file.namespace)
    except BadValue as error:
        problems.append(file.problem(f"{error.what} {error.hint}", node))
        return
    if (file.namespace, name) in properties:
        problems.append(file.problem(f"{prop.dotted_name} is declared twice.", node))
    properties[file.namespace, name] = (prop, form)


class _Root:
    """The annotations of one root element."""

    def __init__(
        self,
        known: XsdSet,
        root: Declaration,
        properties: dict[tuple[str, str], tuple[Property, str]],
        property_namespaces: set[str],
        problems: list[Problem],
    ) -> None:
        self._known = known
        self._root = root
        self._properties = properties
        self._property_namespaces = property_namespaces
        self._problems = problems
        self._prefixes = {
            each.get("prefix", ""): each.get("uri", "")
            for each in root.file.root.iterfind(f"{xs('annotation')}/{xs('appinfo')}/{_b('imports')}/{_b('namespace')}")
        }

    def read(self) -> Schema:
        name, namespace = self._root.name, self._root.namespace
        envelope = _read_schema_info(self._root.file).get("is_envelope", "no").lower() in ("yes", "true", "1")
        promoted: dict[str, PromotedField] = {}
        distinguished: dict[str, WrittenField] = {}
        for node in self._find_annotations("properties", "property"):
            path = (node.get("xpath") or "").strip()
            if node.get("distinguished", "false").lower() in ("true", "1"):
                if (written := self._read_distinguished(node, path)) is not None:
                    distinguished[path] = written
                if node.get("name") is None:
                    continue
            found = self._read_promoted(node, path)
            if found is None:
                continue
            if found.key in promoted and promoted[found.key].path != found.path:
                self._report(f"{found.property.dotted_name} is promoted from two fields of {name!r}.", node)
            promoted[found.key] = found
        return Schema(
            message_type=f"{namespace}#{name}" if namespace else name,
            promoted=tuple(promoted.values()),
            distinguished=tuple(distinguished.values()),
            envelope=envelope,
            body=self._read_body(envelope),
        )

    def _find_annotations(self, *names: str) -> Iterator[etree._Element]:
        where = "/".join([xs("annotation"), xs("appinfo"), *map(_b, names)])
        yield from self._root.node.iterfind(where)

    def _read_body(self, envelope: bool) -> str | None:
        found = [node for node in self._find_annotations("recordInfo") if node.get("body_xpath")]
        if not envelope:
            return None
        if not found:
            self._report(f"the envelope {self._root.name!r} has no body_xpath, which is the path of its documents.")
            return None
        path = found[0].get("body_xpath", "")
        if self._find_field(found[0], path, "body_xpath") is None:
            return None
        return path

    def _read_promoted(self, node: etree._Element, path: str) -> PromotedField | None:
        prefix, _, name = (node.get("name") or "").rpartition(":")
        uri = self._prefixes.get(prefix)
        if uri is None:
            self._report(f"{node.get('name')!r}: no b:imports declares the prefix {prefix!r}.", node)
            return None
        if property_key(uri, name) in SYSTEM_PROPERTIES:
            self._report(
                f"{node.get('name')!r}: {dotted_name(uri, name)} is set by the engine and cannot be promoted.", node
            )
            return None
        found = self._properties.get((uri, name))
        if found is None:
            missing = f"the property schema {uri!r}" + (
                f" has no property {name!r}" if uri in self._property_namespaces else " is not one of the files"
            )
            self._report(f"{node.get('name')!r}: {missing}.", node)
            return None
        prop, form = found
        declared = self._find_field(node, path, prop.dotted_name)
        if declared is None:
            return None
        try:
            field_type, value_type = _read_type(self._known, declared)
        except _UnusableType as error:
            self._report(f"{prop.dotted_name} cannot be promoted from {declared.name!r}: {error}.", node)
            return None
        if value_type is not prop.value_type and prop.value_type is not ValueType.STR:
            self._report(
                f"{prop.dotted_name} has the type {form}, but the field {declared.name!r} has the type {field_type}.",
                node,
            )
            return None
        if declared.repeats:
            self._report(
                f"{prop.dotted_name} cannot be promoted from {declared.name!r}, which may occur repeatedly.", node
            )
            return None
        text_type = field_type if prop.value_type is ValueType.DATETIME else form
        return PromotedField(
            key=prop.key, type=int(prop.value_type), path=path, form=text_type, default=declared.default
        )

    def _read_distinguished(self, node: etree._Element, path: str) -> WrittenField | None:
        declared = self._find_field(node, path, "a distinguished field")
        if declared is None:
            return None
        if "#" in path:
            self._report(
                f"the distinguished field {declared.name!r} has a '#' in its path, which is not allowed.", node
            )
            return None
        if declared.repeats:
            self._report(f"{declared.name!r} may occur repeatedly and cannot be a distinguished field.", node)
            return None
        return WrittenField(path=path, default=declared.default)

    def _find_field(self, node: etree._Element, path: str, what: str) -> Declaration | None:
        steps = parse_path(path)
        if steps is None:
            self._report(f"{what}: {path!r} is not a path in BizTalk's form (/*[local-name()='…' and …]/…).", node)
            return None
        declared = self._known.find_field(self._root, steps)
        if declared is None:
            missing = self._known.describe_missing_files(self._root.file)
            self._report(f"{what}: the schema has no field at /{'/'.join(map(str, steps))}{missing}.", node)
        return declared

    def _report(self, text: str, node: etree._Element | None = None) -> None:
        self._problems.append(self._root.file.problem(text, self._root.node if node is None else node))


class _UnusableType(Exception):
    """The values of a field cannot be values of a property. The text is the reason."""


def _read_type(known: XsdSet, declared: Declaration) -> tuple[str, ValueType]:
    """Return the built-in type of a field, and the type of a property for it."""
    try:
        form = known.simple_type(declared)
    except UnknownType as error:
        raise _UnusableType(str(error)) from None
    if form is None:
        raise _UnusableType("it has child elements")
    value_type = to_value_type(form)
    if value_type is None:
        raise _UnusableType(describe_unsupported_type(form))
    return form, value_type


def _read_schema_info(file: XsdFile) -> etree._Attrib | dict[str, str]:
    """Return the attributes of the file's b:schemaInfo."""
    found = file.root.find(f"{xs('annotation')}/{xs('appinfo')}/{_b('schemaInfo')}")
    return {} if found is None else found.attrib


def _b(name: str) -> str:
    return f"{{{_BIZTALK}}}{name}"


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
    reading = _read_annotations(files)
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
