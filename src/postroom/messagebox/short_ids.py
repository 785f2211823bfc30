"""Finds ids by their first digits."""

from __future__ import annotations

import uuid
from typing import Literal, NamedTuple

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

#: What a short id identifies. A message can be given by the id of one of its instances. A subscriber is an instance
#: with subscriptions of its own.
ShortIdKind = Literal["message", "instance", "subscriber", "interchange"]


class FoundId(NamedTuple):
    """An id. ``of_report`` is True for a routing failure report and for its message."""

    id: uuid.UUID
    of_report: bool


def find_ids(
    connection: Connection, kind: ShortIdKind, first: uuid.UUID, last: uuid.UUID, *, limit: int
) -> list[FoundId]:
    """Return the first ids of a kind from ``first`` to ``last``, sorted."""
    parameters = {"kind": kind, "first": first, "last": last, "limit": limit}
    return [FoundId(*row) for row in connection.execute(statement("queries/find_ids"), parameters)]
