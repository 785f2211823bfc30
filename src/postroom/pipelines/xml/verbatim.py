"""Copies the documents of an envelope byte for byte, if their positions in it are certain.

Serializing an element takes several times as long as copying its bytes, and the bytes are what the sender wrote. A
document whose position is not certain is serialized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

from lxml import etree

from postroom.pipelines.xml.path import is_named_steps

_VALUES = re.compile(rb"\"[^\"]*\"|'[^']*'")
_DECLARATIONS = re.compile(rb"\sxmlns(?::([^\s=]+))?\s*=")


def copy_documents(
    content: bytes, split: str, elements: Sequence[etree._Element]
) -> Iterator[tuple[int, bytes] | None]:
    """Yield the offset and the bytes of each element that ``split`` selects, or None if it has to be serialized."""
    positions = _find_positions(content, split, elements)
    if positions is None:
        yield from repeat(None, len(elements))
        return
    known: dict[tuple[etree._Element | None, bytes], bool] = {}
    for element, (start, end) in zip(elements, positions, strict=True):
        key = element.getparent(), content[start : content.index(b">", start)]
        if key not in known:
            known[key] = _declares_all_prefixes(*key)
        yield (start, content[start:end]) if known[key] else None


def _find_positions(content: bytes, split: str, elements: Sequence[etree._Element]) -> list[tuple[int, int]] | None:
    """Return the start and the end of each element, or None if they are not certain. In well-formed XML without
    comments, CDATA and processing instructions, every "<" starts a tag."""
    if not is_named_steps(split) or len({(element.prefix, element.tag) for element in elements}) != 1:
        return None
    if _has_other_markup(content):
        return None
    if (elements[0].getroottree().docinfo.encoding or "UTF-8").upper() != "UTF-8":
        return None
    prefix, local = elements[0].prefix, etree.QName(elements[0]).localname
    name = re.escape(f"{prefix}:{local}" if prefix else local).encode()
    starts = [match.start() for match in re.finditer(rb"<%s(?=[\s/>])" % name, content)]
    ends = [match.end() for match in re.finditer(rb"</%s\s*>" % name, content)]
    # If as many tags as elements have this name, these are all of them, in document order.
    if not len(starts) == len(ends) == len(elements):
        return None
    positions = list(zip(starts, ends, strict=True))
    if any(start > end for start, end in positions) or any(one[1] > other[0] for one, other in pairwise(positions)):
        return None
    return positions


def _has_other_markup(content: bytes) -> bool:
    """Return True if there is a "<" that starts no tag. Searching one character first is several times faster than
    two."""
    return (b"!" in content and b"<!" in content) or (
        content.find(b"?", 2) >= 0 and content.find(b"<?", content.find(b"<") + 1) >= 0
    )


def _declares_all_prefixes(parent: etree._Element | None, head: bytes) -> bool:
    """Return True if a start tag declares all prefixes of its parent again. ``head`` is the tag up to the first ">"."""
    if parent is None:
        return True
    names = _VALUES.sub(b"", head)
    if b'"' in names or b"'" in names:
        return False  # the ">" is inside a value
    declared = {prefix.decode() or None for prefix in _DECLARATIONS.findall(names)}
    return parent.nsmap.keys() <= declared
