"""XPaths: to the values of properties, and to the documents in an envelope."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ParamSpec, TypeVar

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines.promotions import Promotions

P = ParamSpec("P")
T = TypeVar("T")

_NAME = r"[^\W\d][\w.-]*"
#: Element names from the root down, with an optional attribute at the end.
_NAMED_STEPS = re.compile(rf"(?:/(?:{_NAME}:)?{_NAME})+(?:/@(?:{_NAME}:)?{_NAME})?")
_ANY_DOCUMENT = etree.fromstring("<document/>")


def cache_per_thread(compile: Callable[P, T]) -> Callable[P, T]:
    """Cache what a function compiles, for each thread: lxml locks an XPath while it runs, and a thread that was
    abandoned there would block the others."""

    @lru_cache(maxsize=256)
    def compile_for_thread(thread: int, *args: P.args, **kwargs: P.kwargs) -> T:
        return compile(*args, **kwargs)

    return lambda *args, **kwargs: compile_for_thread(threading.get_ident(), *args, **kwargs)


def compile_path(path: str, namespaces: Mapping[str, str]) -> etree.XPath:
    return etree.XPath(path, namespaces=dict(namespaces), smart_strings=False)


def is_named_steps(path: str) -> bool:
    """Return True if a path has only names from the root down. Such a path selects in document order."""
    return _NAMED_STEPS.fullmatch(path) is not None


@dataclass(frozen=True, kw_only=True)
class NamedSteps:
    """A path that has only names from the root down, for documents that are still in their envelope. Other paths may
    select different nodes there."""

    tag: str
    """The tag of the element at its end, in the notation of lxml."""
    above: tuple[str, ...]
    """The tags of the elements above it, up to the root of the document."""
    attribute: str | None

    def find_document(self, node: etree._Element) -> etree._Element | None:
        """Return the root of the document in which the path selects this element, or None."""
        for tag in self.above:
            parent = node.getparent()
            if parent is None or parent.tag != tag:
                return None
            node = parent
        return node


def parse_named_steps(path: str, namespaces: Mapping[str, str]) -> NamedSteps | None:
    """Return the steps of a path, or None if it has anything but names."""
    if not is_named_steps(path):
        return None
    *names, last = path[1:].split("/")
    attribute = _expand_name(last[1:], namespaces) if last.startswith("@") else None
    if attribute is None:
        names.append(last)
    tag, *above = (_expand_name(name, namespaces) for name in reversed(names))
    return NamedSteps(tag=tag, above=tuple(above), attribute=attribute)


def _expand_name(name: str, namespaces: Mapping[str, str]) -> str:
    prefix, colon, local = name.rpartition(":")
    return f"{{{namespaces[prefix]}}}{local}" if colon else name


def select_element(root: etree._Element, path: str, namespaces: Mapping[str, str]) -> etree._Element:
    """Return the single element of an envelope that a path selects. Raise PipelineFailure if there is none."""
    try:
        found = compile_path(path, namespaces)(root.getroottree())
    except (etree.XPathError, ValueError, TypeError) as error:
        raise PipelineFailure(f"The XPath {path!r} cannot be read.", why=f"{error}.") from None
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], etree._Element):
        selected = len(found) if isinstance(found, list) else 0
        raise PipelineFailure(
            f"The XPath {path!r} selects {selected} nodes of the envelope; it must select an element."
        )
    return found[0]


def problems(promotions: Promotions, namespaces: Mapping[str, str], split: str | None) -> list[str]:
    """Describe what is wrong with the namespaces and the XPaths."""
    found = [
        f"The namespace {prefix!r}: {uri!r} has an empty prefix or URI; XPath has no default namespace."
        for prefix, uri in namespaces.items()
        if not prefix or not uri
    ]
    usable = {prefix: uri for prefix, uri in namespaces.items() if prefix and uri}
    for prop, path in promotions.entries:
        if path.strip() and (problem := _find_problem(path, usable)) is not None:
            found.append(f"The XPath {path!r} of {prop.dotted_name} {problem}.")
    if split is not None and (problem := _find_problem(split, usable)) is not None:
        found.append(f"The XPath {split!r} that splits the envelope {problem}.")
    return found


def _find_problem(path: str, namespaces: Mapping[str, str]) -> str | None:
    try:
        result = compile_path(path, namespaces)(_ANY_DOCUMENT)
    except (etree.XPathError, ValueError, TypeError) as error:
        return f"cannot be read: {str(error)[:1].lower()}{str(error)[1:]}"
    return None if isinstance(result, list) else "computes a value; it must select nodes"
