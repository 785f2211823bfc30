"""Claims of orchestration instances: how they end, and how those of dead host instances are released."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.errors import TransactionConflict
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import InstanceState, get_instance
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.orchestration_instances import ClaimedInstance, HostOrchestrations, JournalEntry
from postroom.messagebox.orchestrations import read_orchestrations
from postroom.operations.orchestrations import states as orchestration_states
from tests.support.box import Box
from tests.support.changes import resume, suspend, terminate
from tests.support.orchestrations import Key, Kind, apply_orchestrations, is_empty, publish
from tests.support.waiting import PATIENCE, wait_until

CONVOY = """
@app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
async def collect(order: Message) -> None:
    await orchestrations.receive()
"""
PROCEDURES = HostOrchestrations("Default")


@pytest.fixture
def other(box: Box) -> Iterator[Connection]:
    """A session of another process. No statement of it waits for a lock for long."""
    with connect(box.url) as connection:
        connection.execute("SET lock_timeout = '10s'")
        yield connection


def claim(box: Box, *, claim_id: uuid.UUID | None = None, limit: int = 10) -> list[ClaimedInstance]:
    """Claim instances for a host instance that is not registered."""
    services = [one.service_id for one in read_orchestrations(box.connection)]
    return PROCEDURES.claim(
        box.connection, claim_id=claim_id or uuid.uuid4(), host_instance=4711, limit=limit, services=services
    )


def test_an_instance_whose_message_is_being_claimed_ends_in_a_repeated_transaction(
    box: Box, tmp_path: Path, other: Connection
) -> None:
    """The claim waits for the row of the instance, so the end must not wait for the claim."""
    apply_orchestrations(box, tmp_path, CONVOY)
    publish(box, "order", "1")
    [claimed] = claim(box)
    [first] = PROCEDURES.read_messages(box.connection, claimed.claim_id)
    publish(box, "order", "2")
    entry = JournalEntry(claimed=claimed, journal_length=0, consumed=[first.seq])
    with box.connection.transaction():
        box.connection.execute("SELECT 1 FROM work_queue FOR UPDATE")
        with pytest.raises(TransactionConflict):
            PROCEDURES.end(other, [entry])
    assert PROCEDURES.end(other, [entry]) == {claimed.instance_id}
    assert check(box.connection) == []
    [next_instance] = claim(box)
    assert next_instance.instance_id != claimed.instance_id
    assert [one.body for one in PROCEDURES.read_messages(box.connection, next_instance.claim_id)] == [b"2"]


def test_a_later_message_of_a_convoy_overtakes_activations(box: Box, tmp_path: Path) -> None:
    """DEQ-12."""
    apply_orchestrations(box, tmp_path, CONVOY)
    publish(box, "order", "", key="waiting")
    [waiting] = claim(box)
    [first] = PROCEDURES.read_messages(box.connection, waiting.claim_id)
    entry = JournalEntry(claimed=waiting, journal_length=0, consumed=[first.seq], turns=[{}], is_released=True)
    PROCEDURES.persist(box.connection, [entry])
    for number in range(20):
        publish(box, "order", "", key=f"new {number}")
    publish(box, "order", "", key="waiting")
    earliest, *_ = claim(box, limit=10)
    assert earliest.instance_id == waiting.instance_id


def test_the_first_message_of_a_convoy_is_claimed_with_those_that_join_it(box: Box, tmp_path: Path) -> None:
    """Its priority is worse. The others wait for it, so it does not wait for its turn."""
    apply_orchestrations(box, tmp_path, CONVOY)
    orders = [Message.of(b"", promoted={Kind: "order", Key: key}) for key in ("other", *["K"] * 20)]
    box.agent().publish(orders)
    [claimed] = claim(box, limit=1)
    messages = PROCEDURES.read_messages(box.connection, claimed.claim_id)
    # Ten messages for each instance that is claimed, and the first one.
    assert [one.message_id for one in messages] == [order.message_id for order in orders[1:12]]


def test_messages_that_are_still_suspended_when_their_instance_ends_wait_for_the_next_one(
    box: Box, tmp_path: Path
) -> None:
    """ORC-26: a start moves the messages of a stopped orchestration in pieces."""
    apply_orchestrations(box, tmp_path, CONVOY)
    orchestration_states.stop(box.connection, "collect")
    publish(box, "order", "1", "2", "3")
    [service_id] = [one.service_id for one in read_orchestrations(box.connection)]
    box.connection.execute("UPDATE subscriptions SET state = 'started' WHERE service_id = %s", (service_id,))
    assert box.one("SELECT resume_stopped(%s, 1)", service_id) == 1
    [claimed] = claim(box)
    [first] = PROCEDURES.read_messages(box.connection, claimed.claim_id)
    publish(box, "order", "4")
    PROCEDURES.end(box.connection, [JournalEntry(claimed=claimed, journal_length=0, consumed=[first.seq])])
    assert box.suspended() == [("PORT_STOPPED", True)] * 2
    assert claim(box) == []  # the first messages are not there yet
    assert orchestration_states.start(box.connection, "collect").resumed == 2
    assert check(box.connection) == []
    [next_instance] = claim(box)
    messages = PROCEDURES.read_messages(box.connection, next_instance.claim_id)
    assert [one.body for one in messages] == [b"2", b"3", b"4"]


def test_the_subscription_that_has_routed_messages_of_a_convoy_is_kept(box: Box, tmp_path: Path) -> None:
    """The application was applied long before the instance ends. Its messages still match the filter."""
    apply_orchestrations(box, tmp_path, CONVOY)
    publish(box, "order", "1", "2")
    apply_orchestrations(box, tmp_path, CONVOY + "# another comment")
    box.connection.execute("SELECT purge_subscriptions(interval '0')")
    [claimed] = claim(box)
    [first, _] = PROCEDURES.read_messages(box.connection, claimed.claim_id)
    PROCEDURES.end(box.connection, [JournalEntry(claimed=claimed, journal_length=0, consumed=[first.seq])])
    [next_instance] = claim(box)
    [second] = PROCEDURES.read_messages(box.connection, next_instance.claim_id)
    assert second.body == b"2"
    PROCEDURES.end(box.connection, [JournalEntry(claimed=next_instance, journal_length=0, consumed=[second.seq])])
    box.connection.execute("SELECT purge_subscriptions(interval '0')")
    assert box.one("SELECT count(*) FROM subscriptions WHERE removed_at IS NOT NULL") == 0
    assert is_empty(box)


@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_message_that_joins_a_suspended_convoy_waits_for_the_first_one(
    box: Box, tmp_path: Path, is_resumed: bool
) -> None:
    """INS-07: the instance was suspended before it was started."""
    apply_orchestrations(box, tmp_path, CONVOY)
    publish(box, "order", "1")
    instance_id = box.one("SELECT instance_id FROM work_queue")
    assert suspend(box.connection, instance_id)
    publish(box, "order", "2")
    assert claim(box) == []
    assert get_instance(box.connection, instance_id).state is InstanceState.SUSPENDED
    assert check(box.connection) == []
    if not is_resumed:
        terminate(box.connection, instance_id)
        assert is_empty(box)
        assert check(box.connection) == []
        return
    resume(box.connection, instance_id)
    [claimed] = claim(box)
    assert [one.body for one in PROCEDURES.read_messages(box.connection, claimed.claim_id)] == [b"1", b"2"]


def test_an_instance_that_five_processes_had_when_they_died_is_suspended(box: Box, tmp_path: Path) -> None:
    """Only one instance kills its processes. After two deaths all that the processes had are claimed one at a time."""
    apply_orchestrations(box, tmp_path, CONVOY)
    for number in range(5):
        publish(box, "order", "", key=str(number))
    poison = min(one.instance_id for one in claim(box))
    _clean_up(box.url)
    assert len(claim(box)) == 5
    _clean_up(box.url)
    while ready := claim(box):
        [claimed] = ready  # one at a time
        assert claim(box) == []
        if claimed.instance_id == poison:
            _clean_up(box.url)
            continue
        entry = JournalEntry(claimed=claimed, journal_length=0, turns=[{}], is_released=True)
        assert PROCEDURES.persist(box.connection, [entry])[0] == {claimed.instance_id}
    suspended, description = box.connection.execute(
        "SELECT instance_id, error_description FROM orchestration_instances WHERE suspended_at IS NOT NULL"
    ).fetchall()[0]
    assert suspended == poison
    assert "died, did not respond, or ran out of memory, five times" in description
    assert "then resume the instance" in description
    assert box.count_rows("orchestration_instances WHERE process_deaths = 0") == 4
    resume(box.connection, poison)
    assert [one.instance_id for one in claim(box)] == [poison]
    assert box.one("SELECT process_deaths FROM orchestration_instances WHERE instance_id = %s", poison) == 0


def test_the_claims_of_a_dead_host_are_released_in_the_order_of_the_ids(
    box: Box, tmp_path: Path, other: Connection
) -> None:
    """A persistence point of several instances locks them in this order."""
    apply_orchestrations(box, tmp_path, CONVOY)
    for number in range(2):
        publish(box, "order", "", key=str(number))
    claim(box)
    low, high = sorted(id for (id,) in box.connection.execute("SELECT instance_id FROM orchestration_instances"))
    # The table and the index on claims have the instances in the other order.
    for claim_id, instance_id in ((1, high), (2, low)):
        box.connection.execute(
            "UPDATE orchestration_instances SET claim_id = %s WHERE instance_id = %s",
            (uuid.UUID(int=claim_id), instance_id),
        )
    lock = "SELECT 1 FROM orchestration_instances WHERE instance_id = %s FOR UPDATE"
    waiting = "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%dead_processes_cleanup%%'"
    with other.transaction():
        other.execute(lock, (low,))
        cleanup = threading.Thread(target=_clean_up, args=(box.url,))
        cleanup.start()
        wait_until(lambda: box.count_rows(waiting) == 1, what="the job waits")
        other.execute(f"{lock} NOWAIT", (high,))
    cleanup.join(PATIENCE)
    assert box.count_rows("orchestration_instances WHERE claim_id IS NULL AND ready_seq IS NOT NULL") == 2


def _clean_up(url: str) -> None:
    with connect(url) as connection:
        connection.execute("SELECT dead_processes_cleanup()")
