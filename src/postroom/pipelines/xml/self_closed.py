"""Which elements were written self-closed. A tree does not tell ``<f/>`` from ``<f></f>``, but only the first of them
stands for its default value (CTX-14)."""

from __future__ import annotations

import re
from functools import cached_property
from xml.parsers import expat

from lxml import etree

from postroom.errors import PipelineFailure

_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")


class SelfClosed:
    """The self-closed elements of a document; it is read for them only if somebody asks."""

    def __init__(self, content: bytes, root: etree._Element) -> None:
        self._content = content
        self._root = root

    def has(self, position: int) -> bool:
        """Whether the element at this position among all elements was written self-closed."""
        return bool(self._flags[position])

    @cached_property
    def _flags(self) -> bytes:
        """One for each element: of a document of many, numbers would take much more."""
        text = self._text().removeprefix("\ufeff")
        content = text[match.end() if (match := _DECLARATION.match(text)) else 0 :].encode()
        flags = bytearray()
        open_elements: list[int] = []

        def start(name: str, attributes: object) -> None:
            open_elements.append(len(flags))
            flags.append(False)

        def end(name: str) -> None:
            position = open_elements.pop()
            # At the end of <f/> the parser stands behind it, at that of <f></f> before </f>.
            at = parser.CurrentByteIndex
            if content[at - 2 : at] == b"/>":
                flags[position] = True

        parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.Parse(content, True)
        return bytes(flags)

    def _text(self) -> str:
        encoding = self._root.getroottree().docinfo.encoding or "UTF-8"
        try:
            return self._content.decode(encoding)
        except (LookupError, UnicodeDecodeError) as error:
            # libxml2 knows encodings that Python does not, and is content with what Python is not.
            raise PipelineFailure(
                f"Which of its empty elements stand for a default cannot be told in the encoding {encoding!r}.",
                why=f"{error}.",
                hint="Send the document in UTF-8.",
            ) from None
