"""Small interchanges of several requests are stored in one transaction. A request is answered after the commit."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from postroom.errors import KeyReused, NotAllowed
from postroom.http.event_loop import WorkerPool
from postroom.http.messages import RequestFailed
from postroom.message import Context
from postroom.messagebox.connection import connect
from postroom.messagebox.intake.inbox import NewInterchange, store_together
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http import group_commit
from postroom.receiving.http.group_commit import GroupCommit
from postroom.receiving.http.shared_connections import SharedConnections
from tests.support.box import Box
from tests.support.inbox_location import add_inbox_location
from tests.support.waiting import wait_until

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    return add_inbox_location(box)


@pytest.fixture
def groups(box: Box) -> Iterator[GroupCommit]:
    workers = WorkerPool(threads=2, max_waiting=0)
    connections = SharedConnections(partial(connect, box.url, user=box.host().role_name), 2)
    yield GroupCommit(connections, workers)
    workers.close()
    connections.close()


def new_interchange(body: bytes = b"{}") -> NewInterchange:
    return NewInterchange(interchange_id=uuid.uuid4(), context=Context(), body=body)


def count_by_transaction(box: Box) -> list[int]:
    """Return how many interchanges of the inbox each transaction stored."""
    return sorted(Counter(one.transaction for one in box.inbox()).values())


def test_requests_that_come_together_share_a_transaction(
    box: Box, location: ReceiveLocation, groups: GroupCommit
) -> None:
    new = [new_interchange(b"%d" % number) for number in range(150)]

    async def store_all() -> None:
        await asyncio.gather(*(groups.store(location.location_id, one) for one in new))

    asyncio.run(store_all())
    stored = [(one.interchange_id, one.body, one.size) for one in box.inbox()]
    assert sorted(stored) == sorted((one.interchange_id, one.body, len(one.body)) for one in new)
    assert count_by_transaction(box) == [50, 100]


def test_a_request_is_answered_after_the_commit(box: Box, location: ReceiveLocation, groups: GroupCommit) -> None:
    async def store_while_locked() -> None:
        with box.connection.transaction():
            box.lock_locations()
            first = asyncio.create_task(groups.store(location.location_id, new_interchange()))
            await asyncio.to_thread(wait_until, lambda: box.one(BLOCKED) == 1, what="the transaction to wait")
            later = [asyncio.create_task(groups.store(location.location_id, new_interchange())) for _ in range(5)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in (first, *later))
        await asyncio.gather(first, *later)

    asyncio.run(store_while_locked())
    assert count_by_transaction(box) == [1, 5]


def test_a_locked_location_does_not_delay_another(box: Box, location: ReceiveLocation, groups: GroupCommit) -> None:
    other = add_inbox_location(box, name="other")

    async def store_while_locked() -> None:
        with box.connection.transaction():
            box.lock_locations("web")
            delayed = asyncio.create_task(groups.store(location.location_id, new_interchange()))
            await asyncio.to_thread(wait_until, lambda: box.one(BLOCKED) == 1, what="the transaction to wait")
            await groups.store(other.location_id, new_interchange())
            assert not delayed.done()
        await delayed

    asyncio.run(store_while_locked())
    assert box.count("inbox") == 2


def test_every_request_of_a_failed_transaction_fails(box: Box, location: ReceiveLocation, groups: GroupCommit) -> None:
    box.delete_all("receive locations")

    async def store_all() -> list[BaseException | None]:
        stored = (groups.store(location.location_id, new_interchange()) for _ in range(3))
        return await asyncio.gather(*stored, return_exceptions=True)

    assert [type(error) for error in asyncio.run(store_all())] == [NotAllowed] * 3
    assert box.count("inbox") == 0


def test_requests_with_keys_share_a_transaction_with_others(
    box: Box, location: ReceiveLocation, groups: GroupCommit
) -> None:
    known, fresh, repeated = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    new = [
        keyed_interchange(known, b"other"),
        new_interchange(),
        keyed_interchange(fresh),
        keyed_interchange(known),
        keyed_interchange(repeated),
        keyed_interchange(repeated),
        keyed_interchange(repeated, b"other"),
    ]

    async def store_all() -> list[BaseException | None]:
        await groups.store(location.location_id, keyed_interchange(known))
        stored = (groups.store(location.location_id, one) for one in new)
        return await asyncio.gather(*stored, return_exceptions=True)

    errors = asyncio.run(store_all())
    assert [type(error) for error in errors if error is not None] == [KeyReused, KeyReused]
    assert [number for number, error in enumerate(errors) if error is not None] == [0, 6]
    stored = [(one.interchange_id, one.body) for one in box.inbox()]
    assert sorted(stored) == sorted((one_id, b"{}") for one_id in (known, new[1].interchange_id, fresh, repeated))
    assert count_by_transaction(box) == [1, 3]


def keyed_interchange(interchange_id: uuid.UUID, body: bytes = b"{}") -> NewInterchange:
    return NewInterchange(interchange_id=interchange_id, context=Context(), body=body, digest=body)


def test_groups_of_two_hosts_with_the_same_keys_do_not_wait_for_each_other(box: Box, location: ReceiveLocation) -> None:
    """The second group inserts the keys in the order of the first, and waits for its first row."""
    ids = sorted(uuid.uuid4() for _ in range(2))
    with connect(box.url, user=box.host().role_name) as other, ThreadPoolExecutor(1) as thread:
        with box.connection.transaction():
            store_together(box.connection, location.location_id, [keyed_interchange(one) for one in ids[:1]])
            waiting = thread.submit(
                store_together, other, location.location_id, [keyed_interchange(one) for one in reversed(ids)]
            )
            wait_until(lambda: box.one(BLOCKED) == 1, what="the second group to wait")
            store_together(box.connection, location.location_id, [keyed_interchange(one) for one in ids])
        assert waiting.result() == [None, None]
    assert box.count("inbox") == 2


def test_requests_are_rejected_while_too_many_wait(
    box: Box, location: ReceiveLocation, groups: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_MAX_WAITING", 2)

    async def store_two() -> None:
        tasks = [asyncio.create_task(groups.store(location.location_id, new_interchange())) for _ in range(2)]
        groups.check_capacity()
        await asyncio.sleep(0)
        with pytest.raises(RequestFailed) as failed:
            groups.check_capacity()
        assert failed.value.response.status == 503
        await asyncio.gather(*tasks)
        groups.check_capacity()

    asyncio.run(store_two())
    assert box.count("inbox") == 2
