"""The built-in maps: XSLT 1.0 stylesheets and Python functions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator, PrivateAttr

from postroom.errors import MapFailure
from postroom.maps.contract import Map, Transformed
from postroom.message import Message, Part
from postroom.pipelines.components.stored_component import StoredComponent, component_name, load_component, refer_to

if TYPE_CHECKING:
    from postroom.maps.xslt import Stylesheet

_CONTENT_TYPES = {"xml": "application/xml", "html": "text/html", "text": "text/plain"}


class Xslt(Map):
    """A map by a stylesheet in the application's folder.

    maps.Xslt("order-to-invoice.xslt", source="http://a#Order", target="http://b#Invoice")

    The result must be of the type ``target``. With ``<xsl:output method="text"/>`` it may be anything.
    """

    stylesheet: str

    _compiled: threading.local = PrivateAttr(default_factory=threading.local)

    def __init__(self, stylesheet: str, **settings: Any) -> None:
        super().__init__(**{"stylesheet": stylesheet, **settings})

    @property
    def name(self) -> str:
        return self.stylesheet

    def file_names(self) -> Sequence[str]:
        return (self.stylesheet,)

    def file_problems(self) -> list[str]:
        # lxml is needed to read stylesheets, not to declare an application.
        from postroom.maps.xslt import stylesheet_problems

        return stylesheet_problems(self.stylesheet, self.read_file(self.stylesheet))

    def transform(self, message: Message) -> Transformed:
        stylesheet = self._get_stylesheet()
        if message.body is None:
            raise MapFailure("The message has no body.", hint="A stylesheet needs an XML document.")
        # If ``read`` parses XML, it checks the type.
        reads_xml = self.read is not None and self.read.content_type == "application/xml"
        target = None if reads_xml else self.target
        body = stylesheet.run(message.body.body, target=target)
        content_type = _CONTENT_TYPES.get(stylesheet.method, self.content_type)
        if stylesheet.method == "text" and self.read is not None:
            content_type = self.read.content_type
        return Message(parts=(Part(body=body, content_type=content_type),))

    def _get_stylesheet(self) -> Stylesheet:
        from postroom.maps.xslt import Stylesheet

        stylesheet: Stylesheet | None = getattr(self._compiled, "stylesheet", None)
        if stylesheet is None:
            stylesheet = self._compiled.stylesheet = Stylesheet(self.read_file(self.stylesheet))
        return stylesheet


class Python(Map):
    """A map by a function in a file of the application's folder. It takes a message and returns the new document.

    maps.Python(to_invoice, source="order", target="invoice", read=pipelines.Json(promote={Total: "total"}))
    """

    function: Annotated[
        Any,
        PlainValidator(lambda source: StoredComponent.read(source) if isinstance(source, Mapping) else source),
        PlainSerializer(lambda function: refer_to(function, None).to_stored(), return_type=dict[str, Any]),
    ]

    def __init__(self, function: Any, **settings: Any) -> None:
        super().__init__(**{"function": function, **settings})

    @property
    def name(self) -> str:
        return component_name(self.function)

    def problems(self) -> list[str]:
        found = super().problems()
        if not isinstance(self.function, FunctionType | StoredComponent):
            found.append(f"{self.function!r} is not a function.")
        return found

    def transform(self, message: Message) -> Transformed:
        function: Any = load_component(self.function, self._files)
        result: Transformed = function(message)
        return result
