"""The client: publish messages from any Python program.

    import postroom

    with postroom.connect(home="orders-home") as client:
        published = client.publish(b'{"region": "EU"}', promoted={"Orders.Region": "EU"}, key="order-4711")
        published.message_id, published.subscribers             # UUID(...), ("Europe",)

A publish is atomic. If one of its messages has no subscriber or a wrong value, nothing is published, and PublishFailed
has the reason for each message. NotAllowed means that the login may not publish.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast

from postroom.agent.addressing import direct_context
from postroom.agent.direct.direct_agent import DirectAgent, Outbox
from postroom.agent.direct.direct_batch import Published
from postroom.agent.routing.table import RoutingTable
from postroom.client.content import Content, Parts, Values, list_messages
from postroom.client.program_requests import ProgramRequest, ProgramRequests
from postroom.client.subscription import Subscription, SubscriptionSettings
from postroom.correlation_tokens import copy_token
from postroom.errors import (
    BadValue,
    CorrelationFailure,
    MessageBoxUnavailable,
    NoResponse,
    NotFound,
    PublishFailed,
    StateError,
    Unavailable,
)
from postroom.filters.expression import Filter
from postroom.filters.text import parse
from postroom.lookups import Lookup
from postroom.lookups.cache import LookupCache
from postroom.message import Body, Context, Message
from postroom.messagebox.configuration.hosts import get_publishing_host
from postroom.messagebox.configuration.properties import find_property, read_deployed_properties
from postroom.messagebox.connection import Connection
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import connect_to_messagebox
from postroom.messagebox.throttling.load import ThrottleWatch
from postroom.messagebox.throttling.pace import PUBLISH_WAIT, find_pauses
from postroom.processes.garbage_collection import delay_garbage_collection
from postroom.properties import Property, dotted_name, split_key
from postroom.system_properties import BTS
from postroom.throttling.states import Throttle

T = TypeVar("T")
_NAME = "postroom client"


def connect(
    database: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    host: str | None = None,
    throttle_wait: float = PUBLISH_WAIT,
) -> Client:
    """Connect to a MessageBox: the one at the URL ``database``, or at the URL in POSTROOM_DATABASE, or the embedded one
    in the folder ``home`` (by default the current folder). The embedded server runs at least as long as the client.

    Messages are published on behalf of ``host``, by default the default host. They are suspended there if they ask to
    be suspended. While the programs of the host are throttled, a publish waits for up to ``throttle_wait`` seconds and
    then raises Throttled.
    """
    url = database or os.environ.get("POSTROOM_DATABASE") or None
    if url is not None:
        return Client(url, host=host, throttle_wait=throttle_wait)
    folder = server_folder(Path(home or ".").absolute())
    if not folder.exists():
        raise NotFound(
            f"There is no MessageBox in {Path(home or '.').absolute()}.",
            why="Neither database= nor POSTROOM_DATABASE is set, and there is no embedded MessageBox in this folder.",
            hint="Pass database= or home=, or create one: postroom apply APP --home DIR, or postroom up APP --home DIR",
        )
    server = EmbeddedServer(folder)
    server.start()
    try:
        return Client(server.url(), host=host, server=server, throttle_wait=throttle_wait)
    except BaseException:
        server.stop()
        raise


class Client:
    """Publishes over one connection, with an index of the subscriptions in memory.

    Threads may share a client, which publishes for one of them at a time. Connect several clients to publish in
    parallel. A client cannot be used after a fork.
    """

    def __init__(
        self,
        url: str,
        *,
        host: str | None = None,
        server: EmbeddedServer | None = None,
        throttle_wait: float = PUBLISH_WAIT,
    ) -> None:
        self._throttle_wait = throttle_wait
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._url = url
        self._server = server
        self._lock = threading.Lock()
        self._routing = RoutingTable()
        self._known: Mapping[str, Property] = {}
        self._requests: ProgramRequests | None = None
        self._lookups = LookupCache(self._connect)
        self._connection = self._connect()
        try:
            self._host = get_publishing_host(self._connection, host)
        except BaseException:
            self._connection.close()
            raise
        self._agent = DirectAgent(self._connection, self._host, self._routing)
        self._throttle = ThrottleWatch(self._host.host_id)
        self._closed = False

    def publish(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        **content: Unpack[Content],
    ) -> Published:
        """Publish one message and return its subscribers.

        ``content`` is described at Content. A Message has its properties and parts already. For ``key`` see
        ``publish_many``."""
        [published] = self.publish_many([self._build_message(body, **content)], key=key)
        return published

    def request(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        **content: Unpack[Content],
    ) -> Message:
        """Publish a request, and return its response: the first one that a two-way send port or a program publishes.

        ``key`` is an idempotency key: a request that is repeated with it is published once, and gets the same response.
        Raise ResponseTimeout after ``timeout`` seconds, and NoResponse if the request could not be sent or its response
        could not be processed. No transaction is open while it waits, and other threads can use the client."""
        response = self.start_request(body, key=key, timeout=timeout, **content)
        try:
            return response.result()
        finally:
            response.cancel()

    def start_request(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        response: Future[Message] | None = None,
        **content: Unpack[Content],
    ) -> Future[Message]:
        """Publish a request, and return the future of its response without waiting: ``response``, or a new one. Cancel
        the future to stop waiting."""
        message = self._build_message(body, is_request=True, **content)
        self._wait_while_throttled([message])
        return self._publish_request(message, key=key, timeout=timeout, response=response)

    def _publish_request(
        self, message: Message, *, key: str | None, timeout: float, response: Future[Message] | None
    ) -> Future[Message]:
        """Publish a request, as ``start_request`` does, even if programs are throttled."""
        with self._open_connection():
            self._check_properties([message])
            if self._requests is None:
                self._requests = ProgramRequests(self._connect, self._host)
            requests = self._requests
            unit = None if key is None else self._repeat(True, lambda: self._agent.find_unit(key))
            request = requests.start(message, Future() if response is None else response, timeout=timeout, unit=unit)
            try:
                published = self._repeat(key is not None, lambda: self._send_request(requests, request, message))
            except BaseException:
                requests.stop_waiting(request)
                raise
            if published.suspended:
                requests.stop_waiting(request)
                raise NoResponse("The request has no subscriber. It was suspended, as the message requires.")
            if published.repeated:
                requests.take_over(request)
            requests.confirm(request, follows=request.has_key)
            return request.future

    def directed_to(self, name: str, context: Context | None = None) -> Context:
        """Return the context with the properties that direct a message to the send port or send port group ``name``."""
        with self._open_connection():
            return direct_context(self._connection, name, Context() if context is None else context)

    def publish_many(self, messages: Iterable[Message], *, key: str | None = None) -> list[Published]:
        """Publish all of these messages or none of them.

        ``key`` is an idempotency key. As long as receipts are kept (seven days), a second publish under the same key
        publishes nothing and returns the first result. It raises KeyReused if bodies, properties or order differ. After
        a lost connection the client repeats the publish once. Without a key it raises Unavailable instead, because the
        messages may or may not have been published.

        While the programs of the host are throttled, it waits and then raises Throttled (see ``connect``). Messages
        that finish work do not wait: responses, and what a program publishes while it processes a received message."""
        published = list_messages(messages)
        self._wait_while_throttled(published)
        return self._publish_now(published, key)

    def _publish_now(self, messages: Sequence[Message], key: str | None) -> list[Published]:
        """Publish these messages, as ``publish_many`` does, even if programs are throttled."""
        with self._open_connection(), delay_garbage_collection():
            return self._repeat(key is not None, lambda: self._publish(messages, key))

    def subscribe(self, name: str, filter: Filter | str, **settings: Unpack[SubscriptionSettings]) -> Subscription:
        """Create the durable subscription ``name``, or continue it with this filter.

        ``settings`` are described at SubscriptionSettings. Close the subscription before the client."""
        with self._open_connection():
            properties = read_deployed_properties(self._connection) if isinstance(filter, str) else []
        parsed = parse(filter, properties) if isinstance(filter, str) else filter
        subscription = Subscription(self._connect, self._host, name, parsed, self._reply, **settings)
        self._subscriptions.add(subscription)
        return subscription

    def lookup(self, name: str) -> Lookup:
        """Return the lookup with this name: ``client.lookup("Customers").get("C-17")``. Close the client after its last
        use."""
        return Lookup(name, self._lookups)

    def close(self) -> None:
        """Close the connection and the embedded server. Requests that wait raise StateError. May be called twice."""
        with self._lock:
            self._closed = True
            requests, self._requests = self._requests, None
        if requests is not None:
            requests.close()
        self._lookups.close()
        with self._lock:
            self._connection.close()
            if self._server is not None:
                self._server.stop()

    def _wait_while_throttled(self, messages: Sequence[Message]) -> None:
        for pause in self._find_pauses(messages):
            time.sleep(pause)

    def _find_pauses(self, messages: Sequence[Message]) -> Iterator[float]:
        """Yield the seconds to wait while programs are throttled. Neither the connection nor a transaction is used
        meanwhile. Messages that finish work do not wait, because they reduce the load."""
        if all(message.context.promoted.get(BTS.RouteDirectToTP.key) for message in messages):
            return
        if not any(subscription._has_unfinished for subscription in list(self._subscriptions)):
            yield from find_pauses(self._get_throttle, self._throttle_wait)

    def _get_throttle(self) -> Throttle | None:
        # The publish decides what a lost connection means.
        with self._open_connection(), suppress(MessageBoxUnavailable):
            return self._throttle.current(self._connection, None)
        return None

    @contextmanager
    def _open_connection(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StateError("The client is closed.", hint="Connect again.")
            if self._connection.closed:
                self._reconnect()
            yield

    def _build_message(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None,
        *,
        is_request: bool = False,
        to: str | None = None,
        promoted: Values | None = None,
        written: Values | None = None,
        predicates: Values | None = None,
        **parts: Unpack[Parts],
    ) -> Message:
        """Return the message of a publish or a request."""
        if isinstance(body, Message):
            if promoted or written or predicates or parts:
                raise BadValue(
                    "A Message already has its properties and parts.",
                    hint="Pass them to Message.of(...), or pass the body instead of the message.",
                )
            message = body
        else:
            message = Message.of(
                body,
                promoted=self._by_name(promoted),
                written=self._by_name(written),
                predicates=self._by_name(predicates),
                **parts,
            )
        if to is None:
            return message
        with self._open_connection():
            context = direct_context(self._connection, to, message.context, for_request=is_request)
        return replace(message, context=context)

    def _publish(self, messages: Sequence[Message], key: str | None) -> list[Published]:
        self._check_properties(messages)
        return self._agent.publish(messages, key=key)

    def _send_request(self, requests: ProgramRequests, request: ProgramRequest, message: Message) -> Published:
        requests.use_queue(self._connection)
        [published] = self._agent.publish_with(requests.build_publication(message, request))
        return published

    def _reply(
        self,
        request: Context,
        complete: Callable[[Connection], None],
        body: bytes | bytearray | memoryview | Body | Message | None,
        **content: Unpack[Content],
    ) -> Published:
        """Publish the response to a request in the transaction that completes it. It does not wait while programs are
        throttled. A response whose caller is gone is suspended (RR-05)."""
        message = self._build_message(body, **content)
        response = message.with_context(copy_token(request, message.context))

        def work(connection: Connection, outbox: Outbox) -> None:
            complete(connection)
            outbox.answer(response)

        def suspend(error: PublishFailed) -> bool:
            nonlocal response
            response = replace(response, context=response.context.promote(BTS.SuspendMessageOnRoutingFailure, True))
            return isinstance(error.results[0].failure, CorrelationFailure)

        with self._open_connection():
            self._check_properties([response])
            # It can be repeated: the request is completed once.
            [published] = self._repeat(True, lambda: self._agent.transaction(work, correct=suspend))
            return published

    def _repeat(self, is_repeatable: bool, publish: Callable[[], T]) -> T:
        """Call ``publish``, and once again if the connection is lost and it can be repeated."""
        try:
            return publish()
        except MessageBoxUnavailable as error:
            if not self._connection.closed:
                raise
            if not is_repeatable:
                raise Unavailable(
                    "The connection was lost during a publish. The messages may or may not have been published.",
                    why=error.why,
                    hint="Pass a different key= with each call. Then a call can be repeated safely.",
                ) from error
            self._reconnect()
            return publish()

    def _check_properties(self, messages: Sequence[Message]) -> None:
        # An unknown property is a typing error: no filter can name it, and no host can have it.
        contexts = [message.context for message in messages]
        named = {name for context in contexts for name in context.promoted}
        named.update(name for context in contexts for name, _ in context.predicates)
        for name in sorted(named - self._known.keys()):
            self._find_property(dotted_name(*split_key(name)))

    def _by_name(self, values: Values | None) -> dict[Property, object]:
        """Replace names of properties with the properties."""
        named = {prop for prop in values or {} if isinstance(prop, str)}
        if not named:
            return cast(dict[Property, object], values or {})
        with self._open_connection():
            meant = {name: self._find_property(name) for name in named}
        return {meant[prop] if isinstance(prop, str) else prop: value for prop, value in (values or {}).items()}

    def _find_property(self, name: str) -> Property:
        """Return a deployed property. Read the deployed properties again if it is not known yet."""
        try:
            return find_property(name, self._known.values())
        except NotFound:
            try:
                deployed = read_deployed_properties(self._connection)
            except MessageBoxUnavailable:
                if not self._connection.closed:
                    raise
                self._reconnect()  # reading can be repeated
                deployed = read_deployed_properties(self._connection)
            self._known = {prop.key: prop for prop in deployed}
            return find_property(name, self._known.values())

    def _reconnect(self) -> None:
        if self._server is not None:
            self._server.start()  # it may have crashed
        self._connection = self._connect()
        self._agent = DirectAgent(self._connection, self._host, self._routing)

    def _connect(self) -> Connection:
        return connect_to_messagebox(self._url, application_name=_NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
