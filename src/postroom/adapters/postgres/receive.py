"""Receives rows of a PostgreSQL database. A transaction of the source holds the claimed rows until they are committed
in the MessageBox.

If the process ends in between, the source rolls back, and the rows come again. Their keys show that they are published
already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter
from postroom.adapters.postgres.receive_definition import PostgresReceive
from postroom.adapters.postgres_server import first_line, format_address, open_connection
from postroom.errors import DatabaseError, DefinitionError, PostroomError, Unavailable
from postroom.message import Bytes

#: The name of the column with the whole row as JSON.
_DOCUMENT = "postroom_document"
_ROW = "postroom_row"


class PostgresReceiver(ReceiveAdapter):
    """Polls over one connection. A batch is a transaction of the source."""

    def __init__(self, definition: PostgresReceive) -> None:
        self._definition = definition
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._batch_size = 0
        # PostgreSQL formats the values of the row, of whatever type they are.
        poll = definition.poll.strip().rstrip(";")
        # A column with the name of the row would be taken instead of the row.
        self._poll = f"SELECT {_ROW}.*, row_to_json({_ROW})::text AS {_DOCUMENT} FROM (\n{poll}\n) AS {_ROW}"

    def poll(self, limit: int) -> Sequence[Incoming]:
        with self._translate_errors("poll"):
            connection = self._get_connection()
            self._roll_back(connection)
            connection.execute("BEGIN")
            with connection.cursor(row_factory=dict_row) as cursor:
                cursor.execute(self._poll.encode(), {"limit": limit})
                self._check_columns([column.name for column in cursor.description or ()])
                batch = [self._to_incoming(row) for row in cursor.fetchmany(limit)]
            if not batch:
                self._roll_back(connection)
        self._batch_size = len(batch)
        return batch

    def clean_up(self, committed: Sequence[Committed]) -> None:
        with self._translate_errors("after"):
            connection = self._get_connection()
            for one in committed:
                if connection.execute(self._definition.after.encode(), one.incoming.token).rowcount == 0:
                    raise DefinitionError(
                        f"The statement 'after' changed no row for {one.incoming.key}.",
                        why="The row is published. It would come again with every poll.",
                        hint="Correct its condition: it must find the row that 'poll' has returned.",
                    )
            connection.execute("COMMIT")

    def release(self, batch: Sequence[Incoming]) -> None:
        # The other rows of the batch are cleaned up in the same transaction.
        if len(batch) == self._batch_size and self._connection is not None:
            with self._translate_errors("poll"):
                self._roll_back(self._connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The server releases the rows before the next poll, and not some time after the connection is closed.
            with suppress(psycopg.Error):
                self._roll_back(connection)
            connection.close()

    def _get_connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = open_connection(self._definition.url, self._definition.options)
            # A body of the type json or jsonb is received as the server formats it.
            set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), self._connection)
        return self._connection

    def _roll_back(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")

    @contextmanager
    def _translate_errors(self, statement: str) -> Iterator[None]:
        """Translate errors of psycopg in the block. After any error the connection is closed, which rolls back."""
        try:
            yield
        except psycopg.OperationalError as error:
            self.close()
            database = format_address(self._definition.url)
            raise Unavailable(f"The database {database} is not available.", why=first_line(error)) from error
        except psycopg.Error as error:
            self.close()
            raise DatabaseError(
                f"The statement {statement!r} failed.",
                why=first_line(error),
                hint="Correct the statement in the application, or the database.",
            ) from error
        except PostroomError:
            self.close()
            raise

    def _check_columns(self, columns: Sequence[str]) -> None:
        missing = [name for name in self._definition.needed_columns if name not in columns]
        if missing:
            known = ", ".join(name for name in columns if name != _DOCUMENT)
            raise DefinitionError(
                f"The query 'poll' has no column {missing[0]!r}.",
                why=f"Its columns are {known}.",
                hint="Select it, too.",
            )

    def _to_incoming(self, row: dict[str, Any]) -> Incoming:
        document = row.pop(_DOCUMENT).encode()
        content = document if self._definition.body is None else self._read_body(row[self._definition.body])
        values = {name: str(row[name]) for name in self._definition.key}
        # With a digest of the row: a row that has changed is another interchange.
        key = f"{json.dumps(values)} {hashlib.blake2b(document, digest_size=16).hexdigest()}"
        return Incoming(key=key, body=Bytes(content), token=row)

    def _read_body(self, value: object) -> bytes:
        if isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
        raise DefinitionError(
            f"The column {self._definition.body!r} of a row is {'NULL' if value is None else 'of another type'}.",
            why="A body is text, bytea, json or jsonb.",
            hint="Correct the query 'poll', or the row.",
        )
