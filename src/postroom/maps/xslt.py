"""Runs XSLT 1.0 stylesheets without access to files or the network.

``document()`` finds nothing. A stylesheet that includes others or has scripts is rejected when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lxml import etree

from postroom.errors import MapFailure, PipelineFailure
from postroom.maps.contract import CORRECT_MAP_HINT, wrong_type_failure
from postroom.message import Body
from postroom.pipelines.xml.promotion import get_message_type
from postroom.pipelines.xml.tree import read_tree
from postroom.temporary_bodies import Spool

_XSL = "http://www.w3.org/1999/XSL/Transform"
_FORBIDDEN = {
    f"{{{_XSL}}}include": "a map is one file; put everything into it",
    f"{{{_XSL}}}import": "a map is one file; put everything into it",
    "{urn:schemas-microsoft-com:xslt}script": "scripts in a stylesheet are not supported; write a Python map",
}
#: The maximum number of messages of libxslt in a failure.
_MAX_MESSAGES = 5


def stylesheet_problems(name: str, content: bytes) -> list[str]:
    """Describe everything that is wrong with a stylesheet, with lines. The list is empty if it can be run."""
    try:
        root = read_tree(content)
    except PipelineFailure as failure:
        return [f"{name}: {failure.join_sentences(with_hint=False)}"]
    found = [
        f"{name}:{element.sourceline}: {etree.QName(element).localname} is not allowed: {_FORBIDDEN[str(element.tag)]}."
        for element in root.iter(*_FORBIDDEN)
    ]
    for element in root.iter("*"):
        extensions = element.get("extension-element-prefixes") or element.get(f"{{{_XSL}}}extension-element-prefixes")
        if extensions is not None:
            found.append(f"{name}:{element.sourceline}: extension elements are not allowed: {extensions}.")
    if found:
        return found
    try:
        Stylesheet(content)
    except etree.XSLTParseError as error:
        return list(_compile_problems(name, error.error_log)) or [f"{name}: it is not XSLT 1.0: {error}."]
    return []


def _compile_problems(name: str, log: Any) -> Iterator[str]:
    """Yield the problems. libxslt reports the line first and then the message."""
    line = ""
    for entry in log:
        if entry.line:
            line = f":{entry.line}"
        else:
            yield f"{name}{line}: it is not XSLT 1.0: {entry.message.strip()}."


class Stylesheet:
    """A compiled stylesheet. Use it in one thread: lxml compiles it again for every call from another thread."""

    def __init__(self, content: bytes) -> None:
        root = read_tree(content)
        no_access = etree.XSLTAccessControl.DENY_ALL  # type: ignore[attr-defined]
        self._transform: Any = etree.XSLT(root, access_control=no_access)
        outputs = (output.get("method") for output in root.iter(f"{{{_XSL}}}output"))
        self.method = next(filter(None, outputs), "xml")

    def run(self, body: Body, *, target: str | None) -> Body:
        """Return the new document, in memory or, if it is large, in a file (LRG-04). Raises MapFailure. The type of XML
        is checked if ``target`` is not None."""
        root = read_tree(b"".join(body.chunks()))
        try:
            result = self._transform(root)
        except etree.XSLTApplyError as error:
            why = "; ".join(_messages(self._transform.error_log)) or f"{error}"
            raise MapFailure("The map failed.", why=f"{why}.", hint=CORRECT_MAP_HINT) from None
        content = bytes(result)
        if not content:
            raise MapFailure("The result of the map is empty.", why="It has no content.", hint=CORRECT_MAP_HINT)
        if self.method == "xml" and target is not None:
            _check_type(content, target)
        spool = Spool()
        spool.write(content)
        return spool.body


def _check_type(content: bytes, target: str) -> None:
    try:
        found = get_message_type(read_tree(content))
    except PipelineFailure as failure:
        raise MapFailure(
            "The result of the map is not an XML document.", why=f"{failure.what} {failure.why}", hint=CORRECT_MAP_HINT
        ) from None
    if found != target:
        raise wrong_type_failure(target, found)


def _messages(log: Any) -> Iterator[str]:
    """Yield the messages of xsl:message and libxslt in order, each once."""
    messages = dict.fromkeys(entry.message.strip().rstrip(".") for entry in log if entry.message.strip())
    yield from list(messages)[:_MAX_MESSAGES]
