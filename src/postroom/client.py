"""Publishing from Python, by anybody.

    import postroom

    with postroom.connect(home="orders-home") as client:
        published = client.publish(b'{"region": "EU"}', promoted={Region: "EU"}, key="order-4711")
        published.message_id, published.subscribers             # UUID(...), ("Audit", "Europe")

A publish is atomic. If nobody subscribes to one of its messages (or a value does not fit) nothing is published, and
PublishFailed says for each message what was wrong with it. NotAllowed says that the login may not publish.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.direct.message_batch import Published
from postroom.agent.routing.table import RoutingTable
from postroom.errors import BadValue, MessageBoxUnavailable, NotFound, StateError, Unavailable
from postroom.message import Body, Context, Message, Part
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.operations.hosts import publishing_host
from postroom.operations.opening import open_messagebox
from postroom.operations.ports.addressing import directed_to
from postroom.operations.properties import deployed_properties, property_named
from postroom.properties import Property
from postroom.values import type_of

_NAME = "postroom client"

#: Values of properties, which may be given by their names.
Values = Mapping[Property, object] | Mapping[str, object]


def connect(
    database: str | None = None, *, home: str | os.PathLike[str] | None = None, host: str | None = None
) -> Client:
    """A client of the MessageBox at the URL ``database``, or without one, at that in POSTROOM_DATABASE; else of the
    embedded one in the folder ``home`` (the current folder by default), whose server then runs as long as the client.

    ``host`` is the host on whose behalf messages are published: where they are suspended, if they ask for that. The
    default host by default.
    """
    url = database or os.environ.get("POSTROOM_DATABASE") or None
    if url is not None:
        return Client(url, host=host)
    folder = server_folder(Path(home or ".").absolute())
    if not folder.exists():
        raise NotFound(
            f"There is no MessageBox in {Path(home or '.').absolute()}.",
            why="Neither a database nor POSTROOM_DATABASE is given, and no embedded one was ever started there.",
            hint="Pass database= or home=, or make one: postroom apply APP --home DIR, or postroom up APP --home DIR",
        )
    server = EmbeddedServer(folder)
    server.start()
    try:
        return Client(server.url(), host=host, server=server)
    except BaseException:
        server.stop()
        raise


class Client:
    """Publishes over one connection, with an index of the subscriptions in memory.

    Threads may share a client: their publishes come one after another. For more at a time, connect several. A client
    does not survive a fork.
    """

    def __init__(self, url: str, *, host: str | None = None, server: EmbeddedServer | None = None) -> None:
        self._url = url
        self._server = server
        self._lock = threading.Lock()
        self._routing = RoutingTable()
        self._known: Mapping[str, Property] = {}
        self._connection = open_messagebox(url, application_name=_NAME)
        try:
            self._host = publishing_host(self._connection, host)
        except BaseException:
            self._connection.close()
            raise
        self._agent = MessageAgent(self._connection, self._host, self._routing)
        self._closed = False

    def publish(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        promoted: Values | None = None,
        written: Values | None = None,
        predicates: Values | None = None,
        content_type: str = "application/octet-stream",
        parts: Iterable[Part] = (),
        to: str | None = None,
        key: str | None = None,
    ) -> Published:
        """Publishes one message and says who receives it.

        Only ``promoted`` properties take part in routing; ``written`` ones are carried along. Only hosts whose
        application properties equal all ``predicates`` receive it. A deployed property may be given by its name
        (``{"Orders.Region": "EU"}``). A whole Message has all of that already. ``to`` is the name of a send port or a
        send port group that gets the message, besides everybody whose filter it meets. See ``publish_many`` for
        ``key``.
        """
        if isinstance(body, Message):
            if promoted or written or predicates or parts:
                raise BadValue(
                    "A message that is published whole has its properties already, and its parts.",
                    hint="Give them to Message.of(...), or pass the body instead of the message.",
                )
            message = body
        else:
            message = Message.of(
                body,
                promoted=self._by_name(promoted),
                written=self._by_name(written),
                predicates=self._by_name(predicates),
                parts=parts,
                content_type=content_type,
            )
        if to is not None:
            message = replace(message, context=self.directed_to(to, message.context))
        (published,) = self.publish_many([message], key=key)
        return published

    def directed_to(self, name: str, context: Context | None = None) -> Context:
        """The context with the properties that direct a message to the send port or send port group of that name."""
        with self._opened():
            return directed_to(self._connection, name, Context() if context is None else context)

    def publish_many(self, messages: Sequence[Message], *, key: str | None = None) -> list[Published]:
        """Publishes all of these messages or none of them.

        ``key`` names this publish. Under the same key nothing is published twice as long as receipts are kept (days):
        the second time gives the first answer. So a publish whose answer was lost can be repeated, and after a lost
        connection is repeated here, once. Without a key, Unavailable says that nobody knows whether it happened.
        """
        with self._opened():
            try:
                return self._publish(messages, key)
            except MessageBoxUnavailable as error:
                if not self._connection.closed:
                    raise
                if key is None:
                    raise Unavailable(
                        "The connection was lost while messages were published; they may or may not have been.",
                        why=error.why,
                        hint="Give each publish a key= of its own: then it can be repeated without harm.",
                    ) from error
                self._reconnect()
                return self._publish(messages, key)

    def close(self) -> None:
        """Gives up the connection, and the share in the embedded server; may be called again."""
        with self._lock:
            self._closed = True
            self._connection.close()
            if self._server is not None:
                self._server.stop()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StateError("The client is closed.", hint="Connect again.")
            if self._connection.closed:
                self._reconnect()
            yield

    def _publish(self, messages: Sequence[Message], key: str | None) -> list[Published]:
        # A property that nobody knows is a slip of the pen: no filter can name it, and no host show it.
        unknown = [
            Property.from_key(name, type_of(value))
            for message in messages
            for name, value in (*message.context.promoted.items(), *message.context.predicates)
            if name not in self._known
        ]
        for prop in unknown:
            self._property_named(prop.dotted)
        return self._agent.publish(messages, key=key)

    def _by_name(self, values: Values | None) -> dict[Property, object]:
        """With the properties that the names mean."""
        named = {prop for prop in values or {} if isinstance(prop, str)}
        if not named:
            return cast(dict[Property, object], values or {})
        with self._opened():
            meant = {name: self._property_named(name) for name in named}
        return {meant[prop] if isinstance(prop, str) else prop: value for prop, value in (values or {}).items()}

    def _property_named(self, name: str) -> Property:
        """A deployed property; what was deployed since the last look is known, too."""
        try:
            return property_named(name, self._known.values())
        except NotFound:
            try:
                deployed = deployed_properties(self._connection)
            except MessageBoxUnavailable:
                if not self._connection.closed:
                    raise
                self._reconnect()  # reading does no harm
                deployed = deployed_properties(self._connection)
            self._known = {prop.key: prop for prop in deployed}
            return property_named(name, self._known.values())

    def _reconnect(self) -> None:
        if self._server is not None:
            self._server.start()  # it may have crashed, with everybody else's connection
        self._connection = open_messagebox(self._url, application_name=_NAME)
        self._agent = MessageAgent(self._connection, self._host, self._routing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
