"""What a login can do to a message of another host when it knows all ids: try to destroy it, as each role."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from postroom.errors import NotAllowed
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.roles import grant_role
from tests.support.box import Box, Region

Attack = Callable[[Box, Connection], None]

LOGINS = {"administrators": "adam", "operators": "olga", "host:Other": "other_service"}


@pytest.fixture
def message_id(box: Box) -> uuid.UUID:
    """A message that waits in the queue of host Default."""
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    [published] = box.agent().publish([Message.of(b"precious", promoted={Region: "EU"})])
    return published.message_id


@pytest.fixture(params=LOGINS)
def login(request: pytest.FixtureRequest, box: Box, message_id: uuid.UUID) -> Iterator[Connection]:
    """A connection of each role, except for the owner and host Default."""
    role = str(request.param)
    box.connection.execute(f"CREATE ROLE {LOGINS[role]} LOGIN")
    grant_role(box.connection, role, LOGINS[role])
    with connect(box.url, user=LOGINS[role]) as connection:
        yield connection


def _insert_negative_counts(box: Box, login: Connection) -> None:
    """Lower the reference counts of the message and of its part in every log."""
    for log in (1, 2):
        login.execute(f"INSERT INTO message_ref_count_log_{log} (message_id, delta) VALUES (%s, -3)", (_message(box),))
        login.execute(f"INSERT INTO part_ref_count_log_{log} (part_id, delta) VALUES (%s, -3)", (_part(box),))


def _insert_negative_counts_that_match(box: Box, login: Connection) -> None:
    """Lower the counts by exactly one, and let the jobs count in between."""
    login.execute("INSERT INTO message_ref_count_log_1 (message_id, delta) VALUES (%s, -1)", (_message(box),))
    login.execute("INSERT INTO part_ref_count_log_1 (part_id, delta) VALUES (%s, -1)", (_part(box),))
    run_all_jobs_once(box.connection)
    with login.transaction():
        for delta in (1, -1):
            login.execute(
                "INSERT INTO message_ref_count_log_2 (message_id, delta) VALUES (%s, %s)", (_message(box), delta)
            )


def _complete_an_own_reference(box: Box, login: Connection) -> None:
    """Queue the message for host Other without counting it, and complete it."""
    _queue_and_complete(box, login, _message(box))


def _complete_an_own_message_with_the_same_part(box: Box, login: Connection) -> None:
    """Publish a message that has the part of the other message, without counting it, and complete it."""
    own = uuid.uuid4()
    login.execute(
        "INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)"
        " VALUES (%s, %s, %s, 'body', '{}')",
        (own, [_part(box)], _part(box)),
    )
    _queue_and_complete(box, login, own)


def _complete_an_own_message_whose_row_counts_the_same_part(box: Box, login: Connection) -> None:
    """Do the same with a message whose row counts its only reference."""
    own = uuid.uuid4()
    with login.transaction():
        login.execute(
            "INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)"
            " VALUES (%s, %s, %s, 'body', '{}', true)",
            (own, [_part(box)], _part(box)),
        )
        _queue_and_complete(box, login, own)


def _complete_it_with_an_own_message_of_the_same_publish(box: Box, login: Connection) -> None:
    """Let both references be released by one call, so that it gets the right transaction for the wrong message."""
    box.connection.execute(
        "INSERT INTO other_q (host_id, message_id, service_class, instance_id, priority, counted_in)"
        " SELECT %s, gen_random_uuid(), 'messaging_in_process', gen_random_uuid(), 5, counted_in FROM default_q",
        (box.host("Other").host_id,),
    )
    _queue_and_complete(box, login, _message(box))


def _cancel_out_the_counts(box: Box, login: Connection) -> None:
    """Let the jobs believe that the last reference was released."""
    for kind, ident in (("message", _message(box)), ("part", _part(box))):
        login.execute(f"INSERT INTO {kind}_ref_count_log_1 ({kind}_id, delta) VALUES (%s, 1), (%s, -1)", (ident, ident))


def _queue_and_complete(box: Box, login: Connection, message_id: uuid.UUID) -> None:
    login.execute(
        "INSERT INTO other_q (host_id, message_id, service_class, instance_id, priority)"
        " VALUES (%s, %s, 'messaging_in_process', gen_random_uuid(), 5)",
        (box.host("Other").host_id, message_id),
    )
    claim = uuid.uuid4()
    query = "SELECT seq FROM dequeue_messages_other(%s, 1, 'messaging_in_process', 10)"
    rows = login.execute(query, (claim,)).fetchall()
    login.execute("SELECT complete_messages_other(%s, %s)", (claim, [seq for (seq,) in rows]))


def _message(box: Box) -> uuid.UUID:
    message_id: uuid.UUID = box.one("SELECT message_id FROM default_q")
    return message_id


def _part(box: Box) -> uuid.UUID:
    part_id: uuid.UUID = box.one("SELECT body_part_id FROM spool s JOIN default_q q USING (message_id)")
    return part_id


@pytest.mark.parametrize(
    "attack",
    [
        _insert_negative_counts,
        _insert_negative_counts_that_match,
        _complete_an_own_reference,
        _complete_an_own_message_with_the_same_part,
        _complete_an_own_message_whose_row_counts_the_same_part,
        _complete_it_with_an_own_message_of_the_same_publish,
        _cancel_out_the_counts,
    ],
)
@pytest.mark.parametrize("counted", ["by its row", "in a log", "in the totals"])
def test_a_login_cannot_destroy_a_message_of_another_host(
    box: Box, login: Connection, message_id: uuid.UUID, attack: Attack, counted: str
) -> None:
    part_id = _part(box)
    if counted != "by its row":
        box.connection.execute("SELECT int_count_in_logs(ARRAY[%s])", (message_id,))
    if counted == "in the totals":
        run_all_jobs_once(box.connection)
    try:
        attack(box, login)
    except NotAllowed:
        assert login.info.user == "olga", "hosts and administrators may try it"
    for _ in range(3):
        assert [run.error for run in run_all_jobs_once(box.connection) if run.error] == []
    assert box.one("SELECT body FROM parts WHERE part_id = %s", part_id) == b"precious"
    assert box.one("SELECT body_part_id FROM spool WHERE message_id = %s", message_id) == part_id
    _complete(box)
    remaining = (
        "SELECT (SELECT count(*) FROM spool WHERE message_id = %s) + (SELECT count(*) FROM parts WHERE part_id = %s)"
    )
    assert box.one(remaining, message_id, part_id) == 0, "its last reference still deletes it"


def _complete(box: Box) -> None:
    claim = uuid.uuid4()
    rows = box.connection.execute(
        "SELECT seq FROM dequeue_messages_default(%s, 1, 'messaging_in_process', 10)", (claim,)
    ).fetchall()
    box.connection.execute("SELECT complete_messages_default(%s, %s)", (claim, [seq for (seq,) in rows]))
    for _ in range(3):
        run_all_jobs_once(box.connection)


def test_no_login_can_count_for_another_transaction(login: Connection, message_id: uuid.UUID) -> None:
    for kind in ("message", "part"):
        with pytest.raises(NotAllowed):
            login.execute(f"INSERT INTO {kind}_ref_count_log_1 VALUES (%s, -1, '3'::xid8)", (message_id,))
    for statement in (
        "INSERT INTO spool (message_id, part_ids, context, counted_in) VALUES (gen_random_uuid(), '{}', '{}', '3')",
        "INSERT INTO parts (part_id, name, content_type, size, counted_in) VALUES (gen_random_uuid(), '', '', 0, '3')",
    ):
        with pytest.raises(NotAllowed):
            login.execute(statement)
    with pytest.raises(NotAllowed):
        login.execute(
            "INSERT INTO other_q (host_id, message_id, service_class, instance_id, priority, counted_in)"
            " VALUES (2, %s, 'messaging_in_process', gen_random_uuid(), 5, '3'::xid8)",
            (message_id,),
        )


def test_no_login_can_record_a_run_of_a_job_in_the_future(box: Box, login: Connection) -> None:
    run_all_jobs_once(box.connection)
    for change in (
        "UPDATE job_runs SET finished_at = 'infinity'",
        "INSERT INTO job_runs (name, started_at, finished_at) VALUES ('x', now(), 'infinity')",
        "DELETE FROM job_runs",
    ):
        with pytest.raises(NotAllowed):
            login.execute(change)


def test_check_reports_a_login_that_counted_down_what_it_did_not_count_up(
    box: Box, login: Connection, message_id: uuid.UUID
) -> None:
    if login.info.user == "olga":
        return
    assert check(box.connection) == []
    _complete_an_own_reference(box, login)
    assert str(message_id) in str(check(box.connection))


def test_no_login_can_delete_receipts_of_the_last_day(box: Box, login: Connection) -> None:
    """A unit of work without its receipt could be published twice."""
    box.connection.execute(
        "INSERT INTO receipts (unit, published_at)"
        " SELECT gen_random_uuid(), now() - age * interval '1 h' FROM unnest(ARRAY[0, 23, 25]) AS age"
    )
    if login.info.user == "olga":
        with pytest.raises(NotAllowed):
            login.execute("SELECT purge_receipts('0', 'infinity')")
    else:
        assert login.execute("SELECT purge_receipts('0', 'infinity')").fetchone() == (1,)
        assert box.count("receipts") == 2
