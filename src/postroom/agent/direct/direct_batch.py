"""A batch of the direct lane: all messages are accepted, or none.

A few messages are inserted by one statement, which has a call for each of them. More messages, and those that are
suspended, are written by COPY, as in the streaming lane.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg.pq import TransactionStatus

from postroom.agent.acknowledgements import is_acknowledgement
from postroom.agent.error_messages import has_routing_failure_report, is_suspended_as_non_resumable
from postroom.agent.idempotency import IdKind, derive_id
from postroom.agent.originator import PublisherLogin, has_originator, resolve_originator, to_stored_originator
from postroom.agent.publish import PublishBatch, lock_current
from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.matching import IndexMatcher, Matcher, routing_failure
from postroom.agent.routing.routes import OrderedRoutes, RoutedMessages
from postroom.agent.routing_failure_reports import RoutingFailureReport, write_suspensions
from postroom.correlation_tokens import find_reply_address
from postroom.errors import (
    BadValue,
    CorrelationFailure,
    DuplicateKey,
    LoopDetected,
    MessageFailure,
    PublishFailed,
    PublishResult,
    RoutingFailure,
    StateError,
    restore_failure,
)
from postroom.hops import count_hops
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection, Precondition, select_calls
from postroom.messagebox.queues import Cause, QueueTask, check_claim
from postroom.messagebox.routing import RoutingLock
from postroom.messagebox.storage.copy_rows import SuspendedRow, write_fragments, write_messages
from postroom.messagebox.storage.inserts import build_inserts
from postroom.messagebox.storage.receipts import Receipt, build_outcome_call, read_outcome, take_receipts
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import ValueType, type_of

#: Maximum number of messages that are inserted by calls. COPY takes a dozen round trips for any number of messages, and
#: less time for each of them.
MAX_CALLS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What became of one message: its subscribers, or that it was suspended because it has none. An acknowledgement
    without subscribers is dropped."""

    message_id: uuid.UUID
    subscribers: tuple[str, ...]
    suspended: bool = False
    repeated: bool = field(default=False, compare=False)
    """True if nothing was published now. This is the outcome of the first publish with the same key."""


class UnroutableMessages(Exception):
    """Some messages have no subscriber and are not to be suspended. The publish fails, with a report about each."""

    def __init__(self, failures: PublishFailed, reports: Sequence[RoutingFailureReport]) -> None:
        super().__init__(failures)
        self.failures = failures
        self.reports = reports


