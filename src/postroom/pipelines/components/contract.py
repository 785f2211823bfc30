"""The base classes of the components of pipelines: one for each of the four stages of a receive pipeline and of the
three stages of a send pipeline.

    class Rot13(components.Decoder):
        def decode(self, message: Message) -> bytes:
            return codecs.encode(message.data.decode(), "rot13").encode()

    def has_total(message: Message) -> None:
        if b'"total"' not in message.data:
            raise ValueError("there is no total")

    pipelines.Receive(decode=[Rot13()], disassemble=[pipelines.Json()], validate=[has_total])

The fields of a class are its settings, which are stored with the definition. An exception of a component suspends the
message, with the component's name and the reason. A function is a component of the stage in which it is listed. It gets
a message, like the method of that stage's class.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from postroom.errors import PipelineFailure
from postroom.message import Body, Message, Part
from postroom.pipelines.shipping.shipped_files import NO_FILES, ShippedFiles
from postroom.properties import Property

if TYPE_CHECKING:
    from postroom.pipelines.documents.message_batch import MessageBatch

#: The result of a decoder: the message, or only its new body. None: the interchange is consumed without a message.
DecoderResult = Message | Body | bytes | None
#: The result of a component of a send pipeline: the message, or only its new body. None: the message is consumed, and
#: nothing is sent.
SendResult = Message | Body | bytes | None


@dataclass(frozen=True, kw_only=True)
class Suspend:
    """A document that its disassembler rejects: it is suspended with the reason, and the others continue (RCV-18)."""

    body: bytes
    reason: str


class Consumed:
    """The result of a validator that consumes a message without publishing it. No documents are read after it
    (RCV-05)."""


CONSUMED = Consumed()


class Component(BaseModel):
    """One step of a pipeline. It is frozen, because one object processes many messages, one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    #: The file that defines the class. Executors load the class from it.
    source_file: ClassVar[str | None] = None

    _files: ShippedFiles = PrivateAttr(default=NO_FILES)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        # The module of a user's file is removed from sys.modules after the file has run.
        cls.source_file = getattr(sys.modules.get(cls.__module__), "__file__", None)

    @property
    def name(self) -> str:
        """The name of the component in failures."""
        return type(self).__name__

    def problems(self) -> list[str]:
        """Describe what is wrong with the settings."""
        return []

    def file_problems(self) -> list[str]:
        """Describe what is wrong with the files that it reads. Called before the application is applied."""
        return []

    def file_names(self) -> Sequence[str]:
        """The files that it reads at run time, relative to the application's folder. They are shipped with it."""
        return ()

    def files_in(self, folder: Path) -> Sequence[str]:
        """Return these files and the files that they refer to. ``folder`` is the application's folder."""
        return self.file_names()

    def read_file(self, name: str) -> bytes:
        """Return the content of one of these files."""
        return self._files.read(name)


class Decoder(Component):
    """Converts a message: decompresses, decrypts, decodes."""

    @abstractmethod
    def decode(self, message: Message) -> DecoderResult:
        """Return the decoded message, or its new body."""


class Disassembler(Component):
    """Splits an interchange into 0 to n messages."""

    @property
    def promotes(self) -> tuple[Property, ...]:
        """All properties that it may promote."""
        return ()

    @property
    def recoverable(self) -> bool:
        """True if a bad document is suspended alone."""
        return False

    def probe(self, message: Message) -> bool:
        """Return True if this disassembler accepts the message. The first one that does processes it, even if it fails
        (RCV-03, RCV-06)."""
        return True

    @abstractmethod
    def disassemble(self, message: Message) -> Iterable[Message | Suspend]:
        """Yield the documents in order. Promote BTS.MessageType to give a document its type."""


class Validator(Component):
    """Accepts or rejects messages."""

    #: True: only the rejected message is suspended. False: its whole interchange is (RCV-16).
    recoverable: bool = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not cls.validates_batches() and cls.validate_message is Validator.validate_message:
            raise TypeError(f"{cls.__name__} validates nothing; implement validate_message or validate_batch")

    @classmethod
    def validates_batches(cls) -> bool:
        """Return True if it validates whole batches instead of single messages."""
        return cls.validate_batch is not Validator.validate_batch

    def validate_message(self, message: Message) -> Consumed | None:
        """Raise an exception to reject the message."""
        return None

    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str | Exception]:
        """Return the rejected rows of an Arrow batch with the reasons. Implement this method instead of
        ``validate_message`` if checking columns is faster. It cannot return CONSUMED."""
        return {}


class PartyResolver(Component):
    """Resolves the party that a message is from: BTS.OriginatorPID. It is trusted only in trusted hosts (SEC-12)."""

    @abstractmethod
    def resolve(self, message: Message) -> str | None:
        """Return the party, or None to ask the next resolver. If all return None, the party is Guest."""


class PreAssembler(Component):
    """Prepares a message for the assembler of a send pipeline."""

    @abstractmethod
    def prepare(self, message: Message) -> SendResult:
        """Return the prepared message, or its new body."""


class Assembler(Component):
    """Writes a message in the format of its receiver."""

    @property
    def demotes(self) -> tuple[Property, ...]:
        """The context properties that it copies into the document."""
        return ()

    @abstractmethod
    def assemble(self, message: Message) -> SendResult:
        """Return the assembled message, or its new body."""


class Encoder(Component):
    """Converts an assembled message: compresses, encrypts, encodes."""

    @abstractmethod
    def encode(self, message: Message) -> SendResult:
        """Return the encoded message, or its new body."""


def get_body(message: Message) -> Part:
    """Return the body part of a message that is sent. Raise PipelineFailure if it has none."""
    if message.body is None:
        raise PipelineFailure(
            "The message has no body.",
            hint="Send messages without a body through a port without this component. Terminate the instance.",
        )
    return message.body


def replace_body(message: Message, body: Body, *, content_type: str, charset: str | None = None) -> Message:
    """Return the message with this content in its body part, and with the same ids."""
    old = get_body(message)
    new = replace(old, body=body, content_type=content_type, charset=charset)
    return replace(message, parts=tuple(new if part is old else part for part in message.parts))
