"""Direct a message to a send port or a send port group by its name (CTX-21).

    context = direct_context(connection, "Everyone", message.context)

A directed message also reaches every other subscriber whose filter it matches (SUB-11).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from postroom.errors import BadValue, NotFound, StateError, suggest_names
from postroom.message import Context
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import read_addressees
from postroom.system_properties import BTS


class _Addressee(NamedTuple):
    """A send port or a send port group that a message can be directed to. A dynamic port has no transport."""

    name: str
    is_group: bool
    id: uuid.UUID
    transport_id: uuid.UUID | None
    is_enlisted: bool
    members_enlisted: bool
    is_two_way: bool


def direct_context(connection: Connection, name: str, context: Context, *, for_request: bool = False) -> Context:
    """Return the context with the properties that direct it to the send port or send port group ``name``.

    The outbound address and transport type in the context are promoted, too, unless they are too long. Raise NotFound
    if there is no such port or group, and StateError if the context is that of a request and the port is one-way."""
    addressees = Addressees.read(connection)
    if for_request:
        addressees.check_two_way(name)
    return addressees.direct(name, context)


#: The name or the id of a send port or a send port group.
_Key = str | uuid.UUID


class Addressees:
    """All send ports and send port groups that messages can be directed to, by name and by id, as they were read."""

    def __init__(self, known: Mapping[_Key, _Addressee]) -> None:
        self._known = known
        self._addresses: dict[_Key, Context] = {}

    @classmethod
    def read(cls, connection: Connection) -> Addressees:
        return cls(_read_addressees(connection))

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def direct(self, port: _Key, context: Context) -> Context:
        """Return the context with the properties that direct it, as ``direct_context`` does."""
        address = self._addresses.get(port)
        if address is None:
            address = self._addresses[port] = _build_address(_find(self._known, port))
        return _promote_address(context.merge(address))

    def check_two_way(self, port: _Key) -> None:
        """Raise StateError if ``port`` is a one-way send port, which returns no response."""
        addressee = _find(self._known, port)
        if not addressee.is_group and not addressee.is_two_way:
            raise StateError(
                f"The send port {addressee.name!r} is one-way, so it returns no response.",
                hint="Publish the message, or declare the port with two_way=True.",
            )

    def find_acknowledging_port(self, port: _Key) -> uuid.UUID | None:
        """Return the send port that acknowledges messages that are directed to ``port``. Return None for a group: each
        of its members does. Raise StateError if the port is two-way, which returns a response instead."""
        addressee = _find(self._known, port)
        if addressee.is_two_way:
            raise StateError(
                f"The send port {addressee.name!r} is two-way, so it does not acknowledge deliveries.",
                hint="Wait for its response: request(message, to=...).",
            )
        return None if addressee.is_group else addressee.id


def _build_address(addressee: _Addressee) -> Context:
    """Return the properties that direct a message to the port or group."""
    if addressee.is_group:
        return Context().promote(BTS.SPGroupID, str(addressee.id))
    context = Context().promote(BTS.SPID, str(addressee.id))
    transport_id = addressee.transport_id
    return context if transport_id is None else context.promote(BTS.SPTransportID, str(transport_id))


def _find(known: Mapping[_Key, _Addressee], port: _Key) -> _Addressee:
    addressee = known.get(port)
    if addressee is None:
        names = [name for name in known if isinstance(name, str)]
        what = f"There is no send port or send port group {str(port)!r}."
        raise NotFound(what, hint=suggest_names(str(port), names, "There are"))
    return addressee


def describe_unreachable(connection: Connection, name: str) -> str | None:
    """Return why no message can be directed to a send port or group now, or None if it can.

    A port must be enlisted. A group and at least one of its members must be enlisted."""
    addressee = _read_addressees(connection).get(name)
    if addressee is None or (addressee.is_enlisted and addressee.members_enlisted):
        return None
    if addressee.is_enlisted:
        return f"No member of the send port group {name!r} is enlisted, so no message can be directed to it."
    what, noun = ("Send port group", "group") if addressee.is_group else ("Send port", "port")
    return f"{what} {name!r} is not enlisted, so no message can be directed to it: postroom {noun} start {name!r}"


def _read_addressees(connection: Connection) -> dict[_Key, _Addressee]:
    found = [_Addressee(*row) for row in read_addressees(connection)]
    return {**{one.name: one for one in found}, **{one.id: one for one in found}}


def _promote_address(context: Context) -> Context:
    for prop in (BTS.OutboundTransportLocation, BTS.OutboundTransportType):
        try:
            context = context.promote(prop, context.get(prop))
        except BadValue:
            continue
    return context
