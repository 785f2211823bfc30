"""Where a property stands in an XML document, and which elements of an envelope are documents: XPaths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from postroom.pipelines.promotions import Promotions

_NAME = r"[^\W\d][\w.-]*"
#: Children by their names from the root down, and at the end perhaps an attribute.
_NAMED_STEPS = re.compile(rf"(?:/(?:{_NAME}:)?{_NAME})+(?:/@(?:{_NAME}:)?{_NAME})?")
_ANY_DOCUMENT = etree.fromstring("<document/>")


def compile_path(path: str, namespaces: Mapping[str, str]) -> etree.XPath:
    return etree.XPath(path, namespaces=dict(namespaces), smart_strings=False)


def names_steps(path: str) -> bool:
    """Whether a path only names its steps from the root down: it selects in the order of the document then."""
    return _NAMED_STEPS.fullmatch(path) is not None


@dataclass(frozen=True, kw_only=True)
class NamedSteps:
    """A path that only names its steps from the root down, for documents that still stand in their envelope. Of no
    other path is it certain that it selects the same there."""

    tag: str
    """Of the element that it ends at, as lxml writes names."""
    above: tuple[str, ...]
    """The tags of those around it, up to the root of the document."""
    attribute: str | None

    def document_of(self, node: etree._Element) -> etree._Element | None:
        """The root of the document in which the path selects this element of its tag; None if it does in none."""
        for tag in self.above:
            around = node.getparent()
            if around is None or around.tag != tag:
                return None
            node = around
        return node


def named_steps(path: str, namespaces: Mapping[str, str]) -> NamedSteps | None:
    """None for a path of any other kind."""
    if not names_steps(path):
        return None
    *names, last = path[1:].split("/")
    attribute = _full_name(last[1:], namespaces) if last.startswith("@") else None
    if attribute is None:
        names.append(last)
    tag, *above = (_full_name(name, namespaces) for name in reversed(names))
    return NamedSteps(tag=tag, above=tuple(above), attribute=attribute)


def _full_name(name: str, namespaces: Mapping[str, str]) -> str:
    prefix, colon, local = name.rpartition(":")
    return f"{{{namespaces[prefix]}}}{local}" if colon else name


def problems(promotions: Promotions, namespaces: Mapping[str, str], split: str | None) -> list[str]:
    """What is wrong with the namespaces and the XPaths."""
    found = [
        f"The namespace {prefix!r}: {uri!r} is empty on one side; XPath knows no default namespace."
        for prefix, uri in namespaces.items()
        if not prefix or not uri
    ]
    usable = {prefix: uri for prefix, uri in namespaces.items() if prefix and uri}
    for prop, path in promotions.entries:
        if path.strip() and (problem := _problem(path, usable)) is not None:
            found.append(f"The XPath {path!r} of {prop.dotted} {problem}.")
    if split is not None and (problem := _problem(split, usable)) is not None:
        found.append(f"The XPath {split!r} that splits the envelope {problem}.")
    return found


def _problem(path: str, namespaces: Mapping[str, str]) -> str | None:
    try:
        result = compile_path(path, namespaces)(_ANY_DOCUMENT)
    except (etree.XPathError, ValueError, TypeError) as error:
        return f"cannot be read: {str(error)[:1].lower()}{str(error)[1:]}"
    return None if isinstance(result, list) else "computes a value; it must select nodes"
