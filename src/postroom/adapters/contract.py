"""The contract of adapters: the definition that an application declares, and the adapters that are built from it.

A send adapter is opened once, used by many threads, and closed once:

    adapter = definition.make_sender(home)
    adapter.open()
    adapter.send(message, Attempt(instance_id=instance_id, number=1))
    adapter.close()

A receive adapter is opened once, used by one thread, and closed once:

    adapter = definition.make_receiver(home)
    adapter.open()
    batch = adapter.poll(100)
    adapter.clean_up([Committed(incoming=incoming) for incoming in batch])
    adapter.close()

The conformance tests in ``postroom.conformance`` check both contracts.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError, DeliveryRefused, MessageFailure
from postroom.message import Body, Context, Message, Part
from postroom.stored_definitions import DeclaredValue


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to send a message.

    ``instance_id`` is the same for every attempt to send one message through one send port, and unique otherwise: a
    receiver can use it as an idempotency key. ``group`` is the send port group that this copy of the message is routed
    through, or None if the port subscribes directly. ``sequence_number`` is that of a message of an ordered send port,
    and None otherwise. Later messages have higher numbers, with gaps, so a receiver recognises a late repeat.
    """

    instance_id: uuid.UUID
    number: int = 1
    group: str | None = None
    sequence_number: int | None = None


class SendAdapter(Protocol):
    """Sends the messages of a send port.

    Delivery is at least once: after a crash the same message is sent again, with the same message id and instance id.
    An adapter makes a repeat harmless if its protocol allows it, and otherwise recognisable.
    """

    def open(self) -> None:
        """Prepare to send. Do not fail because the receiver is unavailable: ``send`` reports that."""
        return

    @abstractmethod
    def send(self, message: Message, attempt: Attempt) -> None:
        """Send the message. Return only when the receiver has stored it.

        Several threads call this at once. Bodies may be larger than memory: read them with ``body.chunks()``. Raise
        DeliveryFailure if a retry may help, DeliveryRefused if it cannot. Do not catch errors of the body. After a
        failure no partial result is visible, and the adapter can be used again.
        """
        ...

    def close(self) -> None:
        """Release all resources. May be called twice, and without ``open``."""
        return


#: A message of a batch, and its attempt.
Outgoing = tuple[Message, Attempt]


class BatchSendAdapter(SendAdapter, Protocol):
    """A send adapter that gains from sending several messages of its port together.

    Its definition says how many (``max_batch``).
    """

    def send(self, message: Message, attempt: Attempt) -> None:
        """Send a batch of one message."""
        (error,) = self.send_batch([(message, attempt)])
        if error is not None:
            raise error

    @abstractmethod
    def send_batch(self, batch: Sequence[Outgoing]) -> Sequence[Exception | None]:
        """Send the messages. Return None for each message that the receiver has stored, and an error for each other.

        The errors are those that ``send`` would raise, including errors of bodies: each message is retried, or not, by
        its own error (SND-07). An exception means that none of the messages counts as sent (SND-08).
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ReceivedResponse:
    """What the receiver of a message has answered. ``context`` has what the adapter writes about it."""

    body: Body
    context: Context


@runtime_checkable
class SolicitAdapter(SendAdapter, Protocol):
    """A send adapter whose receiver answers each message, for solicit-response send ports."""

    def solicit(self, message: Message, attempt: Attempt) -> ReceivedResponse:
        """Send the message like ``send``, and return the whole response."""
        ...


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """One interchange that a receive adapter has found at its source.

    ``key`` is its idempotency key: every poll returns it with the same key until it is cleaned up, and no later
    interchange of the same location has that key. ``context`` has what the adapter writes about it. ``token`` is for
    the adapter itself. ``name`` is what the log calls it, instead of its key. ``arrived_at`` is for the metrics.
    """

    key: str
    body: Body
    context: Context = field(default_factory=Context)
    token: Any = None
    name: str = ""
    arrived_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Committed:
    """An interchange that is stored in the MessageBox, and can be removed from its source. ``suspended`` is True if
    something of it is suspended there, with its content."""

    incoming: Incoming
    suspended: bool = False


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An interchange that the receive pipeline rejected, and whose context has BTS.ActionOnFailure 0: it is not stored
    in the MessageBox."""

    incoming: Incoming
    failure: MessageFailure