@dataclass(frozen=True, kw_only=True)
class SuspendedAt:
    """The send port or receive location that the suspended messages of a publication belong to."""

    service_id: uuid.UUID
    adapter: str
    uri: str
    resumable: bool
    """False if nobody waits for what a resumed message would do."""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Messages that are published together, and the other changes of the same transaction."""

    messages: Sequence[Message]
    unit: uuid.UUID = field(default_factory=uuid.uuid4)
    """The ids of instances and reports derive from it. With a ``digest`` it only identifies the receipt, and the ids
    derive from a random unit: the key may come again after the receipt was purged."""
    digest: bytes | None = None
    """Of a publish with an idempotency key: what the same key must come with again."""
    failures: Mapping[int, MessageFailure] = field(default_factory=dict)
    """The messages that have failed before, by row. They are not matched."""
    answers: Collection[uuid.UUID] = ()
    """The messages that answer requests. An answer whose caller is gone is suspended, even if it has other subscribers
    (RR-05, RR-07)."""
    precondition: Precondition | None = None
    """Comes first. If it changes nothing, nothing is written, and ClaimLost is raised."""
    awaited_by: uuid.UUID | None = None
    """Of a request: the instance that waits for the response. The precondition creates its subscription, unless the
    request is suspended (RR-02)."""
    suspended_at: SuspendedAt | None = None


class DirectBatch(PublishBatch):
    """A publication of a host."""

    def __init__(self, host: Host, publication: Publication, matcher: Matcher) -> None:
        self.published: list[Published] = []
        self._host = host
        self._publication = publication
        self._messages = publication.messages
        self._matcher = matcher
        self._digest = publication.digest
        self._unit = publication.unit if self._digest is None else uuid.uuid4()
        self._login = PublisherLogin()
        self._hosts: Collection[str] = ()
        self._failures: Mapping[int, MessageFailure | BadValue] = publication.failures
        self.suspended: dict[int, MessageFailure | BadValue] = {}
        """The reasons why messages are suspended, by row."""

    @property
    def hosts(self) -> Collection[str]:
        return self._hosts

    @property
    def needs_transaction(self) -> bool:
        return (
            self._digest is not None
            or not isinstance(self._matcher, IndexMatcher)
            or len(self._messages) > MAX_CALLS
            or any(part.body.size > FRAGMENT_SIZE for message in self._messages for part in message.parts)
        )

    def prepare(self, connection: Connection) -> bool:
        if len({message.message_id for message in self._messages}) != len(self._messages):
            raise StateError("The same message is twice in one batch.", hint="Publish each message once.")
        if self._digest is not None and not take_receipts(connection, [Receipt(unit=self._publication.unit)]):
            self._repeat(read_outcome(connection, self._publication.unit, self._digest))
            return False
        bad_values = _find_bad_values(self._matcher.value_types(connection), self._messages)
        self._failures = {**_find_loops(self._messages, self._host.max_hops), **bad_values, **self._failures}
        if any(not self._is_suspended(row, failure) for row, failure in self._failures.items()):
            raise PublishFailed(_build_results(self._messages, self._failures, {}))
        if any(has_originator(message.context) for message in self._messages):
            self._login = self._matcher.login(connection)
            self._messages = [
                replace(message, context=resolve_originator(message.context, self._login)) for message in self._messages
            ]
        for message in self._messages:
            if not is_acknowledgement(message.context):
                _write_large_bodies(connection, message)
        return bool(self._messages) or self._digest is not None

    def _repeat(self, outcome: Mapping[str, Any]) -> None:
        """Use the outcome of the first publish with the same key."""
        suspended = set(outcome["suspended"])
        published = zip(outcome["message_ids"], outcome["subscribers"], strict=True)
        self.published = [
            Published(message_id=uuid.UUID(one), subscribers=tuple(names), suspended=row in suspended, repeated=True)
            for row, (one, names) in enumerate(published)
        ]
        if (failure := outcome.get("failure")) is not None:
            self.suspended = {0: restore_failure(*failure)}

    def match(self, connection: Connection) -> int:
        matches = self._find_subscribers(connection)
        routed = set(matches.rows.tolist())
        failures: dict[int, MessageFailure | BadValue] = {
            row: self._failures.get(row) or _to_routing_failure(message, matches.unauthorised_hosts.get(row, ()))
            for row, message in enumerate(self._messages)
            # An acknowledgement without subscribers is dropped without a failure or a report (NRF-11).
            if row not in routed and (row in self._failures or not is_acknowledgement(message.context))
        }
        failures |= self._find_lost_answers(matches)
        rejected = {row: failure for row, failure in failures.items() if not self._is_suspended(row, failure)}
        if rejected:
            lock_current(connection, matches.version)
            raise self._reject(rejected)
        self.suspended = failures
        self._stored_rows = sorted(routed | failures.keys())
        for row in self._stored_rows:
            if is_acknowledgement(self._messages[row].context):
                _write_large_bodies(connection, self._messages[row])
        subscribers: list[list[str]] = [[] for _ in self._messages]
        for row, subscription_id in zip(matches.rows.tolist(), matches.subscription_ids.tolist(), strict=True):
            subscribers[row].append(matches.subscribers[subscription_id].service_name)
        self.published = [
            Published(
                message_id=message.message_id,
                subscribers=tuple(sorted(subscribers[row])),
                suspended=row in failures,
            )
            for row, message in enumerate(self._messages)
        ]
        self._version = matches.version
        self._routed = RoutedMessages(self._messages, matches, [self._unit] * len(self._messages))
        self._routed.count_in_rows(suspended=failures)
        return matches.version

    def _is_suspended(self, row: int, failure: MessageFailure | BadValue) -> bool:
        """Return True if a message that has failed is suspended. Otherwise the publish fails. A loop is suspended, but
        not a request: nobody would answer it."""
        context = self._messages[row].context
        if isinstance(failure, LoopDetected) and find_reply_address(context) is None:
            return True
        return context.get(BTS.SuspendMessageOnRoutingFailure) is True

    def _find_lost_answers(self, matches: MatchResult) -> dict[int, MessageFailure | BadValue]:
        """Return the failures of answers whose caller is gone."""
        answers = self._publication.answers
        if not answers:
            return {}
        pairs = zip(matches.rows.tolist(), matches.subscription_ids.tolist(), strict=True)
        with_caller = {row for row, subscription_id in pairs if matches.subscribers[subscription_id].is_caller}
        return {
            row: CorrelationFailure()
            for row, message in enumerate(self._messages)
            if message.message_id in answers and row not in with_caller
        }

    def _find_subscribers(self, connection: Connection) -> MatchResult:
        """Match the messages that have not failed. A message that has failed has no subscribers."""
        if not self._failures:
            return self._matcher.match(connection, self._messages)
        good = [row for row in range(len(self._messages)) if row not in self._failures]
        return self._matcher.match(connection, [self._messages[row] for row in good]).with_rows(good)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def _precondition(self) -> Precondition | None:
        """What has to change first. A request that is suspended waits for no response."""
        is_request = self._publication.awaited_by is not None
        return None if is_request and self.suspended else self._publication.precondition

    def insert_in_one_statement(self, connection: Connection) -> bool:
        routes = self._routed.routes
        # Each call locks the order of its own message. All ordered subscriptions are locked at once.
        needs_order = len(self._messages) > 1 and routes.has_ordered
        if len(self._messages) > MAX_CALLS or self.suspended or needs_order or routes.has_stopped_convoys:
            return False
        if routes.has_convoys:
            if connection.info.transaction_status is TransactionStatus.IDLE:
                return False
            routes.locate_convoys(connection)
        calls = [
            call
            for row in self._stored_rows
            for call in build_inserts(self._version, self._messages[row], routes.get_pairs(row))
        ]
        if self._digest is not None:
            calls.append(build_outcome_call(self._publication.unit, self._build_outcome(), self._digest))
        if not calls:
            return self._precondition is None
        with _translate_duplicates():
            check_claim(select_calls(connection, calls, precondition=self._precondition))
        self._hosts = routes.hosts
        return True

    def write_messages(self, connection: Connection) -> None:
        precondition = self._precondition
        check_claim(precondition is None or precondition.apply(connection))
        reports = [report.message for report in self._build_reports()]
        stored = [self._messages[row] for row in self._stored_rows] + reports
        with _translate_duplicates():
            write_messages(
                connection,
                [(message, message.context.to_json()) for message in stored],
                originators=[to_stored_originator(message.context, self._login) for message in stored],
                with_fragments=False,
                only_references=self._routed.only_references[self._stored_rows].tolist() + [False] * len(reports),
            )

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        self._routed.write(connection, lock, ordered)
        self._hosts = self._routed.routes.hosts
        rows = [self._build_suspended_row(row, failure) for row, failure in self.suspended.items()]
        write_suspensions(connection, self._host.name.lower(), lock, rows=rows, reports=self._build_reports())
        if self._digest is not None:
            select_calls(connection, [build_outcome_call(self._publication.unit, self._build_outcome(), self._digest)])

    def _build_outcome(self) -> dict[str, Any]:
        """Return the outcome of a publish with a key, for ``_repeat``. It has columns and not an object for each
        message, which takes half of the space and of the time."""
        request: dict[str, Any] = {}
        if self._publication.awaited_by is not None:
            failure = self.suspended.get(0)
            request["instance_id"] = self._publication.awaited_by
            request["failure"] = None if failure is None else (failure.code, failure.what)
        return {
            "message_ids": [message.message_id for message in self.published],
            "subscribers": [message.subscribers for message in self.published],
            "suspended": [row for row, message in enumerate(self.published) if message.suspended],
            "last": len(self.published),
            "done": True,
            **request,
        }

    # -- failures ----------------------------------------------------------------------------------------------

    def _reject(self, failures: Mapping[int, MessageFailure | BadValue]) -> UnroutableMessages:
        unit = uuid.uuid4()  # not that of the publish, which can be repeated and fail again
        reports = {
            row: self._build_report(row, failure, unit=unit, number=row, related=None)
            for row, failure in failures.items()
            if isinstance(failure, RoutingFailure) and has_routing_failure_report(self._messages[row].context)
        }
        report_ids = {row: report.message_id for row, report in reports.items()}
        results = _build_results(self._messages, failures, report_ids)
        return UnroutableMessages(PublishFailed(results), list(reports.values()))

    def _build_reports(self) -> list[RoutingFailureReport]:
        """Return the reports about suspended messages without subscribers. A bad value needs no report: it cannot be
        resumed."""
        return [
            self._build_report(row, failure, unit=self._unit, number=self._number(row), related=self._instance_id(row))
            for row, failure in self.suspended.items()
            if isinstance(failure, RoutingFailure) and has_routing_failure_report(self._messages[row].context)
        ]

    def _number(self, row: int) -> int:
        """Return the first of two numbers for a message, after the numbers of the subscribers."""
        return len(self._routed.routes.messages) + 2 * row

    def _instance_id(self, row: int) -> uuid.UUID:
        return derive_id(self._unit, IdKind.INSTANCE, self._number(row))

    def _build_suspended_row(self, row: int, failure: MessageFailure | BadValue) -> SuspendedRow:
        place = self._publication.suspended_at
        return SuspendedRow(
            message_id=self._messages[row].message_id,
            instance_id=self._instance_id(row),
            host_id=self._host.host_id,
            service_class=self._host.messaging_class,
            service_id=None if place is None else place.service_id,
            task=QueueTask.PUBLISH,
            cause=Cause.FAILURE,
            error_code=failure.code,
            error_description=failure.what if isinstance(failure, BadValue) else str(failure),
            resumable=isinstance(failure, RoutingFailure | LoopDetected)
            and (place is None or place.resumable)
            and not is_suspended_as_non_resumable(self._messages[row].context),
            adapter=None if place is None else place.adapter,
            uri=None if place is None else place.uri,
        )

    def _build_report(
        self, row: int, failure: RoutingFailure, *, unit: uuid.UUID, number: int, related: uuid.UUID | None
    ) -> RoutingFailureReport:
        return RoutingFailureReport(
            message_id=derive_id(unit, IdKind.REPORT, number),
            instance_id=derive_id(unit, IdKind.INSTANCE, number + 1),
            related_instance_id=related,
            last_related_instance_id=related,
            host_id=self._host.host_id,
            context=self._messages[row].context,
            description=failure.what,
        )


@contextmanager
def _translate_duplicates() -> Iterator[None]:
    try:
        yield
    except DuplicateKey as error:
        raise StateError(
            "A message of this batch is in the MessageBox already.",
            why="A stored message is immutable; publishing it again would be another message.",
            hint="Publish a new Message, or pass key= to make a repeated publish harmless.",
        ) from error


def _write_large_bodies(connection: Connection, message: Message) -> None:
    for part in message.parts:
        if part.body.size > FRAGMENT_SIZE:
            write_fragments(connection, part.part_id, part.body)


def _build_results(
    messages: Sequence[Message],
    failures: Mapping[int, MessageFailure | BadValue],
    report_ids: Mapping[int, uuid.UUID],
) -> list[PublishResult]:
    return [
        PublishResult(message_id=message.message_id, failure=failures.get(row), report_id=report_ids.get(row))
        for row, message in enumerate(messages)
    ]


def _to_routing_failure(message: Message, unauthorised_hosts: Collection[str]) -> RoutingFailure:
    context = message.context
    return routing_failure(context.get(BTS.MessageType), context.predicates, unauthorised_hosts)


def _find_loops(messages: Sequence[Message], limit: int) -> dict[int, LoopDetected]:
    """Return the failures of messages that were passed on too often, by row. An answer may have one hop more than its
    request."""
    if all(count_hops(message.context) <= limit for message in messages):
        return {}
    return {
        row: LoopDetected(
            f"The message was passed on {hops} times, and the limit is {limit}: services activate each other.",
            why=f"The last of them are: {message.context.get(BTS.HopServices)}.",
            hint="Correct their filters, and resume the message, which is published once, or terminate it. If a chain "
            "is this long, raise max_hops of the host.",
        )
        for row, message in enumerate(messages)
        if (hops := count_hops(message.context)) > limit + message.context.is_promoted(BTS.RouteDirectToTP)
        and not is_acknowledgement(message.context)
    }


def _find_bad_values(value_types: Mapping[str, ValueType], messages: Sequence[Message]) -> dict[int, BadValue]:
    """Return the failures of messages that have a value of another type than the deployed property, by row. Checks
    promoted values and message predicates."""
    contexts = [message.context for message in messages]
    types = {(key, type(value)) for context in contexts for key, value in context.promoted.items()}
    types |= {(key, type(value)) for context in contexts for key, value in context.predicates}
    if all(value_types.get(key) in (None, ValueType.of(python_type)) for key, python_type in types):
        return {}
    found = {}
    for row, message in enumerate(messages):
        context = message.context
        wrong = {
            **_describe_wrong_types("A promoted value", context.promoted.items(), value_types),
            **_describe_wrong_types("A message predicate", context.predicates, value_types),
        }
        if wrong:
            found[row] = BadValue(
                f"{next(iter(wrong.values()))} has another type than its property: {'; '.join(wrong)}.",
                hint="Give each value the type that its property is deployed with.",
            )
    return found


def _describe_wrong_types(
    what: str, values: Iterable[tuple[str, object]], value_types: Mapping[str, ValueType]
) -> dict[str, str]:
    """Return a description of each value of a wrong type, with ``what`` it is. The value itself is content of the
    message, so it is left out."""
    return {
        f"{Property.from_key(key, wanted).dotted_name} is deployed as {wanted.python_type.__name__}, not"
        f" {type(value).__name__}": what
        for key, value in values
        if (wanted := value_types.get(key)) is not None and type_of(value) is not wanted
    }
