"""A bare HTTP server, the baseline of `bench.http_post` and `bench.two_way`: the same server software and row changes.

python -m bench.http_bare DATABASE LOCATION HOST_ID SEND_PORT TCP_PORT one-way|two-way

One-way: each request is stored in the inbox in a transaction of its own. A loop moves what has arrived from the inbox
to the queue, and another loop claims, reads, completes and releases it.

Two-way: the thread of each request does its transactions one after the other: it stores the request and its instance
subscription, claims and reads it, completes it and stores the response, claims and reads that, and completes it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from bench.delivery_rounds import CLAIM, COMPLETE
from bench.http_client import find_free_port, wait_for_listener
from bench.messagebox import MeasuredBox
from postroom.adapters.http.connection import ConnectionLimits
from postroom.adapters.http.event_loop import EventLoopThread, WorkerPool
from postroom.adapters.http.messages import Request, Response
from postroom.adapters.http.server import HttpServer
from postroom.message import Bytes, Message
from postroom.messagebox.connection import Connection, connect
from postroom.system_properties import BTS, HTTP

#: The length of a batch of the streaming lane, so that the batches of both sides have about the same size.
_BATCH_SECONDS = 0.3
_CLAIM_ROWS = 100
_WORKERS = 10
_SUBSCRIBE = """
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state, instance_id,
                               correlation_type_id, correlation_values, correlation_hash)
    SELECT %s, 4, gen_random_uuid(), 'In', 1, gen_random_uuid(), t.id, v.wanted, correlation_hash(t.id, v.wanted)
      FROM (SELECT min(id) AS id FROM correlation_types) t, (SELECT ARRAY[%s::text]) v (wanted)
 RETURNING id
"""
_INSERT_MESSAGE = """
    WITH m AS MATERIALIZED (
        SELECT gen_random_uuid() AS message_id, gen_random_uuid() AS part_id, %s::jsonb AS context, %b::bytea AS body
    ), spooled AS (
        INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
        SELECT message_id, ARRAY[part_id], part_id, 'body', context, true FROM m
    ), stored AS (
        INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
        SELECT part_id, 'body', 'application/octet-stream', length(body), body, true FROM m
    )
    INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority)
    SELECT %s, message_id, 1, 4, %s::uuid, gen_random_uuid(), 5 FROM m
"""
_STORE = "INSERT INTO inbox (interchange_id, location_id, context, size, body) VALUES (%s, %s, %s::jsonb, %s, %b)"
_CONTEXT = Message.of(
    b"",
    promoted={
        BTS.ReceivePortName: "In",
        BTS.InboundTransportType: "HTTP",
        BTS.InboundTransportLocation: "http://127.0.0.1:8080/documents",
        BTS.InterchangeID: str(uuid.uuid4()),
        BTS.InterchangeSequenceNumber: 1,
    },
    written={HTTP.InboundHttpHeaders: "host: bench\r\ncontent-length: 2000", HTTP.RemoteAddress: "127.0.0.1"},
).context.to_json()
_MOVE = """
    WITH taken AS (
        DELETE FROM inbox RETURNING context, size, body
    ), m AS MATERIALIZED (
        SELECT gen_random_uuid() AS message_id, gen_random_uuid() AS part_id, context, size, body FROM taken
    ), spooled AS (
        INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
        SELECT message_id, ARRAY[part_id], part_id, 'body', context, true FROM m
    ), stored AS (
        INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
        SELECT part_id, 'body', 'application/octet-stream', size, body, true FROM m
    )
    INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority)
    SELECT %s, message_id, 1, 4, %s::uuid, gen_random_uuid(), 5 FROM m
"""


@contextmanager
def bare_server(box: MeasuredBox, send_port: uuid.UUID, kind: Literal["one-way", "two-way"]) -> Iterator[int]:
    """Run a bare server in a process of its own. Yield its port."""
    port = find_free_port()
    arguments = [box.url, str(box.location.location_id), str(box.host.host_id), str(send_port), str(port), kind]
    process = subprocess.Popen([sys.executable, "-m", "bench.http_bare", *arguments])
    try:
        wait_for_listener(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def serve(url: str, location_id: str, host_id: int, send_port: str, tcp_port: int, kind: str) -> None:
    """Serve until the process ends."""
    local = threading.local()

    def get_connection() -> Connection:
        if not hasattr(local, "connection"):
            local.connection = connect(url)
        connection: Connection = local.connection
        return connection

    def store(body: bytes) -> Response:
        interchange_id = uuid.uuid4()
        get_connection().execute(_STORE, (interchange_id, location_id, _CONTEXT, len(body), body))
        return Response(status=202, content={"interchange_id": str(interchange_id)})

    def answer(body: bytes) -> Response:
        connection = get_connection()
        message = (_CONTEXT, body, host_id, send_port)
        with connection.transaction():
            [subscription] = connection.execute(_SUBSCRIBE, (host_id, str(uuid.uuid4()))).fetchall()
            connection.execute(_INSERT_MESSAGE, message)
        claim_id, seq = _claim_one(connection)
        with connection.transaction():
            connection.execute(COMPLETE, (claim_id, seq))
            connection.execute(_INSERT_MESSAGE, message)
            connection.execute("DELETE FROM subscriptions WHERE id = %s", subscription)
        connection.execute(COMPLETE, _claim_one(connection))
        return Response(status=200, body=Bytes(body))

    work = answer if kind == "two-way" else store
    workers = WorkerPool(threads=_WORKERS, max_waiting=1_000)

    async def handle(request: Request) -> Response:
        body = b"".join([piece async for piece in request.body])
        return await workers.run(work, body)

    loops: list[Callable[[], None]] = [lambda: _move(url, host_id, send_port), lambda: _deliver(url)]
    if kind == "one-way":
        for loop in loops:
            threading.Thread(target=loop, daemon=True).start()
    limits = ConnectionLimits(client_connections=1_000)
    HttpServer("127.0.0.1", tcp_port, handle, loop=EventLoopThread(), workers=workers, limits=limits).start()
    threading.Event().wait()


def _claim_one(connection: Connection) -> tuple[uuid.UUID, str]:
    """Claim and read a message. Return the claim and its row. It may be the message of another request."""
    claim_id = uuid.uuid4()
    while True:
        rows = connection.execute(CLAIM, (claim_id, 1), binary=True).fetchall()
        if rows:
            return claim_id, f"{{{rows[0][0]}}}"


def _move(url: str, host_id: int, send_port: str) -> None:
    with connect(url) as connection:
        while True:
            connection.execute(_MOVE, (host_id, send_port))
            time.sleep(_BATCH_SECONDS)


def _deliver(url: str) -> None:
    with connect(url) as connection:
        while True:
            claim_id = uuid.uuid4()
            rows = connection.execute(CLAIM, (claim_id, _CLAIM_ROWS), binary=True).fetchall()
            if rows:
                connection.execute(COMPLETE, (claim_id, f"{{{','.join(str(row[0]) for row in rows)}}}"))
            else:
                time.sleep(0.01)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
