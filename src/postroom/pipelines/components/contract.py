"""What a component of a receive pipeline is: a small class or function for one of the four stages.

    class Rot13(components.Decoder):
        def decode(self, message: Message) -> bytes:
            return codecs.encode(message.data.decode(), "rot13").encode()

    def has_total(message: Message) -> None:
        if b'"total"' not in message.data:
            raise ValueError("there is no total")

    pipelines.Receive(decode=[Rot13()], disassemble=[pipelines.Json()], validate=[has_total])

The fields of a class are its settings, kept with the definition. What a component raises suspends the message, with the
component's name before the reason. A function is a component of the stage that it is listed in; it gets a message, as
the one method of that stage's class does.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from postroom.message import Body, Message
from postroom.pipelines.shipping.files import NO_FILES, ShippedFiles
from postroom.properties import Property

if TYPE_CHECKING:
    from postroom.pipelines.documents.message_batch import MessageBatch

#: What a decoder may answer: the message, or only its new body. None: the interchange is consumed, nothing comes of it.
Decoded = Message | Body | bytes | None


@dataclass(frozen=True, kw_only=True)
class Suspend:
    """A document that its disassembler sets aside: it is suspended with the reason, and the others go on (RCV-18)."""

    body: bytes
    reason: str


class Consumed:
    """What a validator answers to let a message go without a trace; no further documents are asked for (RCV-05)."""


CONSUMED = Consumed()


class Component(BaseModel):
    """One step of a pipeline. Frozen: one object serves many messages, one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The file that the class was written in; how executors find it again.
    source_file: ClassVar[str | None] = None

    _files: ShippedFiles = PrivateAttr(default=NO_FILES)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        # The module of a user's file is forgotten after the file has run.
        cls.source_file = getattr(sys.modules.get(cls.__module__), "__file__", None)

    @property
    def name(self) -> str:
        """How failures call it."""
        return type(self).__name__

    def problems(self) -> list[str]:
        """What is wrong with its settings, in words."""
        return []

    def file_problems(self) -> list[str]:
        """What is wrong with the files that it reads; asked before the application is applied."""
        return []

    def file_names(self) -> Sequence[str]:
        """The files that it reads when it runs, relative to the application's folder; they travel with it."""
        return ()

    def files_in(self, folder: Path) -> Sequence[str]:
        """Those files, and what they refer to, if it is known how: ``folder`` is where they are now."""
        return self.file_names()

    def read_file(self, name: str) -> bytes:
        """One of those files."""
        return self._files.read(name)


class Decoder(Component):
    """Makes one message of one message: decompresses, decrypts, converts."""

    @abstractmethod
    def decode(self, message: Message) -> Decoded:
        """The message as it goes on, or its new body."""


class Disassembler(Component):
    """Makes 0 to n messages of one."""

    @property
    def promotes(self) -> tuple[Property, ...]:
        """Every property that it may promote."""
        return ()

    @property
    def recoverable(self) -> bool:
        """Whether a bad document is suspended alone."""
        return False

    def probe(self, message: Message) -> bool:
        """Whether this is for me. The first disassembler of a pipeline that says so takes the message, for good or ill
        (RCV-03, RCV-06)."""
        return True

    @abstractmethod
    def disassemble(self, message: Message) -> Iterable[Message | Suspend]:
        """The documents in order. Promoting BTS.MessageType gives a document its type."""


class Validator(Component):
    """Says whether a message may pass."""

    #: Whether only the message is suspended that does not pass. By default its whole interchange is (RCV-16).
    recoverable: bool = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not cls.looks_at_batches() and cls.validate_message is Validator.validate_message:
            raise TypeError(f"{cls.__name__} validates nothing; write its validate_message or its validate_batch")

    @classmethod
    def looks_at_batches(cls) -> bool:
        """Whether it is asked about whole batches instead of single messages."""
        return cls.validate_batch is not Validator.validate_batch

    def validate_message(self, message: Message) -> Consumed | None:
        """Raises if it may not."""
        return None

    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str | Exception]:
        """The rows of an Arrow batch that may not pass, each with the reason. Override this one instead where looking
        at columns is faster; CONSUMED cannot be said here."""
        return {}


class PartyResolver(Component):
    """Says which party a message is from: BTS.OriginatorPID, believed of trusted hosts only (SEC-12)."""

    @abstractmethod
    def resolve(self, message: Message) -> str | None:
        """The party, or None: the next resolver is asked. If none knows, the message is from Guest."""
