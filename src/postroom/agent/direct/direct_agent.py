"""The direct lane: one caller, one transaction, an immediate result.

    agent = DirectAgent(connection, host, routing=RoutingTable())
    [published] = agent.publish([Message.of(b"...", promoted={Region: "EU"})])
    published.subscribers                                   # ("Audit", "Europe")

A publish is atomic: every message is accepted, or PublishFailed has the failure of each message. With an idempotency
``key`` a publish can be repeated after a lost result: the second call returns the first result and publishes nothing.

A caller can publish in one transaction with other work:

    def publish_with_work(connection: Connection, outbox: Outbox) -> None:
        queues.complete_message(connection, claimed)
        outbox.publish(Message.of(b"...", promoted={OrderNumber: 4711}))

    agent.transaction(publish_with_work)                    # both, or neither
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from postroom.agent.direct.direct_batch import DirectBatch, Publication, Published, UnroutableMessages
from postroom.agent.idempotency import digest_messages, unit_for_key
from postroom.agent.publish import Publisher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.routing_failure_reports import publish_reports
from postroom.errors import BadValue, PublishFailed, PublishResult
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.receipts import read_key_secret
from postroom.system_properties import ENGINE_PROPERTIES, ENGINE_PROPERTY_HINT, describe_engine_properties


class Outbox:
    """The messages of a transaction. They are collected while the caller works, and published right before COMMIT."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        #: The ids of the messages that answer requests.
        self.answers: set[uuid.UUID] = set()

    def publish(self, *messages: Message) -> None:
        """Add messages. Nothing is locked or written yet."""
        self.messages += messages

    def answer(self, message: Message) -> None:
        """Add the answer to a request. It is suspended if its caller is gone."""
        self.messages.append(message)
        self.answers.add(message.message_id)

    def clear(self) -> None:
        """Remove all messages."""
        self.messages.clear()
        self.answers.clear()


class DirectAgent:
    """Publishes over one connection. Messages are matched in memory with a routing table, otherwise in the
    MessageBox. Only the engine itself may promote its own properties (``is_engine``)."""

    def __init__(
        self, connection: Connection, host: Host, routing: RoutingTable | None = None, *, is_engine: bool = False
    ) -> None:
        self._is_engine = is_engine
        self._key_secret: uuid.UUID | None = None
        self._connection = connection
        self._host = host
        self._publisher = Publisher(connection, routing)

    def publish(self, messages: Sequence[Message], *, key: str | None = None) -> list[Published]:
        """Publish all messages or none. ``key`` is an idempotency key. Raise KeyReused if it was used for other
        messages."""
        self._check_promoted(messages)
        unit = uuid.uuid4() if key is None else self.find_unit(key)
        digest = None if key is None else digest_messages(messages)
        return self._run(lambda: Publication(messages=messages, unit=unit, digest=digest))

    def find_unit(self, key: str) -> uuid.UUID:
        """Return the unit of an idempotency key. Programs of other hosts cannot use it."""
        if self._key_secret is None:
            self._key_secret = read_key_secret(self._connection, self._host.host_id)
        return unit_for_key(self._key_secret, key)

    def publish_with(self, publication: Publication) -> list[Published]:
        """Publish messages, and make the other changes of the publication in the same transaction."""
        self._check_promoted(publication.messages)
        return self._run(lambda: publication)

    def transaction(
        self,
        work: Callable[[Connection, Outbox], object],
        *,
        correct: Callable[[PublishFailed], bool] = lambda _: False,
    ) -> list[Published]:
        """Run ``work`` in a transaction, and publish the messages in its outbox before COMMIT: all or nothing.

        ``work`` runs without the routing lock, and may complete messages and change subscriptions. It runs again from
        the start after a deadlock, or if another transaction changed subscriptions. Hosts are woken after COMMIT.
        ``correct`` is called if messages have no subscriber. It returns True if ``work`` publishes other messages now:
        then it runs again, and there is no report about the first ones."""
        unit = uuid.uuid4()
        outbox = Outbox()

        def collect(connection: Connection) -> None:
            outbox.clear()
            work(connection, outbox)
            self._check_promoted(outbox.messages)

        return self._run(
            lambda: Publication(messages=list(outbox.messages), unit=unit, answers=frozenset(outbox.answers)),
            before=collect,
            correct=correct,
        )

    def _check_promoted(self, messages: Sequence[Message]) -> None:
        """Raise PublishFailed if a message promotes what only the engine may promote (PUB-13)."""
        if self._is_engine or all(ENGINE_PROPERTIES.isdisjoint(message.context.promoted) for message in messages):
            return
        raise PublishFailed(
            [PublishResult(message_id=message.message_id, failure=_find_failure(message)) for message in messages]
        )

    def _run(
        self,
        build_publication: Callable[[], Publication],
        *,
        before: Callable[[Connection], object] | None = None,
        correct: Callable[[PublishFailed], bool] = lambda _: False,
    ) -> list[Published]:
        while True:
            try:
                return self._publisher.run(
                    lambda matcher: DirectBatch(self._host, build_publication(), matcher), before=before
                ).published
            except UnroutableMessages as rejected:
                if not correct(rejected.failures):
                    publish_reports(self._connection, self._host, rejected.reports)
                    raise rejected.failures from None


def _find_failure(message: Message) -> BadValue | None:
    what = describe_engine_properties(message.context.promoted)
    return None if what is None else BadValue(what, hint=ENGINE_PROPERTY_HINT)
