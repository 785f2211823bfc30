"""The requests that an instance has received, and that somebody waits for its answer to.

If the instance ends without an answer, or is suspended, whoever waits gets a fault at once (ACK-01, RR-11). An answer
settles a request, and so does a message that is sent on to other orchestrations, which can answer it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping

from postroom.correlation_tokens import find_reply_address
from postroom.message import Context, Message
from postroom.orchestrations.journal import Send
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value


class OpenRequests:
    """The open requests of one instance, by their tokens."""

    def __init__(self) -> None:
        self._open: defaultdict[Value, list[uuid.UUID]] = defaultdict(list)
        self._settled: list[uuid.UUID] = []
        #: Those that came through a partner port. It can have many receivers, which need not all answer.
        self._optional: set[uuid.UUID] = set()

    def add(self, message: Message) -> None:
        """Add a received message, if somebody waits for an answer to it."""
        if (address := find_reply_address(message.context)) is not None:
            self._open[_get_token(address)].append(message.message_id)
            if BTS.PartnerService in address and message.context.is_promoted(BTS.PartnerPort):
                self._optional.add(message.message_id)

    def settle(self, send: Send) -> None:
        """Remove the requests that a message answers, or with which they are sent on. A send port answers nobody."""
        if send.port is None and self._open:
            address = _find_answered(send.message.context) or find_reply_address(send.message.context)
            if address is not None:
                self._settled += self._open.pop(_get_token(address), ())

    def list_open(self, *, with_optional: bool = True) -> list[uuid.UUID]:
        """Return the ids of the requests that are open, with or without those that need no answer."""
        found = [message_id for message_ids in self._open.values() for message_id in message_ids]
        return [message_id for message_id in found if with_optional or message_id not in self._optional]

    def take_settled(self) -> list[uuid.UUID]:
        """Return the ids of the requests that were settled since the last call."""
        settled, self._settled = self._settled, []
        return settled


def _find_answered(answer: Context) -> Mapping[Property, Value] | None:
    """Return the address of an answer. Return None if the message is none."""
    if answer.is_promoted(BTS.PartnerService) and not answer.is_promoted(BTS.PartnerPort):
        return {BTS.PartnerService: answer[BTS.PartnerService]}
    if answer.is_promoted(BTS.RouteDirectToTP) and answer.is_promoted(BTS.EpmRRCorrelationToken):
        return {BTS.EpmRRCorrelationToken: answer[BTS.EpmRRCorrelationToken]}
    return None


def _get_token(address: Mapping[Property, Value]) -> Value:
    return next(iter(address.values()))
