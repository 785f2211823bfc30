"""Parses XSD files and finds the declarations of fields from a root element."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lxml import etree

from postroom.errors import Problem
from postroom.schemas.xsd_types import XSD

_DECLARATIONS = ("element", "attribute", "complexType", "simpleType", "group", "attributeGroup")
_REFERENCES = ("include", "import", "redefine")
_GROUPS = ("sequence", "choice", "all")
#: The maximum number of types and groups between two fields. Only a recursive definition has more.
_MAX_DEPTH = 100
_TEXT = r"'[^']*'|\"[^\"]*\""
_STEP = re.compile(
    rf"\s*/\s*(?P<attribute>@)?\s*\*\s*\[\s*local-name\(\)\s*=\s*(?P<name>{_TEXT})"
    rf"(?:\s+and\s+namespace-uri\(\)\s*=\s*(?P<namespace>{_TEXT}))?\s*\]\s*"
)


def xs(name: str) -> str:
    return f"{{{XSD}}}{name}"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The schemaLocation of an xs:include, xs:import or xs:redefine."""

    node: etree._Element
    location: str
    """As it is written."""
    name: str | None
    """The path of the file, relative to the same folder as the path of the file that refers to it. None if the location
    is not a relative path."""

    @property
    def verb(self) -> str:
        """What the file does with the other one: includes, imports or redefines."""
        return f"{etree.QName(self.node).localname}s"


@dataclass(frozen=True, kw_only=True, eq=False)
class XsdFile:
    """A parsed file. A missing namespace is the empty string."""

    path: Path
    root: etree._Element

    @property
    def namespace(self) -> str:
        return self.root.get("targetNamespace", "")

    def find_references(self) -> Iterator[Reference]:
        """Yield the references to other files. BizTalk Editor writes locations in the form of Windows:
        ``.\\Common.xsd``."""
        for node in self.root.iterchildren(*map(xs, _REFERENCES)):
            location = node.get("schemaLocation")
            if location:
                path = location.strip().replace("\\", "/")
                is_relative = ":" not in path and not path.startswith("/")
                name = posixpath.normpath((PurePosixPath(self.path).parent / path).as_posix()) if is_relative else None
                yield Reference(node=node, location=location, name=name)

    def problem(self, text: str, at: etree._Element | None = None) -> Problem:
        line = self.root.sourceline if at is None else at.sourceline
        return Problem(text, str(self.path), line if isinstance(line, int) else 0)


def read_xsd(path: Path) -> XsdFile | Problem:
    """Read a file. It may be in UTF-16, or in UTF-8 with a declaration of UTF-16, as after a conversion for git."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return Problem(f"it cannot be read: {error.strerror}.", str(path))
    return parse_xsd(content, path)


def parse_xsd(
    content: bytes, path: Path, *, url: str | None = None, resolver: etree.Resolver | None = None
) -> XsdFile | Problem:
    """Parse the content of a file. ``resolver`` loads the files that it refers to, relative to ``url``."""
    declared = re.match(rb"<\?xml[^>]*encoding\s*=\s*[\"']utf-16", content.removeprefix(b"\xef\xbb\xbf"), re.IGNORECASE)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, encoding="utf-8" if declared else None
    )
    if resolver is not None:
        parser.resolvers.add(resolver)
    try:
        root = etree.fromstring(content, parser, base_url=url or "")
    except etree.XMLSyntaxError as error:
        return Problem(f"it is not well-formed XML: {error.msg}.", str(path), error.lineno or 0)
    if root.getroottree().docinfo.internalDTD is not None:
        return Problem("it has a DOCTYPE, which is not allowed.", str(path))
    if root.tag != xs("schema"):
        return Problem("it is not an XML schema: its root is not xs:schema.", str(path), 1)
    return XsdFile(path=path, root=root)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The declaration of an element or attribute. ``repeats``: it, or an element around it, may occur more than
    once."""

    file: XsdFile
    node: etree._Element
    namespace: str
    repeats: bool = False

    @property
    def name(self) -> str:
        return self.node.get("name", "")

    @property
    def default(self) -> str | None:
        return self.node.get("default", self.node.get("fixed"))


class UnknownType(Exception):
    """No file declares the type of a field. The text is the reason."""


