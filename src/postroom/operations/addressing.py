"""Directing a message: the properties that name a send port or a send port group, by its name (CTX-21).

    context = directed_to(connection, "Everyone", message.context)

A message that is directed to somebody still reaches everybody else whose filter it meets (SUB-11).
"""

from __future__ import annotations

from postroom.errors import BadValue, NotFound, nearest
from postroom.message import Context
from postroom.messagebox.configuration import PortState, send_port_groups, send_ports
from postroom.messagebox.connection import Connection
from postroom.system_properties import BTS


def directed_to(connection: Connection, name: str, context: Context) -> Context:
    """The context with what directs it to the send port or the send port group of that name, or NotFound.

    An address and a transport type that the message carries are promoted, as far as they are short enough for that."""
    ports = send_ports(connection)
    groups = send_port_groups(connection)
    for port in ports:
        if port.name == name:
            context = context.promote(BTS.SPID, str(port.port_id))
            if not port.is_dynamic:
                context = context.promote(BTS.SPTransportID, str(port.transport_id))
            return _with_address_promoted(context)
    for group in groups:
        if group.name == name:
            return _with_address_promoted(context.promote(BTS.SPGroupID, str(group.group_id)))
    there = [*(one.name for one in ports), *(one.name for one in groups)]
    raise NotFound(f"There is no send port and no send port group {name!r}.", hint=nearest(name, there, "There are"))


def why_out_of_reach(connection: Connection, name: str) -> str | None:
    """Why nothing can be directed to a send port or group now: it is not enlisted, or no member of it is."""
    for port in send_ports(connection):
        if port.name == name and port.state is PortState.BOUND:
            return f"Send port {name!r} is not enlisted, so nothing can be directed to it: postroom port start {name!r}"
    for group in send_port_groups(connection):
        if group.name == name and not group.is_enlisted:
            what = f"Send port group {name!r} is not enlisted, so nothing can be directed to it"
            return f"{what}: postroom group start {name!r}"
        if group.name == name and not any(member.is_enlisted for member in group.members):
            return f"No member of the send port group {name!r} is enlisted, so nothing can be directed to it."
    return None


def _with_address_promoted(context: Context) -> Context:
    for prop in (BTS.OutboundTransportLocation, BTS.OutboundTransportType):
        try:
            context = context.promote(prop, context.get(prop))
        except BadValue:
            continue
    return context
