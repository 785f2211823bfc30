"""A bare HTTP server, the baseline of `bench.http_post` and `bench.two_way`: the same server software and row changes.

python -m bench.http_bare DATABASE LOCATION HOST_ID SEND_PORT TCP_PORT one-way|two-way

One-way: requests are stored in the inbox with the group commit of a host, so that as many share a transaction. A loop
moves what has arrived from the inbox to the queue, and another loop claims, reads, completes and releases it.

Two-way: each call has the transactions that it has in a host. The first stores the request and its instance
subscription, the second completes the request and stores the response, the third completes the response and removes the
subscription. One loop claims and reads the messages of all calls, as the poller of a host does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from bench.delivery_rounds import CLAIM, COMPLETE
from bench.http_client import find_free_port, wait_for_listener
from bench.messagebox import MeasuredBox
from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.messages import Request, Response
from postroom.http.server import HttpServer
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.intake.inbox import NewInterchange
from postroom.receiving.http.group_commit import GroupCommit
from postroom.receiving.http.shared_connections import SharedConnections
from postroom.system_properties import BTS, HTTP

#: The length of a batch of the streaming lane, so that the batches of both sides have about the same size.
_BATCH_SECONDS = 0.3
_CLAIM_ROWS = 100
#: A host claims 2.3 messages of two-way calls at a time, because its dequeue threads are busy.
_TWO_WAY_CLAIM_ROWS = 3
#: As in a host: threads for HTTP requests, and dequeue threads.
_WORKERS, _DEQUEUE_THREADS = 10, 5
_POLLING_SECONDS = 0.5
_REQUEST_PRIORITY, _RESPONSE_PRIORITY = 5, 1
_SUBSCRIBE = """
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state, instance_id,
                               correlation_type_id, correlation_values, correlation_hash)
    SELECT %s, 'messaging_in_process', gen_random_uuid(), 'In', 'started', %s, t.id, v.wanted, correlation_hash(t.id,
           v.wanted)
      FROM (SELECT min(id) AS id FROM correlation_types) t, (SELECT ARRAY[%s::text]) v (wanted)
"""
_UNSUBSCRIBE = "DELETE FROM subscriptions WHERE instance_id = %s"
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
    SELECT %s, message_id, 1, 'messaging_in_process', %s::uuid, %s::uuid, %s FROM m
"""
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
).context
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
    SELECT %s, message_id, 1, 'messaging_in_process', %s::uuid, gen_random_uuid(), 5 FROM m
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
    workers = WorkerPool(threads=_WORKERS, max_waiting=1_000)
    answer: Callable[[bytes], Awaitable[Response]]
    if kind == "two-way":
        answer = _TwoWayCalls(url, host_id, uuid.UUID(send_port), uuid.UUID(location_id), workers).call
    else:
        group_commit = GroupCommit(SharedConnections(partial(connect, url), _WORKERS), workers)
        answer = partial(_store, group_commit, uuid.UUID(location_id))
        for loop in (partial(_move, url, host_id, send_port), partial(_deliver, url)):
            threading.Thread(target=loop, daemon=True).start()

    async def handle(request: Request) -> Response:
        return await answer(b"".join([piece async for piece in request.body]))

    limits = ConnectionLimits(client_connections=1_000)
    HttpServer("127.0.0.1", tcp_port, handle, loop=EventLoopThread(), workers=workers, limits=limits).start()
    threading.Event().wait()


async def _store(group_commit: GroupCommit, location_id: uuid.UUID, body: bytes) -> Response:
    interchange_id = uuid.uuid4()
    new = NewInterchange(interchange_id=interchange_id, context=_CONTEXT, body=body)
    await group_commit.store(location_id, new)
    return Response(status=202, content={"interchange_id": str(interchange_id)})


class _TwoWayCalls:
    """Calls that wait for their responses. A call is an instance, which its request and its response belong to."""

    def __init__(
        self, url: str, host_id: int, send_port: uuid.UUID, location_id: uuid.UUID, workers: WorkerPool
    ) -> None:
        self._url = url
        self._host_id = host_id
        self._send_port = send_port
        self._location_id = location_id
        self._workers = workers
        self._threads = ThreadPoolExecutor(_DEQUEUE_THREADS)
        self._connections = threading.local()
        self._context = _CONTEXT.to_json()
        self._waiting: dict[uuid.UUID, Future[bytes]] = {}
        self._wake = threading.Event()
        threading.Thread(target=self._claim_repeatedly, daemon=True).start()

    async def call(self, body: bytes) -> Response:
        call_id = uuid.uuid4()
        response = self._waiting[call_id] = Future[bytes]()
        await self._workers.run(self._publish, call_id, body)
        answer = await asyncio.wrap_future(response)
        return Response(status=200, body=answer)

    def _publish(self, call_id: uuid.UUID, body: bytes) -> None:
        connection = self._get_connection()
        with connection.transaction():
            connection.execute(_SUBSCRIBE, (self._host_id, call_id, str(call_id)))
            self._insert(connection, call_id, self._send_port, _REQUEST_PRIORITY, body)
        self._wake.set()

    def _claim_repeatedly(self) -> None:
        with connect(self._url) as connection:
            while True:
                self._wake.clear()
                claim_id = uuid.uuid4()
                rows = connection.execute(CLAIM, (claim_id, _TWO_WAY_CLAIM_ROWS), binary=True).fetchall()
                for row in rows:
                    self._threads.submit(self._process, claim_id, row)
                if not rows:
                    self._wake.wait(_POLLING_SECONDS)

    def _process(self, claim_id: uuid.UUID, row: tuple[Any, ...]) -> None:
        seq, service_id, call_id, body = row[0], row[2], row[3], row[-1]
        connection = self._get_connection()
        is_request = service_id == self._send_port
        with connection.transaction():
            connection.execute(COMPLETE, (claim_id, f"{{{seq}}}"))
            if is_request:
                self._insert(connection, call_id, self._location_id, _RESPONSE_PRIORITY, body)
            else:
                connection.execute(_UNSUBSCRIBE, (call_id,))
        if is_request:
            self._wake.set()
        else:
            self._waiting.pop(call_id).set_result(body)

    def _insert(
        self, connection: Connection, call_id: uuid.UUID, service_id: uuid.UUID, priority: int, body: bytes
    ) -> None:
        connection.execute(_INSERT_MESSAGE, (self._context, body, self._host_id, service_id, call_id, priority))

    def _get_connection(self) -> Connection:
        if not hasattr(self._connections, "connection"):
            self._connections.connection = connect(self._url)
        connection: Connection = self._connections.connection
        return connection


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