@dataclass(frozen=True, kw_only=True)
class XsdSet:
    """Files that may refer to each other."""

    files: tuple[XsdFile, ...]
    _global: dict[tuple[str, str, str], list[tuple[XsdFile, etree._Element]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for file in self.files:
            for kind in _DECLARATIONS:
                for node in file.root.findall(xs(kind)):
                    key = kind, file.namespace, node.get("name", "")
                    self._global.setdefault(key, []).append((file, node))

    def find_field(self, root: Declaration, steps: Sequence[PathStep]) -> Declaration | None:
        """Return the declaration that the steps lead to, or None. The first step is ``root``."""
        if not steps[0].matches(root.namespace, root.name) or steps[0].attribute:
            return None
        found: Declaration | None = root
        for step in steps[1:]:
            found = (
                next((child for child in self._read_children(found) if _matches(child, step)), None) if found else None
            )
        return found

    def describe_missing_files(self, file: XsdFile) -> str:
        """Return the end of a sentence that names the files which a file refers to and which are not in the set."""
        known = {posixpath.normpath(each.path.as_posix()) for each in self.files}
        missing = [reference for reference in file.find_references() if reference.name not in known]
        return "".join(f"; the file {each.verb} '{each.location}', which is not one of the files" for each in missing)

    def simple_type(self, declared: Declaration) -> str | None:
        """Return the built-in type that a field is derived from, or None if it has child elements. Raises UnknownType
        if no file declares its type."""
        return self._find_built_in(declared.file, declared.node, _MAX_DEPTH)

    def _find_built_in(self, file: XsdFile, node: etree._Element, depth: int) -> str | None:
        if not depth:
            return None
        named = node.get("type") or node.get("base")
        if named is not None:
            namespace, name = _split_name(node, named)
            if namespace == XSD:
                return name
            for kind in ("simpleType", "complexType"):
                other = self._find(kind, namespace, name, file)
                if other is not None:
                    return self._find_built_in(*other, depth - 1)
            raise UnknownType(f"no file declares its type '{named}'" + self.describe_missing_files(file))
        if node.tag in (xs("element"), xs("attribute")) and not _children(node, "simpleType", "complexType"):
            return "string"
        if _children(node, "list", "union"):
            return "string"
        for inner in _children(node, "simpleType", "complexType", "simpleContent", "restriction", "extension"):
            return self._find_built_in(file, inner, depth - 1)
        return None

    def _read_children(self, declared: Declaration) -> Iterator[Declaration]:
        yield from self._read_content(declared.file, declared.node, declared.repeats, _MAX_DEPTH)

    def _read_content(self, file: XsdFile, node: etree._Element, repeats: bool, depth: int) -> Iterator[Declaration]:
        """Yield the elements and attributes directly inside an element, a type or a group."""
        if not depth:
            return
        for attribute in ("type", "base"):
            named = node.get(attribute)
            if named is not None and (other := self._find("complexType", *_split_name(node, named), file)):
                yield from self._read_content(*other, repeats, depth - 1)
        for child in node.iterchildren(tag=etree.Element):
            may_repeat = repeats or child.get("maxOccurs", "1") not in ("0", "1")
            match etree.QName(child).localname:
                case "element" | "attribute" as kind:
                    yield from self._read_declaration(kind, file, child, may_repeat)
                case "group" | "attributeGroup" as kind:
                    group = self._find(kind, *_split_name(child, child.get("ref", "")), file)
                    if group is not None:
                        yield from self._read_content(*group, may_repeat, depth - 1)
                case "complexType" | "complexContent" | "simpleContent" | "extension" | "restriction":
                    yield from self._read_content(file, child, repeats, depth - 1)
                case name if name in _GROUPS:
                    yield from self._read_content(file, child, may_repeat, depth - 1)

    def _read_declaration(self, kind: str, file: XsdFile, node: etree._Element, repeats: bool) -> Iterator[Declaration]:
        reference = node.get("ref")
        if reference is None:
            form = node.get("form", file.root.get(f"{kind}FormDefault", "unqualified"))
            namespace = file.namespace if form == "qualified" else ""
            yield Declaration(file=file, node=node, namespace=namespace, repeats=repeats)
        else:
            namespace, name = _split_name(node, reference)
            other = self._find(kind, namespace, name, file)
            if other is not None:
                yield Declaration(file=other[0], node=other[1], namespace=namespace, repeats=repeats)

    def _find(self, kind: str, namespace: str, name: str, near: XsdFile) -> tuple[XsdFile, etree._Element] | None:
        """Return a global declaration. If several have the same name, prefer the one in the same file."""
        found = self._global.get((kind, namespace, name), [])
        return next((candidate for candidate in found if candidate[0] is near), found[0] if found else None)


def _matches(declared: Declaration, step: PathStep) -> bool:
    is_attribute = declared.node.tag == xs("attribute")
    return is_attribute is step.attribute and step.matches(declared.namespace, declared.name)


def _children(node: etree._Element, *names: str) -> list[etree._Element]:
    tags = {xs(name) for name in names}
    return [child for child in node if child.tag in tags]


def _split_name(node: etree._Element, name: str) -> tuple[str, str]:
    """Split a qualified name in an attribute into namespace and local name."""
    prefix, _, local = name.rpartition(":")
    return node.nsmap.get(prefix or None, ""), local


@dataclass(frozen=True, kw_only=True)
class PathStep:
    """One name of a path. A namespace of None matches every namespace."""

    name: str
    namespace: str | None
    attribute: bool

    def matches(self, namespace: str, name: str) -> bool:
        return name == self.name and self.namespace in (None, namespace)

    def __str__(self) -> str:
        return f"@{self.name}" if self.attribute else self.name


def parse_path(path: str) -> tuple[PathStep, ...] | None:
    """Return the steps of a path, or None if it is not in BizTalk's form: ``/*[local-name()='Order' and
    namespace-uri()='urn:orders']/*[local-name()='Id' and namespace-uri()='']``."""
    steps: list[PathStep] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (steps and steps[-1].attribute):
            return None
        namespace = match["namespace"]
        steps.append(
            PathStep(
                name=match["name"][1:-1],
                namespace=None if namespace is None else namespace[1:-1],
                attribute=match["attribute"] is not None,
            )
        )
        position = match.end()
    return tuple(steps) or None
