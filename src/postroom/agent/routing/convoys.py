"""Convoys: messages with equal values of a convoy set's properties go to one instance (ORC-20 … 22).

Which instance has which values is decided in the MessageBox, under the routing lock and at a primary key, so that two
publishers of one new key make one instance.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.messagebox.connection import Connection

_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Convoy:
    """A convoy set, and its values (as value keys) in one message."""

    convoy_set_id: int
    values: tuple[str, ...]


def locate_instances(
    connection: Connection, convoys: Sequence[Convoy], offered: Sequence[uuid.UUID]
) -> list[uuid.UUID]:
    """For each convoy the instance that it has already, or else the one that is offered, and is its own from now on.

    The caller is in the transaction that publishes. A message that lacks one of the properties is in no convoy: it
    activates an instance of its own, and is not asked for here.
    """
    if not convoys:
        return []
    columns = [[one.values[number] if number < len(one.values) else None for one in convoys] for number in range(_MOST)]
    located = connection.execute(
        "SELECT number, instance_id FROM locate_convoy_instances"
        "(%s::int[], %s::text[], %s::text[], %s::text[], %s::uuid[])",
        ([one.convoy_set_id for one in convoys], *columns, list(offered)),
    ).fetchall()
    by_number: dict[int, uuid.UUID] = dict(located)
    return [by_number[number] for number in range(1, len(convoys) + 1)]
