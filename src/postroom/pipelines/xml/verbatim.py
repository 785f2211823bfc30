"""The documents of an envelope as they stand in it, where its bytes tell beyond doubt which these are.

Writing an element takes several times as long as copying its bytes, and the bytes are what the sender wrote. Whatever
is not beyond doubt is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

from lxml import etree

from postroom.pipelines.xml.path import names_steps

_VALUES = re.compile(rb"\"[^\"]*\"|'[^']*'")
_DECLARATIONS = re.compile(rb"\sxmlns(?::([^\s=]+))?\s*=")


def verbatim(content: bytes, split: str, elements: Sequence[etree._Element]) -> Iterator[tuple[int, bytes] | None]:
    """Where each element that ``split`` selects in the envelope begins, and its bytes; None for one that has to be
    written."""
    places = _places(content, split, elements)
    if places is None:
        yield from repeat(None, len(elements))
        return
    known: dict[tuple[etree._Element | None, bytes], bool] = {}
    for element, (start, end) in zip(elements, places, strict=True):
        key = element.getparent(), content[start : content.index(b">", start)]
        if key not in known:
            known[key] = _stands_alone(*key)
        yield (start, content[start:end]) if known[key] else None


def _places(content: bytes, split: str, elements: Sequence[etree._Element]) -> list[tuple[int, int]] | None:
    """Start and end of each element, None if that is in doubt. In well-formed XML without comments, CDATA and
    processing instructions a "<" begins a tag wherever it stands."""
    if not names_steps(split) or len({(element.prefix, element.tag) for element in elements}) != 1:
        return None
    if _has_other_markup(content):
        return None
    if (elements[0].getroottree().docinfo.encoding or "UTF-8").upper() != "UTF-8":
        return None
    prefix, local = elements[0].prefix, etree.QName(elements[0]).localname
    name = re.escape(f"{prefix}:{local}" if prefix else local).encode()
    starts = [match.start() for match in re.finditer(rb"<%s(?=[\s/>])" % name, content)]
    ends = [match.end() for match in re.finditer(rb"</%s\s*>" % name, content)]
    # The elements are among those of their name. If there are as many, they are all, in the order of the document.
    if not len(starts) == len(ends) == len(elements):
        return None
    places = list(zip(starts, ends, strict=True))
    if any(start > end for start, end in places) or any(one[1] > other[0] for one, other in pairwise(places)):
        return None
    return places


def _has_other_markup(content: bytes) -> bool:
    """Whether something begins with "<" that is no tag. One character is found several times faster than two."""
    return (b"!" in content and b"<!" in content) or (
        content.find(b"?", 2) >= 0 and content.find(b"<?", content.find(b"<") + 1) >= 0
    )


def _stands_alone(parent: etree._Element | None, head: bytes) -> bool:
    """Whether a start tag declares anew whatever prefixes are declared around it; ``head`` is it up to a ">"."""
    if parent is None:
        return True
    names = _VALUES.sub(b"", head)
    if b'"' in names or b"'" in names:
        return False  # the ">" stands in a value
    declared = {prefix.decode() or None for prefix in _DECLARATIONS.findall(names)}
    return parent.nsmap.keys() <= declared
