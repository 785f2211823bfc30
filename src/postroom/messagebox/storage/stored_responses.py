"""The responses to the requests of one host that came with an idempotency key, for requests that are repeated."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from postroom.message import FRAGMENTS_AT_A_TIME, split_into_fragments
from postroom.messagebox.connection import Connection, read_value


class StoredResponse(NamedTuple):
    """What is known of the response to a request."""

    unit: uuid.UUID
    is_stored: bool
    content_type: str | None
    """None if the request could not be answered."""
    is_awaited: bool
    """True if a caller waits for it."""
    instance_id: uuid.UUID | None
    """The instance of this caller."""
    is_orphaned: bool
    """True if the host instance that holds this caller has ended."""
    token: str | None
    """The token that the response must have, if a caller waits for it."""


class StoredResponses:
    """The procedures of the host ``name``. Requests are named by their units. Call ``store`` in a transaction."""

    def __init__(self, name: str) -> None:
        host = name.lower()
        self._store = f"SELECT store_response_{host}(%s, %s, %s, %b)"
        self._read = f"SELECT * FROM read_responses_{host}(%s::uuid[])"
        self._read_fragments = f"SELECT * FROM read_response_fragments_{host}(%s, %s, %s)"
        self._store_head = f"SELECT store_response_head_{host}(%s, %s::jsonb)"
        self._read_head = f"SELECT read_response_head_{host}(%s)"
        self._take_over = f"SELECT take_over_request_{host}(%s, %s, %s, %s, %s, %s)"
        self._leave = f"SELECT leave_request_{host}(%s, %s)"

    def store(self, connection: Connection, unit: uuid.UUID, content_type: str | None, chunks: Iterable[bytes]) -> None:
        """Store a response. Without a content type the request could not be answered."""
        fragments = split_into_fragments(chunks)
        number = 0
        while (batch := list(islice(fragments, FRAGMENTS_AT_A_TIME))) or not number:
            connection.execute(self._store, (unit, number, content_type, batch or [b""]))
            number += max(1, len(batch))

    def store_head(self, connection: Connection, unit: uuid.UUID, head: Mapping[str, Any]) -> None:
        """Store the status and the headers of a response that is stored."""
        connection.execute(self._store_head, (unit, Jsonb(head)))

    def read_head(self, connection: Connection, unit: uuid.UUID) -> dict[str, Any] | None:
        """Return the status and the headers of a stored response. Return None if it has no others than most."""
        head: dict[str, Any] | None = read_value(connection, self._read_head, unit)
        return head

    def find(self, connection: Connection, units: Iterable[uuid.UUID]) -> list[StoredResponse]:
        """Return what is known of the responses to these requests."""
        return [StoredResponse(*row) for row in connection.execute(self._read, (list(units),), binary=True)]

    def read_body(self, connection: Connection, unit: uuid.UUID) -> Iterator[bytes]:
        """Yield the body of a stored response in fragments."""
        number = 0
        while True:
            arguments = (unit, number, FRAGMENTS_AT_A_TIME)
            fragments = connection.execute(self._read_fragments, arguments, binary=True).fetchall()
            yield from (fragment for (fragment,) in fragments)
            number += len(fragments)
            if len(fragments) < FRAGMENTS_AT_A_TIME:
                return

    def take_over_caller(
        self,
        connection: Connection,
        unit: uuid.UUID,
        *,
        instance_id: uuid.UUID,
        host_instance: int,
        kept_for: timedelta,
    ) -> bool:
        """Route the response to this instance if the host instance that held the caller has ended. Return False if the
        request does not wait any more, or a living host instance holds it."""
        return bool(read_value(connection, self._take_over, unit, instance_id, host_instance, kept_for, None, None))

    def take_over_program(
        self, connection: Connection, unit: uuid.UUID, *, instance_id: uuid.UUID, queue_id: uuid.UUID, queue_name: str
    ) -> bool:
        """Route the response to this instance, in the queue of another program. Return False if the request does not
        wait any more."""
        arguments = (unit, instance_id, None, None, queue_id, queue_name)
        return bool(read_value(connection, self._take_over, *arguments))

    def leave(self, connection: Connection, unit: uuid.UUID, *, instance_id: uuid.UUID) -> None:
        """Route the response to the program from which this instance has taken over the request, if that one still
        waits. The caller ends this instance."""
        connection.execute(self._leave, (unit, instance_id))
