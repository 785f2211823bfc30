"""Read the messages that a receive location would make of a file or of a suspended message, without publishing them.

for candidate in read_candidates(connection, location, build_interchange(location, path), path.name, Context()):
    candidate.context, candidate.failure
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from postroom.agent.error_messages import Failure, get_message_type
from postroom.agent.originator import PublisherLogin
from postroom.agent.routing.matching import routing_failure
from postroom.agent.streaming.authentication import authenticate, authentication_failure, find_authenticated
from postroom.agent.streaming.documents import build_context, build_initial_context, get_value_columns
from postroom.agent.streaming.interchange import Chunk, Interchange, read_chunks
from postroom.agent.streaming.suspended_context import resume_interchange
from postroom.clock import system_clock
from postroom.errors import DefinitionError, MessageFailure, NotFound
from postroom.lookups.cache import LookupCache
from postroom.lookups.source import use_source
from postroom.maps.inbound import choose_pipeline
from postroom.message import Context, FileSlice
from postroom.messagebox.configuration.hosts import get_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import QueueTask
from postroom.messagebox.storage.receipts import Progress
from postroom.messagebox.storage.spool import StoredMessage, load_message
from postroom.operations.messages import list_referring_instances
from postroom.ports.receive_locations import ReceiveLocation, find_receive_location, read_receive_locations
from postroom.system_properties import BTS, FILE


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A message that is not published: its title, its context, and the failure that would prevent its publication."""

    title: str
    context: Context
    failure: MessageFailure | None = None
    is_dropped: bool = False
    """It has no authenticated originator, and its receive port drops such messages."""


@dataclass(frozen=True, kw_only=True)
class UnreadMessage:
    """A stored message that goes through its receive pipeline when it is resumed."""

    location: ReceiveLocation | None
    """None if the location is not deployed any more."""
    interchange: Interchange


def find_unread(connection: Connection, message: StoredMessage) -> UnreadMessage | None:
    """Return a message that was suspended before a pipeline read it, as its location would resume it. Return None if a
    pipeline has read it."""
    for instance in list_referring_instances(connection, message.message_id):
        if instance.task is QueueTask.RECEIVE:
            location = None if instance.service_id is None else find_receive_location(connection, instance.service_id)
            interchange = resume_interchange(load_message(connection, message), message.original_context)
            return UnreadMessage(location=location, interchange=interchange)
    return None


def find_location(connection: Connection, name: str | None) -> ReceiveLocation:
    """Return the receive location with this name, or the only location.

    Raise NotFound if there is none, and DefinitionError if there are several and no name is given."""
    known = read_receive_locations(connection)
    found = [location for location in known if name is None or location.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(location.name for location in known) or "none; run postroom apply first"
    if found:
        raise DefinitionError(
            "There are several receive locations, which may read the file differently.",
            hint=f"Name one of them: {names}.",
        )
    what = "There is no receive location" if name is None else f"There is no receive location {name!r}"
    raise NotFound(f"{what}.", hint=f"The receive locations are: {names}.")


def build_interchange(location: ReceiveLocation, path: Path) -> Interchange:
    """Return a file from any folder as an interchange from the location's folder."""
    try:
        body = FileSlice(path=path, length=path.stat().st_size)
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Give the path of a file.") from None
    context = Context()
    address = urlsplit(location.uri)
    if address.scheme == "file":
        context = context.write(FILE.ReceivedFileName, str(Path(unquote(address.path)) / path.name))
    return Interchange(interchange_id=uuid.uuid4(), body=body, context=context)


def read_candidates(
    connection: Connection, location: ReceiveLocation, interchange: Interchange, name: str, extra: Context
) -> Iterator[Candidate]:
    """Yield every document, also a document that would not be published.

    The properties in ``extra`` are added to every context, and replace promoted properties with the same name."""
    login = _get_login(connection, location)
    for chunk in _read_chunks(connection, location, interchange):
        initial = build_initial_context(location, interchange, chunk.context)
        dropped = np.zeros(chunk.rows, dtype=bool)
        if location.authentication == "drop" and chunk.documents is not None:
            dropped = ~find_authenticated(chunk, login)
        else:
            chunk = authenticate(location, chunk, login)
        if chunk.rejection is not None:
            yield Candidate(title=name, context=initial, failure=chunk.rejection)
        for bad in chunk.failures:
            yield Candidate(title=f"{name}, document {bad.number}", context=initial, failure=bad.failure)
        columns = get_value_columns(chunk.documents)
        for row in range(chunk.rows):
            context = build_context(initial, columns, row)
            title = f"{name}, document {context[BTS.InterchangeSequenceNumber]}"
            if dropped[row]:
                yield Candidate(title=title, context=context, failure=authentication_failure(location), is_dropped=True)
            else:
                yield Candidate(title=title, context=add_properties(context, extra))


def _read_chunks(connection: Connection, location: ReceiveLocation, interchange: Interchange) -> Iterator[Chunk]:
    """Yield the chunks of an interchange. Components and maps can read lookups."""
    pipeline = choose_pipeline(location.pipeline, location.maps, interchange.suspended_document)
    with use_source(LookupCache(lambda: connection)):
        yield from read_chunks(pipeline, interchange, Progress(last_document=interchange.last_published))


def build_error_message(location: ReceiveLocation, about: Candidate) -> Candidate:
    """Return the error message that the receive port would publish about a failed message or one without subscriber."""
    message_type = get_message_type(about.context)
    failure = about.failure or routing_failure(message_type)
    error = Failure(
        code=failure.code,
        description=str(failure),
        message_id=uuid.uuid4(),
        instance_id=uuid.uuid4(),
        failed_at=system_clock(),
        adapter=location.adapter_kind,
        receive_port=location.port_name,
        uri=location.uri,
        message_type=message_type,
        report_id=uuid.uuid4() if about.failure is None else None,
    )
    return Candidate(title=f"The error message about {about.title}", context=error.build_context(about.context))


def add_properties(context: Context, extra: Context) -> Context:
    """Return the context with the properties in ``extra`` added or replaced."""
    replaced = {**extra.promoted, **extra.written}
    promoted = {key: value for key, value in context.promoted.items() if key not in replaced}
    written = {key: value for key, value in context.written.items() if key not in replaced}
    required = context.predicates | extra.predicates
    return Context({**promoted, **extra.promoted}, {**written, **extra.written}, required)


def _get_login(connection: Connection, location: ReceiveLocation) -> PublisherLogin:
    """Return the account of the location's host, and whether the host is trusted to name originators."""
    host = get_host(connection, location.host_id)
    return PublisherLogin(account=host.role_name, trusted=host.trusted)
