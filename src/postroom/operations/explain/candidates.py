"""What a receive location would make of something: its documents, as messages that nobody has published.

for given in read_candidates(connection, where, build_interchange(where, path), path.name, Context()):
    given.context, given.failure
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from postroom.agent.error_reports import Failure, type_in
from postroom.agent.originator import Login
from postroom.agent.receipts import Progress
from postroom.agent.receiving.authentication import authenticate, authentication_failure, has_originator
from postroom.agent.receiving.chunks import read_chunks
from postroom.agent.receiving.contexts import snapshot
from postroom.agent.receiving.documents import value_columns
from postroom.agent.receiving.interchange import Interchange, stamp
from postroom.agent.routing.matching import routing_failure
from postroom.clock import system_clock
from postroom.errors import DefinitionError, MessageFailure, NotFound
from postroom.maps.inbound import taken_up_by
from postroom.message import Context, FileSlice
from postroom.messagebox.configuration import ReceiveLocation, hosts, receive_locations
from postroom.messagebox.connection import Connection
from postroom.system_properties import BTS, FILE


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A message that is not there: what it would be called, its context, and why it would not be published."""

    title: str
    context: Context
    failure: MessageFailure | None = None
    is_dropped: bool = False
    """Its failure leaves nothing behind: nobody stands for it, and its receive port drops that."""


def find_location(connection: Connection, name: str | None) -> ReceiveLocation:
    """The receive location of that name, or the only one."""
    known = receive_locations(connection)
    found = [one for one in known if name is None or one.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.name for one in known) or "none; run postroom apply first"
    if found:
        raise DefinitionError(
            "There are several receive locations, and each may read the file in another way.",
            hint=f"Name one of them: {names}.",
        )
    what = "There is no receive location" if name is None else f"There is no receive location {name!r}"
    raise NotFound(f"{what}.", hint=f"The receive locations are: {names}.")


def build_interchange(where: ReceiveLocation, path: Path) -> Interchange:
    """A file from anywhere as if it stood in the location's folder."""
    try:
        body = FileSlice(path=path, length=path.stat().st_size)
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Give the path of a file.") from None
    context = Context()
    address = urlsplit(where.uri)
    if address.scheme == "file":
        context = context.write(FILE.ReceivedFileName, str(Path(unquote(address.path)) / path.name))
    return Interchange(interchange_id=uuid.uuid4(), body=body, context=context)


def read_candidates(
    connection: Connection, where: ReceiveLocation, interchange: Interchange, name: str, extra: Context
) -> Iterator[Candidate]:
    """Every document, also those that would not be published. ``extra`` is added to every context, in place of what the
    pipeline promotes."""
    login = _login_of(connection, where)
    pipeline = taken_up_by(where.pipeline, where.maps, interchange.kept)
    for chunk in read_chunks(pipeline, interchange, Progress(last_document=interchange.after)):
        stamped = stamp(where, interchange, chunk.context)
        dropped = np.zeros(chunk.rows, dtype=bool)
        if where.authentication == "drop" and chunk.documents is not None:
            dropped = ~has_originator(chunk, login)
        else:
            chunk = authenticate(where, chunk, login)
        if chunk.refusal is not None:
            yield Candidate(title=name, context=stamped, failure=chunk.refusal)
        for bad in chunk.failures:
            yield Candidate(title=f"{name}, document {bad.number}", context=stamped, failure=bad.failure)
        columns = value_columns(chunk.documents)
        for row in range(chunk.rows):
            context = snapshot(stamped, columns, row)
            title = f"{name}, document {context[BTS.InterchangeSequenceNumber]}"
            if dropped[row]:
                yield Candidate(title=title, context=context, failure=authentication_failure(where), is_dropped=True)
            else:
                yield Candidate(title=title, context=add_properties(context, extra))


def build_error_message(where: ReceiveLocation, about: Candidate) -> Candidate:
    """The error message about what failed, or about what nobody receives, as its receive port would publish it."""
    message_type = type_in(about.context)
    failure = about.failure or routing_failure(message_type)
    error = Failure(
        code=failure.code,
        description=str(failure),
        message_id=uuid.uuid4(),
        instance_id=uuid.uuid4(),
        failed_at=system_clock(),
        adapter=where.adapter_kind,
        receive_port=where.port_name,
        uri=where.uri,
        message_type=message_type,
        report_id=uuid.uuid4() if about.failure is None else None,
    )
    return Candidate(title=f"The error message about {about.title}", context=error.context(about.context))


def add_properties(context: Context, extra: Context) -> Context:
    """The context with more, or other, properties."""
    given = {**extra.promoted, **extra.written}
    promoted = {key: value for key, value in context.promoted.items() if key not in given}
    written = {key: value for key, value in context.written.items() if key not in given}
    required = context.predicates | extra.predicates
    return Context({**promoted, **extra.promoted}, {**written, **extra.written}, required)


def _login_of(connection: Connection, where: ReceiveLocation) -> Login:
    """Who takes in what comes to the location, and whether that is believed to know whom it is from."""
    host = next(one for one in hosts(connection) if one.host_id == where.host_id)
    return Login(account=host.role_name, trusted=host.trusted)
