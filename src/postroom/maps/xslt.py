"""XSLT 1.0 as a map: one document in, one document out, with no way to anything else.

No other files are read or written and no network is used: ``document()`` finds nothing, and what would include other
stylesheets or run scripts is refused when the map is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lxml import etree

from postroom.errors import MapFailure, PipelineFailure
from postroom.maps.contract import CORRECT_IT, another_type
from postroom.message import Body
from postroom.pipelines.documents.spool import Spool
from postroom.pipelines.xml.promotion import message_type_of
from postroom.pipelines.xml.tree import read_tree

_XSL = "http://www.w3.org/1999/XSL/Transform"
_REFUSED = {
    f"{{{_XSL}}}include": "a map stands alone; put everything into one file",
    f"{{{_XSL}}}import": "a map stands alone; put everything into one file",
    "{urn:schemas-microsoft-com:xslt}script": "scripts inside a stylesheet cannot be run; write a Python map",
}
#: How many lines of libxslt's own words are kept.
_SHOWN = 5


def stylesheet_problems(name: str, content: bytes) -> list[str]:
    """Everything that is wrong with a stylesheet, each with its line; empty if it can be run."""
    try:
        root = read_tree(content)
    except PipelineFailure as failure:
        return [f"{name}: {' '.join(text for text in (failure.what, failure.why) if text)}"]
    found = [
        f"{name}:{element.sourceline}: {etree.QName(element).localname} is refused: {_REFUSED[str(element.tag)]}."
        for element in root.iter(*_REFUSED)
    ]
    for element in root.iter("*"):
        extensions = element.get("extension-element-prefixes") or element.get(f"{{{_XSL}}}extension-element-prefixes")
        if extensions is not None:
            found.append(f"{name}:{element.sourceline}: extension elements are refused: {extensions}.")
    if found:
        return found
    try:
        Stylesheet(content)
    except etree.XSLTParseError as error:
        return list(_compile_problems(name, error.error_log)) or [f"{name}: it is not XSLT 1.0: {error}."]
    return []


def _compile_problems(name: str, log: Any) -> Iterator[str]:
    """libxslt first says where, and then what."""
    line = ""
    for entry in log:
        if entry.line:
            line = f":{entry.line}"
        else:
            yield f"{name}{line}: it is not XSLT 1.0: {entry.message.strip()}."


class Stylesheet:
    """A compiled stylesheet. For one thread: lxml would compile it anew for every call from another one."""

    def __init__(self, content: bytes) -> None:
        root = read_tree(content)
        nothing = etree.XSLTAccessControl.DENY_ALL  # type: ignore[attr-defined]
        self._transform: Any = etree.XSLT(root, access_control=nothing)
        self.method = _output_method(root)

    def run(self, body: Body, *, target: str | None) -> Body:
        """The document that it makes, in memory or, if it is large, in a file (LRG-04); MapFailure. XML is a document
        of the type ``target``; if that is None, whoever reads it next will see."""
        root = read_tree(b"".join(body.chunks()))
        try:
            result = self._transform(root)
        except etree.XSLTApplyError as error:
            why = "; ".join(_messages(self._transform.error_log)) or f"{error}"
            raise MapFailure("The map failed.", why=f"{why}.", hint=CORRECT_IT) from None
        content = bytes(result)
        if not content:
            raise MapFailure("The map made nothing.", why="What it wrote is empty.", hint=CORRECT_IT)
        if self.method == "xml" and target is not None:
            _check(content, target)
        kept = Spool()
        kept.write(content)
        return kept.body


def _check(content: bytes, target: str) -> None:
    try:
        found = message_type_of(read_tree(content))
    except PipelineFailure as failure:
        raise MapFailure(
            "The map made no XML document.", why=f"{failure.what} {failure.why}", hint=CORRECT_IT
        ) from None
    if found != target:
        raise another_type(target, found)


def _output_method(root: etree._Element) -> str:
    method = next((one.get("method") for one in root.iter(f"{{{_XSL}}}output") if one.get("method")), None)
    return method or "xml"


def _messages(log: Any) -> Iterator[str]:
    """What xsl:message and libxslt said, in order and each once."""
    said = dict.fromkeys(entry.message.strip().rstrip(".") for entry in log if entry.message.strip())
    yield from list(said)[:_SHOWN]
