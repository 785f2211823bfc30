"""Directing a message: the properties that name a send port or a send port group, by its name (CTX-21).

    context = direct_context(connection, "Everyone", message.context)

A message that is directed to somebody still reaches everybody else whose filter it meets (SUB-11).
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from postroom.errors import BadValue, NotFound, nearest
from postroom.message import Context
from postroom.messagebox.connection import Connection
from postroom.system_properties import BTS


class _Addressee(NamedTuple):
    """A send port or a send port group, as whoever publishes may know it."""

    name: str
    is_group: bool
    id: uuid.UUID
    transport_id: uuid.UUID | None
    is_dynamic: bool
    is_enlisted: bool
    members_enlisted: bool


def direct_context(connection: Connection, name: str, context: Context) -> Context:
    """The context with what directs it to the send port or the send port group of that name, or NotFound.

    An address and a transport type that the message carries are promoted, as far as they are short enough for that."""
    known = _addressees(connection)
    addressee = known.get(name)
    if addressee is None:
        what = f"There is no send port and no send port group {name!r}."
        raise NotFound(what, hint=nearest(name, list(known), "There are"))
    if addressee.is_group:
        return _with_address_promoted(context.promote(BTS.SPGroupID, str(addressee.id)))
    context = context.promote(BTS.SPID, str(addressee.id))
    if not addressee.is_dynamic:
        context = context.promote(BTS.SPTransportID, str(addressee.transport_id))
    return _with_address_promoted(context)


def describe_unreachable(connection: Connection, name: str) -> str | None:
    """Why nothing can be directed to a send port or group now: it is not enlisted, or no member of it is."""
    addressee = _addressees(connection).get(name)
    if addressee is None or (addressee.is_enlisted and addressee.members_enlisted):
        return None
    if addressee.is_enlisted:
        return f"No member of the send port group {name!r} is enlisted, so nothing can be directed to it."
    what, noun = ("Send port group", "group") if addressee.is_group else ("Send port", "port")
    return f"{what} {name!r} is not enlisted, so nothing can be directed to it: postroom {noun} start {name!r}"


def _addressees(connection: Connection) -> dict[str, _Addressee]:
    # Not the tables: a host sees its own ports only, but may name others'.
    rows = connection.execute("SELECT * FROM addressees()").fetchall()
    return {row[0]: _Addressee(*row) for row in rows}


def _with_address_promoted(context: Context) -> Context:
    for prop in (BTS.OutboundTransportLocation, BTS.OutboundTransportType):
        try:
            context = context.promote(prop, context.get(prop))
        except BadValue:
            continue
    return context
