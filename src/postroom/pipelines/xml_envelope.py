"""When an XML envelope is empty, rather than something else: an empty one is consumed, so this must be sure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lxml import etree

#: The name that an absolute path begins with. A wildcard, a predicate or a leading `//` names no root.
_ROOT = re.compile(r"\s*/\s*(?:child\s*::\s*)?(?:(?P<prefix>[\w.-]+):)?(?P<name>[\w.-]+)\s*/")


def is_empty_envelope(envelope: etree._Element, split: str, namespaces: Mapping[str, str]) -> bool:
    """Whether this is the root that ``split`` begins with, and there is nothing in it."""
    return envelope.tag == _root_of(split, namespaces) and not _has_content(envelope)


def _root_of(split: str, namespaces: Mapping[str, str]) -> str | None:
    """The tag of the root by its full name; None if the path does not say which it is."""
    match = _ROOT.match(split)
    if match is None:
        return None
    prefix, name = match["prefix"], match["name"]
    return name if prefix is None else f"{{{namespaces[prefix]}}}{name}"


def _has_content(envelope: etree._Element) -> bool:
    # What stands beside comments and processing instructions is text of the envelope.
    texts = [envelope.text, *(child.tail for child in envelope)]
    return any(isinstance(child.tag, str) for child in envelope) or any(text and text.strip() for text in texts)
