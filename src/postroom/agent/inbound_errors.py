"""The error messages of a batch: for what failed at a receive port that routes failures and somebody subscribes to.

They are published in the transaction of the batch, with ids that derive from the instance that would have been
suspended. What nobody subscribes to is suspended after all (NRF-12).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from postroom.agent.authorised import Authorisation
from postroom.agent.error_reports import Failure
from postroom.agent.identity import Kind, Units, derive_id, id_array, unit_for_failure
from postroom.agent.matching import match_batch
from postroom.agent.routes import Routes
from postroom.agent.routing import RoutingTable
from postroom.filters.columns import columns_of
from postroom.message import Context, Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.writing import write_references


@dataclass(frozen=True, kw_only=True)
class FailedInbound:
    """What failed on its way in; ``message`` makes the clone of it with that id and context."""

    failure: Failure
    original: Context
    message: Callable[[uuid.UUID, Context], Message]


class InboundErrors:
    """Which of the failures of a batch somebody wants to hear of, and the error messages about those."""

    def __init__(self, connection: Connection, failed: Sequence[FailedInbound], routing: RoutingTable) -> None:
        contexts = [one.failure.context(one.original) for one in failed]
        columns = columns_of([context.promoted for context in contexts])
        matches = match_batch(connection, routing, columns, len(contexts))
        predicates = [context.predicates for context in contexts]
        allowed, _ = Authorisation(routing, predicates, np.arange(len(contexts))).allowed(matches)
        if allowed is not None:
            matches = matches.take(allowed)
        wanted = np.unique(matches.rows)
        units = [unit_for_failure(failed[row].failure.instance_id) for row in wanted.tolist()]
        positions = np.searchsorted(wanted, matches.rows)
        #: The instances that are not suspended, because an error message takes their place.
        self.instances = {failed[row].failure.instance_id for row in wanted.tolist()}
        self.messages = [
            failed[row].message(derive_id(unit, Kind.MESSAGE, 0), contexts[row])
            for row, unit in zip(wanted.tolist(), units, strict=True)
        ]
        self._routes = Routes(
            messages=positions,
            matches=matches,
            units=Units.of(units).take(positions),
            host_names=routing.host_names,
        )

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get rows."""
        return self._routes.hosts

    def write_routes(self, connection: Connection, *, message_log: int, part_log: int) -> None:
        """Queue rows and references; the messages themselves are written with the others of the batch."""
        if not self.messages:
            return
        ids = id_array([message.message_id for message in self.messages])
        self._routes.write(connection, ids)
        counts = np.bincount(self._routes.messages, minlength=len(ids))
        write_references(connection, "message", message_log, ids, counts)
        parts = id_array([part.part_id for message in self.messages for part in message.parts])
        per_part = np.repeat(counts, [len(message.parts) for message in self.messages])
        write_references(connection, "part", part_log, parts, per_part)
