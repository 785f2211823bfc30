"""Acknowledgements: an ACK after a send port has sent a message, a NACK when a send port or a receive location suspends
a message or routes it as a failure.

A publisher requests an ACK with ``BTS.AckRequired``. A NACK needs no request (ACK-01). There are none about
acknowledgements.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from xml.sax.saxutils import escape

from postroom.agent.error_messages import to_failure_code
from postroom.message import Context, Message
from postroom.messagebox.queues import Suspension, to_storable_text
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import MAX_PROMOTED_LENGTH, Value

#: The properties that are promoted in acknowledgements. A subscription needs one of them to match.
PROMOTED: tuple[Property, ...] = (
    BTS.AckType,
    BTS.AckID,
    BTS.AckOwnerID,
    BTS.AckSendPortID,
    BTS.AckSendPortName,
    BTS.AckOutboundTransportLocation,
    BTS.AckReceivePortID,
    BTS.AckReceivePortName,
    BTS.AckInboundTransportLocation,
    BTS.AckFailureCode,
    BTS.AckFailureCategory,
    BTS.CorrelationToken,
)

#: The document of a NACK, with the element names of BizTalk.
_NACK = """<?xml version="1.0" encoding="utf-8"?>
<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/">
  <SOAP:Body>
    <SOAP:Fault>
      <faultcode>Negative acknowledgement</faultcode>
      <faultstring>The message could not be {done}. The detail has the reason.</faultstring>
      <faultactor>{uri}</faultactor>
      <detail>
        <ns0:NACK Type="NACK" xmlns:ns0="http://schema.microsoft.com/BizTalk/2003/NACKMessage.xsd">
          <NAckID>{message_id}</NAckID>
          <ErrorCode>{code}</ErrorCode>
          <ErrorCategory>0</ErrorCategory>
          <ErrorDescription>{description}</ErrorDescription>
        </ns0:NACK>
      </detail>
    </SOAP:Fault>
  </SOAP:Body>
</SOAP:Envelope>
"""
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_acknowledgement(context: Context) -> bool:
    """Return True for an acknowledgement, promoted or not."""
    return context.get(BTS.AckType) in ("ACK", "NACK")


def is_ack_required(context: Context) -> bool:
    """Return True if the publisher of a message asks for an ACK."""
    return context.get(BTS.AckRequired) is True and not is_acknowledgement(context)


def is_waiting(request: Context) -> bool:
    """Return True if a caller waits for the response to this request."""
    return BTS.EpmRRCorrelationToken in request


@dataclass(frozen=True, kw_only=True)
class AcknowledgedMessage(ABC):
    """A message that a port has processed, or has failed to process."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    context: Context
    port_id: uuid.UUID
    port_name: str
    uri: str | None

    #: What a port does with its messages.
    done: ClassVar[str]

    @property
    def has_caller(self) -> bool:
        """True if a caller waits for the response of the port. A NACK goes to the caller (RR-11)."""
        return False

    @property
    @abstractmethod
    def port_properties(self) -> Mapping[Property, str | None]:
        """The properties of an acknowledgement that name the port."""

    def build_nack(self, failure: Suspension) -> Message:
        """Return the NACK with the reason of the failure."""
        document = _NACK.format(
            uri=_to_xml(self.uri or ""),
            done=self.done,
            message_id=self.message_id,
            code=to_failure_code(failure.code),
            description=_to_xml(failure.description),
        )
        body = Message.of(document.encode(), content_type="text/xml")
        written: dict[str, Value] = {BTS.AckDescription.key: to_storable_text(failure.description)}
        context = self._build_context(self.build_nack_properties(failure.code), written)
        return Message(context=context, parts=body.parts, body_part_name=body.body_part_name)

    def build_nack_properties(self, code: str) -> dict[str, Value]:
        """Return the promoted properties of the NACK, by key."""
        promoted: dict[Property, Value] = {BTS.AckFailureCode: to_failure_code(code), BTS.AckFailureCategory: 0}
        if self.has_caller:
            token = self.context[BTS.EpmRRCorrelationToken]
            promoted |= {BTS.EpmRRCorrelationToken: token, BTS.RouteDirectToTP: True}
        return self._build_properties("NACK", promoted)

    def _build_properties(self, ack_type: str, more: Mapping[Property, Value]) -> dict[str, Value]:
        values: dict[Property, Value | None] = {
            BTS.AckType: ack_type,
            BTS.AckID: str(self.message_id),
            BTS.AckOwnerID: str(self.instance_id),
            BTS.CorrelationToken: self.context.get(BTS.CorrelationToken),
            **self.port_properties,
            **more,
        }
        return {prop.key: value for prop, value in values.items() if value is not None}

    def _build_context(self, promoted: Mapping[str, Value], written: Mapping[str, Value]) -> Context:
        # An acknowledgement is not acknowledged itself.
        demoted = {
            key: value
            for key, value in self.context.demote_all().written.items()
            if key != BTS.AckRequired.key and key not in promoted
        }
        return Context(promoted, {**demoted, **written}, self.context.predicates)


@dataclass(frozen=True, kw_only=True)
class SentMessage(AcknowledgedMessage):
    """A message that a send port has sent, or has failed to send."""

    is_two_way: bool = False
    done = "sent"

    @property
    def has_caller(self) -> bool:
        return self.is_two_way and is_waiting(self.context)

    @property
    def port_properties(self) -> Mapping[Property, str | None]:
        return {
            BTS.AckSendPortID: str(self.port_id),
            BTS.AckSendPortName: self.port_name,
            BTS.AckOutboundTransportLocation: self.uri[:MAX_PROMOTED_LENGTH] if self.uri else None,
        }

    def build_ack(self) -> Message:
        """Return the ACK. It has no content."""
        return Message(context=self._build_context(self._build_properties("ACK", {}), {}))


@dataclass(frozen=True, kw_only=True)
class ReceivedMessage(AcknowledgedMessage):
    """An interchange or a document that a receive location could not publish."""

    done = "received"

    @property
    def port_properties(self) -> Mapping[Property, str | None]:
        return {
            BTS.AckReceivePortID: str(self.port_id),
            BTS.AckReceivePortName: self.port_name,
            BTS.AckInboundTransportLocation: self.uri[:MAX_PROMOTED_LENGTH] if self.uri else None,
        }


def _to_xml(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))