class ReceiveAdapter(Protocol):
    """Receives the interchanges of a receive location.

    One thread of one process calls it at a time. This process publishes each batch and then has it cleaned up. If it
    ends in between, the next poll returns the same interchanges, under the same keys. Postroom recognises the keys, and
    only has the interchanges cleaned up: nothing is lost, and nothing is published twice.
    """

    def open(self) -> None:
        """Prepare to receive. Do not fail because the source is unavailable: ``poll`` reports that."""
        return

    @abstractmethod
    def poll(self, limit: int) -> Sequence[Incoming]:
        """Return up to ``limit`` interchanges, oldest first, or none. They stay at the source.

        An adapter that listens waits here for at most a second. Bodies may be larger than memory: they are read while
        the batch is published. Raise an error, such as Unavailable, if the source cannot be read. It is reported, and
        ``poll`` is called again later.
        """
        ...

    @abstractmethod
    def clean_up(self, committed: Sequence[Committed]) -> None:
        """Remove these interchanges from the source: delete, mark or acknowledge them. They are of the last batch.

        An interchange that is gone already is no error. After an error the others are polled again, and only cleaned
        up."""
        ...

    def release(self, batch: Sequence[Incoming]) -> None:
        """Leave these interchanges of the last batch at the source, for a later poll: they are not stored."""
        return

    def refuse(self, refused: Sequence[Refused]) -> None:
        """Decide about interchanges of the last batch that the receive pipeline rejected: return an error to the
        sender, or move them at the source. They are polled again as long as they stay there.

        Only for an adapter that writes BTS.ActionOnFailure 0 to the context of its interchanges. Otherwise an
        interchange that is rejected is suspended in the MessageBox, and cleaned up."""
        return

    def quarantine(self, incoming: Incoming, error: Exception) -> None:
        """Keep an interchange of the last batch from being polled again, with the error: it can be neither received nor
        suspended, because its body cannot be read, for example.

        By default it stays at the source. The error is reported, and it is polled again."""
        raise error

    def close(self) -> None:
        """Release all resources, and leave what is not cleaned up at the source. May be called twice, and without
        ``open``."""
        return


class AdapterDefinition(DeclaredValue):
    """An adapter, as an application declares it: a ReceiveDefinition, a SendDefinition, or both. Frozen and
    serialisable.

    The constructor checks types only. ``problems`` checks the values, so that all problems of an application are
    reported together. Differences between adapters are attributes and methods here: no other module compares kinds.
    """

    _declared_in: ClassVar[str] = "adapters."

    #: The value of BTS.InboundTransportType and BTS.OutboundTransportType.
    transport_type: ClassVar[str] = ""
    #: True if it can return a response: to the program that it receives from, or of the program that it sends to.
    can_be_two_way: ClassVar[bool] = False

    kind: str

    def problems(self) -> list[str]:
        """Return the problems of the definition, one sentence each."""
        return []

    @abstractmethod
    def address(self, home: Path) -> str:
        """Return the URI: the value of BTS.InboundTransportLocation and BTS.OutboundTransportLocation."""


class ReceivedBy(Enum):
    """What receives for a location."""

    #: The pipeline process of its host, with Spark.
    PIPELINE = "pipeline"
    #: The listener of a host. The pipeline process publishes, except for two-way locations: a host publishes these.
    LISTENER = "listener"
    #: A host, which polls the adapter that ``make_receiver`` returns, and publishes.
    POLLER = "poller"


class ReceiveDefinition(AdapterDefinition):
    """The adapter of a receive location."""

    received_by: ClassVar[ReceivedBy] = ReceivedBy.POLLER
    #: True if a reader of Spark reads rows.
    reads_rows: ClassVar[bool] = False
    #: True if an isolated host may receive with it (HST-02).
    can_be_isolated: ClassVar[bool] = True
    #: The unit that a receive location receives, for users.
    intake_unit: ClassVar[str] = "file"

    def receive_problems(self) -> list[str]:
        """Return the problems that the definition has at a receive location, but not at a send port."""
        return []

    @property
    def is_row_stream(self) -> bool:
        """True if Spark reads a source by offsets, and stores its progress in a checkpoint."""
        return False

    @property
    def is_ordered(self) -> bool:
        """True if interchanges are received one after the other (RCV-25)."""
        return False

    @property
    def polling_interval(self) -> float:
        """How many seconds a host waits after a poll that found nothing."""
        return 1.0

    @property
    def poll_limit(self) -> int:
        """The largest batch that a host polls, and publishes in one transaction."""
        return 100

    def make_receiver(self, home: Path) -> ReceiveAdapter:
        """Return a receive adapter that is not open yet. Relative paths are resolved against ``home``."""
        raise DefinitionError(f"The adapter {self.kind!r} does not receive in a host.")


class SendDefinition(AdapterDefinition):
    """The adapter of a send port."""

    #: The largest batch of messages that the send adapter takes together. Above 1 it is a BatchSendAdapter (DEQ-19).
    max_batch: ClassVar[int] = 1

    @property
    def send_limit(self) -> int | None:
        """How many messages of a port a host instance sends at a time. None: as many as it has dequeue threads."""
        return None

    @property
    def guarantee(self) -> str:
        """The delivery guarantee of a sink, in one line. Empty for other adapters."""
        return ""

    @abstractmethod
    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        """Return a send adapter that is not open yet. Relative paths are resolved against ``home``."""


def get_body(message: Message) -> Part:
    """Return the body part, the only part that most protocols send (SND-20). Raise DeliveryRefused without one."""
    if message.body is None:
        raise DeliveryRefused(
            f"Message {message.message_id} has no body part to send.",
            hint="This adapter can send only messages with a body. Terminate the instance.",
        )
    return message.body
