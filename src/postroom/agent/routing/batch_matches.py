"""The matches of a batch in memory: activation subscriptions by the index, instance subscriptions by the MessageBox.

A batch can have as many matches as messages times subscriptions. So it is matched, and its queue rows are written, in
pieces.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from postroom.agent.routing.correlation import (
    Convoy,
    find_correlations,
    find_instance_subscribers,
    get_complete_values,
    to_value_keys,
)
from postroom.agent.routing.table import Routing, Subscriber
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, MessagePredicate, may_receive
from postroom.filters.columns import Columns
from postroom.filters.index import MATCHES_PER_PIECE, Piece
from postroom.messagebox.connection import Connection
from postroom.values import ValueType

Predicates = frozenset[MessagePredicate]


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Pairs of a message (its row in the batch) and a subscription, ordered by both, at one routing version."""

    version: int
    rows: npt.NDArray[np.int64]
    subscription_ids: npt.NDArray[np.int64]
    subscribers: Mapping[int, Subscriber]
    host_names: Mapping[int, str]
    """In lower case, as queues are named."""
    convoys: Mapping[int, Convoy] = field(default_factory=dict)
    """The convoys of pairs, by the number of the pair."""
    unauthorised_hosts: Mapping[int, Collection[str]] = field(default_factory=dict)
    """The hosts that subscribe to a message but may not receive it, by the row of the message."""

    def select(self, kept: npt.NDArray[np.bool_]) -> MatchResult:
        """Return the pairs that are kept, with new numbers."""
        if kept.all():
            return self
        number = np.cumsum(kept) - 1
        convoys = {int(number[pair]): convoy for pair, convoy in self.convoys.items() if kept[pair]}
        return replace(self, rows=self.rows[kept], subscription_ids=self.subscription_ids[kept], convoys=convoys)

    def with_rows(self, row_of: Sequence[int]) -> MatchResult:
        """Return the same pairs for another numbering of the messages."""
        hosts = {row_of[row]: hosts for row, hosts in self.unauthorised_hosts.items()}
        return replace(self, rows=np.array(row_of, dtype=np.int64)[self.rows], unauthorised_hosts=hosts)


