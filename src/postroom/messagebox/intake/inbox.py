"""The inbox: interchanges that one-way adapters have accepted and that no stream has published yet.

    stored = store_in_inbox(connection, location_id, interchange_id, context, request_body)     # committed: answer 202

A row is durable when ``store_in_inbox`` returns, and is deleted when its messages are committed. In between the only
reader of its location assigns a number to it. Only committed rows get numbers: a row that commits late gets a later
number, and a long transaction elsewhere delays no row.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any

from postroom.errors import KeyReused, PostroomError, Unavailable
from postroom.message import FRAGMENTS_AT_A_TIME, Body, Bytes, Context, split_into_fragments
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import to_storable_text
from postroom.messagebox.statements import statement

_INSERT = statement("queries/insert_into_inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInterchange:
    """A small interchange. ``body`` has at most ``FRAGMENT_SIZE`` bytes. ``digest`` is that of one with an idempotency
    key."""

    interchange_id: uuid.UUID
    context: Context
    body: bytes
    digest: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class StoredInterchange:
    """An interchange in the inbox, ready to be received."""

    interchange_id: uuid.UUID
    stored_context: dict[str, Any]
    stored_at: datetime
    body: Body

    @property
    def context(self) -> Context:
        """The context that the adapter wrote."""
        return Context.from_json(self.stored_context)


def store_in_inbox(
    connection: Connection,
    location_id: uuid.UUID,
    interchange_id: uuid.UUID,
    context: Context,
    content: Iterable[bytes],
    *,
    digest: bytes | None = None,
) -> bool:
    """Store an interchange for the stream of its location. Return after the commit.

    ``content`` is read and stored one fragment at a time. An exception of it rolls everything back. ``digest`` is
    stored for an interchange with an idempotency key. Return False if the interchange is already in the inbox, or if it
    has a key and was published.
    """
    fragments = split_into_fragments(content)
    first = next(fragments, b"")
    second = next(fragments, None)
    row = {
        "id": interchange_id,
        "location_id": location_id,
        "context": context.to_json(),
        "size": len(first),
        "digest": digest,
        "body": first if second is None else None,
    }
    if second is None:
        return connection.execute(_INSERT, row).rowcount == 1
    with connection.transaction():
        if connection.execute(_INSERT, row).rowcount == 0:
            return False
        size = _insert_fragments(connection, interchange_id, chain((first, second), fragments))
        connection.execute("UPDATE inbox SET size = %s WHERE interchange_id = %s", (size, interchange_id))
    return True


def store_together(
    connection: Connection, location_id: uuid.UUID, interchanges: Sequence[NewInterchange]
) -> list[PostroomError | None]:
    """Store interchanges for the stream of their location in one transaction. Return after the commit.

    An interchange whose idempotency key is known is not stored again. Return None for each interchange that is stored,
    and KeyReused for one whose key came with another body."""
    rows = connection.execute(
        statement("queries/insert_many_into_inbox"),
        (
            location_id,
            [interchange.interchange_id for interchange in interchanges],
            [interchange.context.to_json() for interchange in interchanges],
            [interchange.digest for interchange in interchanges],
            [interchange.body for interchange in interchanges],
        ),
        binary=True,
    )
    new_ids = {interchange_id for (interchange_id,) in rows}
    return [_find_key_error(connection, interchange, new_ids) for interchange in interchanges]


def _find_key_error(
    connection: Connection, interchange: NewInterchange, new_ids: set[uuid.UUID]
) -> PostroomError | None:
    """Return the error of an interchange whose key was known. ``new_ids`` loses the id of one whose key was not."""
    if interchange.digest is None:
        return None
    if interchange.interchange_id in new_ids:
        new_ids.remove(interchange.interchange_id)  # the next one with this id is a repeated request
        return None
    try:
        check_if_known(connection, interchange.interchange_id, digest=interchange.digest)
    except PostroomError as error:
        return error  # of this interchange alone: the others are committed
    return None


def check_if_known(connection: Connection, interchange_id: uuid.UUID, *, digest: bytes | None = None) -> bool:
    """Return True if an interchange is in the inbox, or was published and its receipt still exists.

    Raise KeyReused if it has another digest: its idempotency key came with another body."""
    found = connection.execute(statement("queries/find_interchange"), {"id": interchange_id}).fetchone()
    if found is not None and found[0] != digest:
        raise KeyReused()
    return found is not None


def assign_numbers(connection: Connection, location_id: uuid.UUID, limit: int) -> int:
    """Assign numbers to up to ``limit`` rows, in the order of their arrival. Return the number of rows."""
    return connection.execute(statement("queries/number_inbox"), (location_id, limit)).rowcount


def read_interchanges(
    connection: Connection, interchange_ids: Sequence[uuid.UUID], connect: Callable[[], Connection]
) -> list[StoredInterchange]:
    """Return the interchanges that still exist. Large bodies are read lazily, over their own connections."""
    rows = connection.execute(
        "SELECT interchange_id, context, stored_at, size, body FROM inbox"
        " WHERE interchange_id = ANY (%b) ORDER BY number",
        (list(interchange_ids),),
        binary=True,
    )
    return [
        StoredInterchange(
            interchange_id=interchange_id,
            stored_context=context,
            stored_at=stored_at,
            body=FragmentedInboxBody(connect=connect, interchange_id=interchange_id, size=size)
            if body is None
            else Bytes(body),
        )
        for interchange_id, context, stored_at, size, body in rows
    ]


def delete_interchanges(connection: Connection, interchange_ids: Iterable[uuid.UUID]) -> None:
    """Delete rows whose messages are committed."""
    connection.execute(statement("queries/delete_from_inbox"), {"ids": list(interchange_ids)})


def return_to_inbox(connection: Connection, interchange_ids: Iterable[uuid.UUID]) -> None:
    """Remove the numbers of rows. The stream gets the rows again, with new numbers."""
    connection.execute("UPDATE inbox SET number = NULL WHERE interchange_id = ANY (%s)", (list(interchange_ids),))


def quarantine(connection: Connection, interchange_id: uuid.UUID, problem: str) -> None:
    """Keep a row that cannot be received out of the stream, with the problem."""
    connection.execute(
        "UPDATE inbox SET number = NULL, problem = %s WHERE interchange_id = %s",
        (to_storable_text(problem), interchange_id),
    )


def release_quarantined(connection: Connection, location_id: uuid.UUID) -> int:
    """Return quarantined rows to the stream. Return their number."""
    return connection.execute(
        "UPDATE inbox SET problem = NULL WHERE location_id = %s AND problem IS NOT NULL", (location_id,)
    ).rowcount


def has_rows(connection: Connection, location_id: uuid.UUID) -> bool:
    """Return True if a location has rows in its inbox that are not quarantined."""
    found = connection.execute(
        "SELECT 1 FROM inbox WHERE location_id = %s AND problem IS NULL LIMIT 1", (location_id,)
    ).fetchone()
    return found is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentedInboxBody:
    """A body in fragments, read a few at a time.

    It has its own connection, because it may be read while the reader's connection runs a COPY.
    """

    connect: Callable[[], Connection]
    interchange_id: uuid.UUID
    size: int

    def chunks(self) -> Iterator[bytes]:
        done = start = 0
        with self.connect() as connection:
            while done < self.size:
                fragments = self._read_fragments(connection, start)
                if not fragments:
                    # Another attempt has published it in the meantime. The next attempt detects that.
                    raise Unavailable(f"Interchange {self.interchange_id} is no longer in the inbox.")
                for number, body in fragments:
                    start = number + 1
                    done += len(body)
                    yield body

    def _read_fragments(self, connection: Connection, start: int) -> list[tuple[Any, ...]]:
        return connection.execute(
            "SELECT number, body FROM inbox_fragments WHERE interchange_id = %s AND number >= %s"
            " ORDER BY number LIMIT %s",
            (self.interchange_id, start, FRAGMENTS_AT_A_TIME),
            binary=True,
        ).fetchall()


def _insert_fragments(connection: Connection, interchange_id: uuid.UUID, fragments: Iterator[bytes]) -> int:
    """Insert fragments, a few at a time, because COPY does not support row security. Return the number of bytes."""
    size = number = 0
    while batch := list(islice(fragments, FRAGMENTS_AT_A_TIME)):
        connection.execute(
            statement("queries/insert_inbox_fragments"),
            (interchange_id, list(range(number, number + len(batch))), batch),
        )
        number += len(batch)
        size += sum(map(len, batch))
    return size
