"""Who subscribes to the messages of a batch: activation subscriptions from memory, instance subscriptions from the
MessageBox, and the convoys that matches belong to."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroom.agent.convoys import Convoy
from postroom.agent.correlation import columns_of_keys, correlations_in, find_waiting, whole
from postroom.agent.routing import RoutingTable, Subscriber
from postroom.filters.columns import Columns
from postroom.messagebox.connection import Connection

_NOTHING: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Pairs of message (its row in the batch) and subscription, by row, then subscription."""

    rows: npt.NDArray[np.int64]
    subscription_ids: npt.NDArray[np.int64]
    subscribers: Mapping[int, Subscriber]
    #: Of the pairs whose message belongs to a convoy, by the pair's number.
    convoys: Mapping[int, Convoy]

    def take(self, kept: npt.NDArray[np.bool_]) -> Matches:
        """Those of the pairs that are kept, under new numbers."""
        if kept.all():
            return self
        number = np.cumsum(kept) - 1
        convoys = {int(number[pair]): convoy for pair, convoy in self.convoys.items() if kept[pair]}
        return Matches(
            rows=self.rows[kept],
            subscription_ids=self.subscription_ids[kept],
            subscribers=self.subscribers,
            convoys=convoys,
        )


def match_batch(connection: Connection, routing: RoutingTable, columns: Columns, rows: int) -> Matches:
    """All matches of a batch. Asks the MessageBox only if instances wait by properties that the batch has."""
    found, ids = routing.match(columns, rows) if rows else (_NOTHING, _NOTHING)
    subscribers: Mapping[int, Subscriber] = routing.subscribers
    if rows and routing.correlation_types:
        waiting = find_waiting(connection, correlations_in(columns, rows, routing))
        if waiting:
            subscribers = ChainMap({one.subscription_id: one for one, _ in waiting}, routing.subscribers)
            found = np.concatenate([found, *(np.array(met) for _, met in waiting)])
            ids = np.concatenate([ids, *(np.full(len(met), one.subscription_id) for one, met in waiting)])
            order = np.lexsort((ids, found))
            found, ids = found[order], ids[order]
    convoys = _convoys(routing, columns, rows, found, ids) if routing.convoy_sets else {}
    return Matches(rows=found, subscription_ids=ids, subscribers=subscribers, convoys=convoys)


def _convoys(
    routing: RoutingTable,
    columns: Columns,
    rows: int,
    found: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
) -> dict[int, Convoy]:
    convoys: dict[int, Convoy] = {}
    for subscription_id in np.unique(ids).tolist():
        subscriber = routing.subscribers.get(subscription_id)
        if subscriber is None or (convoy_set_id := subscriber.convoy_set_id) is None:
            continue
        values = columns_of_keys(columns, routing.convoy_sets[convoy_set_id], rows, routing.value_types)
        if values is None:
            continue
        for pair in np.flatnonzero(ids == subscription_id).tolist():
            if (complete := whole(values[found[pair]])) is not None:
                convoys[pair] = Convoy(convoy_set_id=convoy_set_id, values=complete)
    return convoys