class BatchMatches:
    """The matches of a batch, in pieces that fit into memory. Iterate over it to get the pieces.

    A batch normally has one piece, which is kept. Otherwise each iteration matches again, because a batch can have as
    many matches as messages times subscriptions. ``waiting`` has the instance subscriptions that match it.
    ``predicates_of`` has the number of its ``predicates`` for each row. By default each row has its own.
    """

    def __init__(
        self,
        routing: Routing,
        columns: Columns,
        rows: int,
        predicates: Sequence[Predicates],
        waiting: WaitingSubscribers,
        predicates_of: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.version = routing.version
        self._routing = routing
        self._columns = columns
        self._rows = rows
        self._predicates = predicates
        self._predicates_of = np.arange(rows) if predicates_of is None else predicates_of
        self._waiting = waiting
        #: The number of matches of each row.
        self.counts = np.zeros(rows, dtype=np.int64)
        self.unauthorised_hosts: dict[int, Collection[str]] = {}
        self._kept: list[MatchResult] = []
        for number, piece in enumerate(self._match()):
            self._kept = [piece] if not number else []
            self.counts += np.bincount(piece.rows, minlength=rows)
            self.unauthorised_hosts.update(piece.unauthorised_hosts)

    @property
    def is_kept(self) -> bool:
        """True if an iteration does not match again."""
        return bool(self._kept) or not self._rows

    def __iter__(self) -> Iterator[MatchResult]:
        return iter(self._kept) if self._kept else self._match()

    def _match(self) -> Iterator[MatchResult]:
        routing = self._routing
        for found in self._waiting.add_to(routing.match_in_pieces(self._columns, self._rows)):
            piece = MatchResult(
                version=routing.version,
                rows=found.rows,
                subscription_ids=found.ids,
                subscribers=self._waiting.subscribers,
                host_names=routing.host_names,
                convoys=find_convoys(
                    self._columns,
                    self._rows,
                    found.rows,
                    found.ids,
                    self._waiting.subscribers,
                    routing.convoy_sets,
                    routing.value_types,
                ),
            )
            if any(self._predicates) and len(found.rows):
                piece = _authorise(piece, routing, self._predicates, self._predicates_of)
            yield piece


@dataclass(frozen=True, kw_only=True)
class WaitingSubscribers:
    """The instance subscriptions that match a batch, each with the rows of the messages, in order."""

    found: Sequence[tuple[Subscriber, npt.NDArray[np.int64]]]
    subscribers: Mapping[int, Subscriber]
    """All subscribers, including those of activation subscriptions."""

    @classmethod
    def find(cls, connection: Connection, routing: Routing, columns: Columns, rows: int) -> WaitingSubscribers:
        """Query the MessageBox once, and only if instances wait by properties of the batch."""
        if not rows or not routing.correlation_types:
            return cls(found=(), subscribers=routing.subscribers)
        arrays: dict[int, npt.NDArray[np.int64]] = {}
        found = [
            # Subscriptions with the same correlation share the rows.
            (one, arrays.setdefault(id(matched), np.array(matched, dtype=np.int64)))
            for one, matched in find_instance_subscribers(connection, find_correlations(columns, rows, routing))
        ]
        own = {one.subscription_id: one for one, _ in found}
        return cls(found=found, subscribers=ChainMap(own, routing.subscribers) if own else routing.subscribers)

    def add_to(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces with the matches of these subscriptions. A piece that becomes too large is divided."""
        for piece in pieces:
            yield from self._add_to_piece(piece) if self.found else (piece,)

    def _add_to_piece(self, piece: Piece) -> Iterator[Piece]:
        start, end = piece.start, piece.end
        parts = [matched[slice(*np.searchsorted(matched, [start, end]))] for _, matched in self.found]
        if sum(map(len, parts)) > MATCHES_PER_PIECE and end - start > 1:
            middle = (start + end) // 2
            at = int(np.searchsorted(piece.rows, middle))
            yield from self._add_to_piece(Piece(start, middle, piece.rows[:at], piece.ids[:at]))
            yield from self._add_to_piece(Piece(middle, end, piece.rows[at:], piece.ids[at:]))
            return
        own = [np.full(len(part), one.subscription_id) for (one, _), part in zip(self.found, parts, strict=True)]
        rows, ids = np.concatenate([piece.rows, *parts]), np.concatenate([piece.ids, *own])
        order = np.lexsort((ids, rows))
        yield Piece(start, end, rows[order], ids[order])


def match_batch(
    connection: Connection, routing: Routing, columns: Columns, rows: int, predicates: Sequence[Predicates]
) -> MatchResult:
    """Return all matches of a batch at once. Each row has its own ``predicates``."""
    waiting = WaitingSubscribers.find(connection, routing, columns, rows)
    matches = BatchMatches(routing, columns, rows, predicates, waiting)
    pieces = list(matches)
    if len(pieces) == 1:
        return pieces[0]
    rows_of, ids, convoys = _join(pieces)
    return MatchResult(
        version=routing.version,
        rows=rows_of,
        subscription_ids=ids,
        subscribers=waiting.subscribers,
        host_names=routing.host_names,
        convoys=convoys,
        unauthorised_hosts=matches.unauthorised_hosts,
    )


def _join(
    pieces: Sequence[MatchResult],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], dict[int, Convoy]]:
    """Return the rows, the subscription ids and the convoys of all pieces."""
    convoys: dict[int, Convoy] = {}
    pairs = 0
    for piece in pieces:
        convoys |= {pairs + pair: convoy for pair, convoy in piece.convoys.items()}
        pairs += len(piece.rows)
    nothing = np.empty(0, dtype=np.int64)
    rows = np.concatenate([nothing, *(piece.rows for piece in pieces)])
    return rows, np.concatenate([nothing, *(piece.subscription_ids for piece in pieces)]), convoys


def find_convoys(
    columns: Columns,
    rows: int,
    found: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    subscribers: Mapping[int, Subscriber],
    convoy_sets: Mapping[int, Sequence[str]],
    value_types: Mapping[str, ValueType],
) -> dict[int, Convoy]:
    """Return the convoys of pairs, by the number of the pair. A message that lacks a property is in no convoy."""
    convoys: dict[int, Convoy] = {}
    for subscription_id in np.unique(ids).tolist() if convoy_sets else ():
        convoy_set_id = subscribers[subscription_id].convoy_set_id
        if convoy_set_id is None:
            continue
        values = to_value_keys(columns, convoy_sets[convoy_set_id], rows, value_types)
        if values is None:
            continue
        for pair in np.flatnonzero(ids == subscription_id).tolist():
            if (complete := get_complete_values(values[found[pair]])) is not None:
                convoys[pair] = Convoy(convoy_set_id=convoy_set_id, values=complete)
    return convoys


def _authorise(
    matches: MatchResult,
    routing: Routing,
    predicates: Sequence[Predicates],
    predicates_of: npt.NDArray[np.int64],
) -> MatchResult:
    """Return the pairs whose hosts have the application properties that the messages require (SEC-01 … 06)."""
    distinct = list(dict.fromkeys(predicates))
    kind = np.array([distinct.index(group) for group in predicates])[predicates_of[matches.rows]]
    subscriptions, subscription_of = np.unique(matches.subscription_ids, return_inverse=True)
    hosts = [matches.subscribers[subscription].host_id for subscription in subscriptions.tolist()]
    shown = [routing.application_properties.get(host, NO_APPLICATION_PROPERTIES) for host in hosts]
    table = np.array([[may_receive(group, properties) for properties in shown] for group in distinct])
    is_allowed: npt.NDArray[np.bool_] = table[kind, subscription_of]
    unauthorised: defaultdict[int, set[str]] = defaultdict(set)
    for pair in np.flatnonzero(~is_allowed).tolist():
        name = routing.host_display_names.get(hosts[int(subscription_of[pair])], "")
        unauthorised[int(matches.rows[pair])].add(name)
    return replace(matches.select(is_allowed), unauthorised_hosts=unauthorised)
