"""Finds the elements that are written self-closed. A tree does not distinguish ``<f/>`` from ``<f></f>``, but only the
first form means its default value (CTX-14)."""

from __future__ import annotations

import re
from functools import cached_property
from xml.parsers import expat

from lxml import etree

from postroom.errors import PipelineFailure

_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")


class SelfClosed:
    """The self-closed elements of a document. It is parsed for them on the first call of ``has``."""

    def __init__(self, content: bytes, root: etree._Element) -> None:
        self._content = content
        self._root = root

    def has(self, position: int) -> bool:
        """Return True if the element at this position among all elements is written self-closed."""
        return bool(self._flags[position])

    @cached_property
    def _flags(self) -> bytes:
        """One byte per element, which takes less memory than a set of positions."""
        text = self._decode_text().removeprefix("\ufeff")
        content = text[match.end() if (match := _DECLARATION.match(text)) else 0 :].encode()
        flags = bytearray()
        open_elements: list[int] = []

        def start(name: str, attributes: object) -> None:
            open_elements.append(len(flags))
            flags.append(False)

        def end(name: str) -> None:
            position = open_elements.pop()
            # The end event of <f/> is reported after the tag, that of <f></f> before </f>.
            at = parser.CurrentByteIndex
            if content[at - 2 : at] == b"/>":
                flags[position] = True

        parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.Parse(content, True)
        return bytes(flags)

    def _decode_text(self) -> str:
        encoding = self._root.getroottree().docinfo.encoding or "UTF-8"
        try:
            return self._content.decode(encoding)
        except (LookupError, UnicodeDecodeError) as error:
            # libxml2 accepts encodings and byte sequences that Python does not.
            raise PipelineFailure(
                f"The default values of empty elements cannot be determined in the encoding {encoding!r}.",
                why=f"{error}.",
                hint="Send the document in UTF-8.",
            ) from None
