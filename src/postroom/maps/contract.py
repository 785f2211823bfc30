"""The base class of maps. A map transforms one document into one document.

    class ToInvoice(maps.Map):
        rate: float

        def transform(self, message: Message) -> bytes:
            return invoice_of(message.data, self.rate)

    app.send_port("Invoices", ..., maps=[ToInvoice(source="order", target="invoice", rate=1.1)])

Like a component of a pipeline it is stored in the definition, with its settings and files (ADR 0027).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from postroom.errors import BadValue, MapFailure
from postroom.message import Body, Message
from postroom.pipelines import Json, Xml, XmlReceive
from postroom.pipelines.components import Component
from postroom.pipelines.promotions import find_engine_properties
from postroom.properties import Property
from postroom.system_properties import BTS

#: A pipeline that reads the new document. The message gets the properties that it promotes.
Reader = Json | Xml | XmlReceive

CORRECT_MAP_HINT = "Correct the map and apply the application again, or correct the document; then resume."

#: The result of a map. Of a message only its body part and its additional promoted properties are used.
Transformed = Message | Body | bytes


class Map(Component):
    """Transforms a message of the type ``source`` into a message of the type ``target``.

    ``read`` is a pipeline that reads the new document to promote its properties. ``seconds`` is the time limit for one
    message.
    """

    source: str
    target: str
    read: Annotated[Reader, Field(discriminator="kind")] | None = None
    seconds: float = 60.0

    @property
    def promotes(self) -> tuple[Property, ...]:
        """The properties that the map itself promotes, in the context of the message that it returns."""
        return ()

    @property
    def may_promote(self) -> tuple[Property, ...]:
        """The properties that the map or ``read`` may promote, each once."""
        read = () if self.read is None else self.read.promotes
        return tuple({prop.key: prop for prop in (*self.promotes, *read)}.values())

    @property
    def content_type(self) -> str:
        """The media type of the new body, unless the map returns a message."""
        return "application/octet-stream" if self.read is None else self.read.content_type

    def problems(self) -> list[str]:
        found = [*_type_problems("source", self.source), *_type_problems("target", self.target)]
        if not self.seconds > 0:
            found.append(f"seconds is {self.seconds!r}, but must be more than 0.")
        found += find_engine_properties(self.promotes)
        if self.read is not None:
            texts = [*self.read.problems(), *self.read.target_problems(self.target)]
            found += [f"read: {text}" for text in texts]
        return found

    @abstractmethod
    def transform(self, message: Message) -> Transformed:
        """Return the new document. An exception suspends the message, or its interchange."""


def wrong_type_failure(target: str, found: str) -> MapFailure:
    return MapFailure(
        f"The new document has the type {found!r}.", why=f"The target of the map is {target!r}.", hint=CORRECT_MAP_HINT
    )


def _type_problems(field: str, message_type: str) -> list[str]:
    if not message_type:
        return [f"{field} is empty; write a message type, such as 'http://orders#Order'."]
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        return [f"{field}: {error.what}"]
    return []
