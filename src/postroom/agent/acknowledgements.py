"""Acknowledgements: messages that tell a publisher what became of another message.

A publisher that asked for one subscribes to it; otherwise nobody does, and nobody needs it. Delivery notifications and
two-way ports will publish them.
"""

from __future__ import annotations

from postroom.message import Context
from postroom.system_properties import BTS

ACK, NACK = "ACK", "NACK"


def is_acknowledgement(context: Context) -> bool:
    """Is it of the kind that is dropped without a word when nobody subscribes (NRF-11)?"""
    return context.get(BTS.AckType) in (ACK, NACK)
