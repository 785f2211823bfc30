"""The error messages of a batch: for what failed at a receive port that routes failures and somebody subscribes to.

They are published in the transaction of the batch, with ids that derive from the instance that would have been
suspended. What nobody subscribes to is suspended after all (NRF-12).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from postroom.agent.error_reports import Failure
from postroom.agent.identity import Kind, derive_id, unit_for_failure
from postroom.agent.matching import match_batch
from postroom.agent.routes import RoutedMessages
from postroom.agent.routing import RoutingTable
from postroom.filters.columns import columns_of
from postroom.message import Context, Message
from postroom.messagebox.connection import Connection


@dataclass(frozen=True, kw_only=True)
class FailedInbound:
    """What failed on its way in; ``message`` makes the clone of it with that id and context."""

    failure: Failure
    original: Context
    message: Callable[[uuid.UUID, Context], Message]


def match_errors(connection: Connection, failed: Sequence[FailedInbound], routing: RoutingTable) -> RoutedMessages:
    """The error messages about those of the failures that somebody wants to hear of."""
    contexts = [one.failure.context(one.original) for one in failed]
    columns = columns_of([context.promoted for context in contexts])
    predicates = [context.predicates for context in contexts]
    matches = match_batch(connection, routing, columns, len(contexts), predicates)
    wanted = np.unique(matches.rows)
    messages = [
        failed[row].message(error_message_id(failed[row].failure.instance_id), contexts[row]) for row in wanted.tolist()
    ]
    units = [unit_for_failure(failed[row].failure.instance_id) for row in wanted.tolist()]
    return RoutedMessages(messages, replace(matches, rows=np.searchsorted(wanted, matches.rows)), units)


def error_message_id(instance_id: uuid.UUID) -> uuid.UUID:
    """The id of the error message about an instance that failed."""
    return derive_id(unit_for_failure(instance_id), Kind.MESSAGE, 0)
