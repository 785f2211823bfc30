"""Hops: how many services have passed on what a message was caused by, so that endless loops are found.

A message that an orchestration sends has one hop more than the message that activated it, and so has the response of a
send port. Other messages that an instance has received do not count: a conversation of any length is no loop.
"""

from __future__ import annotations

from postroom.message import Context
from postroom.system_properties import BTS

#: What a host publishes at most, unless its ``max_hops`` says otherwise.
MAX_HOPS = 100
#: The number of services that a context names at most, the last ones.
_MAX_SERVICES = 10
_SEPARATOR = " > "


def add_hop(context: Context, service: str, *, cause: Context) -> Context:
    """Return the context of a message that a service publishes because of another one."""
    earlier = cause.get(BTS.HopServices)
    services = [] if earlier is None else earlier.split(_SEPARATOR)[1 - _MAX_SERVICES :]
    return context.write(BTS.HopCount, count_hops(cause) + 1).write(
        BTS.HopServices, _SEPARATOR.join((*services, service))
    )


def count_hops(context: Context) -> int:
    """Return the number of services that have passed a message on. It is never promoted."""
    count = context.written.get(BTS.HopCount.key, 0)
    return count if type(count) is int else 0
