"""Which matches of a batch may be queued: those whose hosts show what the messages ask for (SEC-01 … 06)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from postroom.errors import RoutingFailure
from postroom.filters.authorisation import (
    NOTHING_TO_SHOW,
    MessagePredicate,
    may_receive,
)
from postroom.namespaces import dotted_name, split_key

if TYPE_CHECKING:
    from postroom.agent.matching import Matches
    from postroom.agent.routing import RoutingTable

Predicates = frozenset[MessagePredicate]
Barred = Mapping[int, Collection[str]]


class Authorisation:
    """The predicates of the chunks of a batch, and what they mean for its matches. Free where there are none."""

    def __init__(
        self, routing: RoutingTable, predicates: Sequence[Predicates], chunk_of: npt.NDArray[np.int64]
    ) -> None:
        self._routing = routing
        self._predicates = predicates
        self._chunk_of = chunk_of

    def allowed(self, matches: Matches) -> tuple[npt.NDArray[np.bool_] | None, Barred]:
        """Of every match, whether its host may receive the message (None: all may); and for rows that lost matches the
        hosts that may not."""
        rows = matches.rows
        if not any(self._predicates) or not len(rows):
            return None, {}
        distinct = list(dict.fromkeys(self._predicates))
        kind = np.array([distinct.index(one) for one in self._predicates])[self._chunk_of[rows]]
        subscriptions, subscription_of = np.unique(matches.subscription_ids, return_inverse=True)
        hosts = [matches.subscribers[one].host_id for one in subscriptions.tolist()]
        shown = [self._routing.application_properties.get(one, NOTHING_TO_SHOW) for one in hosts]
        table = np.array([[may_receive(one, properties) for properties in shown] for one in distinct])
        mask: npt.NDArray[np.bool_] = table[kind, subscription_of]
        barred: defaultdict[int, set[str]] = defaultdict(set)
        for pair in np.flatnonzero(~mask).tolist():
            barred[int(rows[pair])].add(self._routing.spelled_hosts.get(hosts[int(subscription_of[pair])], ""))
        return mask, barred


def routing_failure(
    message_type: object, predicates: Predicates = frozenset(), barred: Collection[str] = ()
) -> RoutingFailure:
    """Why a message could not be routed: nobody subscribes, or none of the hosts that do may receive it (NRF-17)."""
    of_type = f" of type {message_type}" if message_type else ""
    if not barred:
        return RoutingFailure(f"The published message{of_type} could not be routed because no subscribers were found.")
    # Without the values: operators read this, and what a message asks for is content of the message.
    asked = ", ".join(sorted({dotted_name(*split_key(key)) for key, _ in predicates}))
    one = len(barred) == 1
    return RoutingFailure(
        f"The published message{of_type} could not be routed because no host that subscribes is authorised to "
        f"receive it.",
        why=f"It asks for a value of {asked} that the host{'' if one else 's'} {', '.join(sorted(barred))} "
        f"{'does' if one else 'do'} not show.",
        hint="Declare it as an application property of a host (app.host(..., properties=...)) and resume the instance.",
    )
