"""Group commit: the small interchanges of several requests are stored in the inbox in one transaction."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from postroom.errors import PostroomError
from postroom.http.event_loop import WorkerPool, build_capacity_error
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.inbox import NewInterchange
from postroom.receiving.http.shared_connections import CONNECTION_TIMEOUT, SharedConnections

_MAX_GROUP = 100
_MAX_WAITING = 1_000


class GroupCommit:
    """Stores the interchanges of requests. It runs on the event loop.

    Each location has one transaction at a time. The requests that come meanwhile share the next one. So a location that
    is locked does not delay the others, and occupies one thread.
    """

    def __init__(self, connections: SharedConnections, workers: WorkerPool) -> None:
        self._connections = connections
        self._workers = workers
        #: The requests that wait for the next transaction of their location. A location is here while its task runs.
        self._waiting: dict[uuid.UUID, list[tuple[NewInterchange, asyncio.Future[None]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def check_capacity(self) -> None:
        """Raise RequestFailed if too many requests are waiting. Call this before the body of a request is read."""
        if sum(map(len, self._waiting.values())) >= _MAX_WAITING:
            raise build_capacity_error()

    async def store(self, location_id: uuid.UUID, interchange: NewInterchange) -> None:
        """Return after the commit. Raise the error of the transaction, or KeyReused."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()
        if location_id in self._waiting:
            self._waiting[location_id].append((interchange, outcome))
        else:
            self._waiting[location_id] = [(interchange, outcome)]
            task = loop.create_task(self._store_waiting(location_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await outcome

    async def _store_waiting(self, location_id: uuid.UUID) -> None:
        """Run transactions until no request of this location waits."""
        while waiting := self._waiting[location_id]:
            group, self._waiting[location_id] = waiting[:_MAX_GROUP], waiting[_MAX_GROUP:]
            errors = await self._store_group(location_id, [interchange for interchange, _ in group])
            for (_, outcome), error in zip(group, errors, strict=True):
                if outcome.done():
                    continue  # its connection was closed
                if error is None:
                    outcome.set_result(None)
                else:
                    outcome.set_exception(error)
        del self._waiting[location_id]

    async def _store_group(
        self, location_id: uuid.UUID, interchanges: Sequence[NewInterchange]
    ) -> Sequence[Exception | None]:
        """Return the error of each request. An error of the transaction is the same for all, because every property of
        an interchange was checked before."""
        try:
            return await self._workers.run(self._store, location_id, interchanges)
        except Exception as error:
            return [error] * len(interchanges)

    def _store(self, location_id: uuid.UUID, interchanges: Sequence[NewInterchange]) -> Sequence[PostroomError | None]:
        with self._connections.borrow(CONNECTION_TIMEOUT) as connection:
            return inbox.store_together(connection, location_id, interchanges)
