"""Acknowledgements of send ports: an ACK after a message was sent, a NACK when it is suspended or routed as a failure.

A publisher requests an ACK with ``BTS.AckRequired``. A NACK needs no request (ACK-01). There are none about
acknowledgements.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
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
      <faultstring>The message could not be sent. The detail has the reason.</faultstring>
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
class SentMessage:
    """A message that a send port has sent, or has failed to send."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    context: Context
    port_id: uuid.UUID
    port_name: str
    uri: str | None
    is_two_way: bool = False

    @property
    def has_caller(self) -> bool:
        """True if a caller waits for the response of the port. A NACK goes to the caller (RR-11)."""
        return self.is_two_way and is_waiting(self.context)

    def build_ack(self) -> Message:
        """Return the ACK. It has no content."""
        return Message(context=self._build_context("ACK", {}, {}))

    def build_nack(self, failure: Suspension) -> Message:
        """Return the NACK with the reason of the failure."""
        code = to_failure_code(failure.code)
        document = _NACK.format(
            uri=_to_xml(self.uri or ""), message_id=self.message_id, code=code, description=_to_xml(failure.description)
        )
        context = self._build_context(
            "NACK",
            {BTS.AckFailureCode: code, BTS.AckFailureCategory: 0},
            {BTS.AckDescription.key: to_storable_text(failure.description)},
        )
        body = Message.of(document.encode(), content_type="text/xml")
        return Message(context=context, parts=body.parts, body_part_name=body.body_part_name)

    def _build_context(self, ack_type: str, promoted: dict[Property, str | int], written: dict[str, Value]) -> Context:
        original = self.context
        values: dict[Property, str | int | None] = {
            BTS.AckType: ack_type,
            BTS.AckID: str(self.message_id),
            BTS.AckOwnerID: str(self.instance_id),
            BTS.AckSendPortID: str(self.port_id),
            BTS.AckSendPortName: self.port_name,
            BTS.AckOutboundTransportLocation: self.uri[:MAX_PROMOTED_LENGTH] if self.uri else None,
            BTS.CorrelationToken: original.get(BTS.CorrelationToken),
            **promoted,
        }
        if self.has_caller and ack_type == "NACK":
            values |= {BTS.EpmRRCorrelationToken: original[BTS.EpmRRCorrelationToken], BTS.RouteDirectToTP: True}
        keys = {prop.key: value for prop, value in values.items() if value is not None}
        # An acknowledgement is not acknowledged itself.
        demoted = {
            key: value
            for key, value in original.demote_all().written.items()
            if key != BTS.AckRequired.key and key not in keys
        }
        return Context(keys, {**demoted, **written}, original.predicates)


def _to_xml(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))
