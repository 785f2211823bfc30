"""The baseline of the streaming lane: COPY of the rows of a publish by two writers.

The rows are recorded from a publish of the same interchanges, before the clock starts.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.messagebox import MeasuredBox
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.storage import copy_rows as storage
from postroom.messagebox.storage.copy_rows import PARTS, QUEUE, SPOOL

_RECEIPT = "INSERT INTO receipts (unit, chunk, outcome) VALUES (%s, 0, %s::jsonb)"


@dataclass
class RecordedTransaction:
    """The COPY statements of one publish transaction, in their order."""

    receipt: uuid.UUID = field(default_factory=uuid.uuid4)
    copies: list[tuple[str, bytes]] = field(default_factory=list)

    def write(self, connection: Connection) -> None:
        with connection.transaction():
            connection.execute(_RECEIPT, (self.receipt, json.dumps({"last": 1, "done": True})))
            for statement, data in self.copies:
                with connection.cursor() as cursor, cursor.copy(statement) as copy:
                    for start in range(0, len(data), 1 << 18):
                        copy.write(data[start : start + (1 << 18)])


def record(box: MeasuredBox, interchanges: Sequence[Interchange]) -> list[RecordedTransaction]:
    """Publish each interchange in a transaction, return the written rows, and empty the MessageBox."""
    recorded: list[RecordedTransaction] = []
    with connect(box.url, user=box.host.role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        for interchange in interchanges:
            current = RecordedTransaction()
            with _record_copies(current):
                receiver.receive(box.location, [interchange])
            recorded.append(current)
    box.empty()
    return recorded


def record_rows(box: MeasuredBox, *, transactions: int) -> list[RecordedTransaction]:
    """Return the rows in the MessageBox, divided into ``transactions``, and empty the MessageBox."""
    host = box.host.name
    tables = {
        "parts": PARTS,
        "spool": SPOOL,
        f"{host}_q": QUEUE,
        "message_ref_count_log_1": ("message_id", "delta"),
        "part_ref_count_log_1": ("part_id", "delta"),
    }
    recorded = [RecordedTransaction() for _ in range(transactions)]
    for table, columns in tables.items():
        names = ", ".join(columns)
        each = -(-int(str(box.one(f"SELECT count(*) FROM {table}"))) // transactions)
        for number, one in enumerate(recorded):
            query = f"SELECT {names} FROM {table} ORDER BY ctid OFFSET {number * each} LIMIT {each}"
            with box.connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
                data = b"".join(bytes(piece) for piece in copy)
            one.copies.append((f"COPY {table} ({names}) FROM STDIN (FORMAT binary)", data))
    box.empty()
    return recorded


@contextmanager
def _record_copies(transaction: RecordedTransaction) -> Iterator[None]:
    original = storage.copy_rows

    def copy_and_record(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[bytes]) -> None:
        encoded = list(rows)
        data = storage._HEADER + b"".join(encoded) + storage._TRAILER
        transaction.copies.append((f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)", data))
        original(connection, table, columns, encoded)

    storage.copy_rows = copy_and_record
    try:
        yield
    finally:
        storage.copy_rows = original


def copy_with_two_writers(box: MeasuredBox, transactions: Sequence[RecordedTransaction]) -> None:
    """Write the transactions with two concurrent writers, half of them each."""
    with connect(box.url) as first, connect(box.url) as second:
        threads = [
            threading.Thread(target=_write_all, args=(connection, transactions[number::2]))
            for number, connection in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _write_all(connection: Connection, transactions: Sequence[RecordedTransaction]) -> None:
    for transaction in transactions:
        transaction.write(connection)
