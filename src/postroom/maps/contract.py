"""What a map is: a small class that makes one document of one document.

    class ToInvoice(maps.Map):
        rate: float

        def transform(self, message: Message) -> bytes:
            return invoice_of(message.data, self.rate)

    app.send_port("Invoices", ..., maps=[ToInvoice(source="order", target="invoice", rate=1.1)])

Like a component of a pipeline it travels in the definition, with its settings and files (ADR 0027).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from postroom.errors import BadValue, MapFailure
from postroom.message import Body, Message
from postroom.pipelines import Json, Xml, XmlReceive
from postroom.pipelines.components import Component
from postroom.properties import Property
from postroom.system_properties import BTS

#: What reads the document that a map made: a pipeline of one document. What it promotes, the message has.
Reader = Json | Xml | XmlReceive

CORRECT_IT = "Correct the map and apply the application again, or correct the document; then resume."

#: What a map may answer. Of a message its body part counts, and what it promotes besides what was there.
Answer = Message | Body | bytes


class Map(Component):
    """Makes a message of the type ``target`` of a message of the type ``source``.

    ``read`` says what the new message promotes: the pipeline that would read the document if it came in. ``seconds``
    is how long one message may take.
    """

    source: str
    target: str
    read: Annotated[Reader, Field(discriminator="kind")] | None = None
    seconds: float = 60.0

    @property
    def promotes(self) -> tuple[Property, ...]:
        """What the map promotes by itself, in the context of the message that it answers with."""
        return ()

    @property
    def may_promote(self) -> tuple[Property, ...]:
        """All of that, and what is read, each once."""
        read = () if self.read is None else self.read.promotes
        return tuple({prop.key: prop for prop in (*self.promotes, *read)}.values())

    @property
    def content_type(self) -> str:
        """The media type of the new body, where the answer does not tell."""
        return "application/octet-stream" if self.read is None else self.read.content_type

    def problems(self) -> list[str]:
        found = [*_type_problems("source", self.source), *_type_problems("target", self.target)]
        if not self.seconds > 0:
            found.append(f"seconds is {self.seconds!r}, but must be more than 0.")
        if self.read is not None:
            found += [f"read: {text}" for text in self.read.problems()]
        match self.read:
            case Xml(split=str()) | Json(split=str()):
                found.append("read: it splits, but a map makes one message.")
            case XmlReceive(schemas=schemas, allow_unrecognized=False) if len(schemas):
                schema = schemas.find(self.target)
                if schema is None:
                    found.append(f"read: there is no schema for the target, {self.target!r}.")
                elif schema.envelope:
                    found.append(f"read: the target {self.target!r} is an envelope, but a map makes one message.")
        return found

    @abstractmethod
    def transform(self, message: Message) -> Answer:
        """The new document. What is raised suspends the message, or its interchange."""


def another_type(target: str, found: str) -> MapFailure:
    return MapFailure(
        f"The map made a document of another type than its target, {target!r}.",
        why=f"It is {found!r}.",
        hint=CORRECT_IT,
    )


def _type_problems(field: str, message_type: str) -> list[str]:
    if not message_type:
        return [f"{field} is empty; write a message type, such as 'http://orders#Order'."]
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        return [f"{field}: {error.what}"]
    return []
