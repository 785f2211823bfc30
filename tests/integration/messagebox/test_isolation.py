"""The database isolates hosts. The tests log in as one of them (SUB-07, ACC-72, ADR 0012)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import NotAllowed
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from tests.support.box import Box, Region, interchange


@pytest.fixture
def other(box: Box) -> Iterator[Connection]:
    """Yield a connection with the login of host Other. The queue of host Default has a message."""
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([Message.of(b"secret", promoted={Region: "EU"})])
    with connect(box.url, user=box.host("Other").role_name) as connection:
        yield connection


FORBIDDEN = [
    "SELECT * FROM dequeue_messages_default(gen_random_uuid(), 1, 'messaging_in_process', 10)",
    "SELECT complete_messages_default(gen_random_uuid(), '{1}')",
    "SELECT create_subscription_default('messaging_in_process', gen_random_uuid(), 'x', '')",
    "SELECT insert_predicate_default(1, 0, 5::smallint, 'Orders#Region', 0::smallint, 'EU', null, null, null)",
    "SELECT * FROM read_parts_default(gen_random_uuid(), 1, gen_random_uuid())",
    "SELECT * FROM read_fragments_default(gen_random_uuid(), 1, gen_random_uuid(), gen_random_uuid(), 0, 1)",
    "SELECT release_due_default(10)",
    "SELECT int_take_claimed_other(gen_random_uuid(), '{1}')",
    "SELECT int_enqueue('{}')",
    "SELECT int_finish('{}')",
    "SELECT insert_error_message_default(gen_random_uuid(), 1, gen_random_uuid(), '{}', '', '')",
    (
        "SELECT int_create_subscription(1::smallint, 'messaging_in_process', gen_random_uuid(), 'x', '',"
        " 5::smallint, null, false, false)"
    ),
    "SELECT correlation_type('{1}')",
    "SELECT int_create_convoy_set(1::smallint, '{}', '{}')",
    "SELECT int_remove_instances(1::smallint, ARRAY[gen_random_uuid()], now())",
    "SELECT change_subscription_default(1, 'started')",
    "SELECT remove_instance_subscription_default(gen_random_uuid(), 'a', 'b')",
    "SELECT * FROM complete_instance_default(gen_random_uuid())",
    "SELECT * FROM convoy_set_instances",
    "DELETE FROM convoy_set_instances",
    "INSERT INTO correlation_types (property_ids) VALUES ('{1}')",
    "SELECT int_release('{}', '{}')",
    "SELECT int_count_in_logs('{}')",
    "SELECT int_log_references(1, '{}', '{}')",
    "SELECT change_routing()",
    "SELECT set_subscription_state(1, 'stopped')",
    "SELECT remove_subscription(1)",
    "SELECT resume_instances(ARRAY[gen_random_uuid()])",
    "SELECT terminate_instances(ARRAY[gen_random_uuid()])",
    "SELECT suspend_instances(ARRAY[gen_random_uuid()])",
    "SELECT replace_body(gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'body')",
    "SELECT * FROM receipts",
    "INSERT INTO receipts (unit) VALUES (gen_random_uuid())",
    "UPDATE receipts SET outcome = '{}'",
    "DELETE FROM receipts",
    "SELECT * FROM spool",
    "SELECT * FROM parts",
    "SELECT * FROM fragments",
    "SELECT * FROM work_queue",
    "SELECT * FROM default_q",
    "SELECT * FROM other_q",
    "SELECT * FROM instances",
    "UPDATE spool SET context = '{}'",
    "UPDATE parts SET body = ''",
    "DELETE FROM spool",
    "DELETE FROM default_q",
    "TRUNCATE message_ref_count_log_1",
    "INSERT INTO spool (message_id, part_ids, context, published_by) VALUES (gen_random_uuid(), '{}', '{}', 'me')",
    (
        "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority, claim_id)"
        " VALUES (1, gen_random_uuid(), 'messaging_in_process', gen_random_uuid(), 5, gen_random_uuid())"
    ),
    (
        "INSERT INTO subscriptions (host_id, service_class, service_id, service_name)"
        " VALUES (1, 'messaging_in_process', gen_random_uuid(), 'x')"
    ),
    "UPDATE services SET state = 'bound'",
    "DELETE FROM subscriptions",
]


def test_a_host_cannot_use_the_objects_of_another_host(other: Connection) -> None:
    allowed = []
    for statement in FORBIDDEN:
        try:
            other.execute(statement)
        except NotAllowed:
            continue
        allowed.append(statement)
    assert allowed == []


def test_a_host_dequeues_its_own_queue(box: Box, other: Connection) -> None:
    query = "SELECT * FROM dequeue_messages_other(%s, 1, 'messaging_in_process', 10)"
    claimed = other.execute(query, (uuid.uuid4(),)).fetchall()
    assert claimed == []
    assert box.count_rows("default_q") == 1


def test_a_host_cannot_add_predicates_to_the_subscription_of_another_host(box: Box, other: Connection) -> None:
    with pytest.raises(NotAllowed, match="does not belong to this host"):
        other.execute(
            "SELECT insert_predicate_other(%s, 0, 5::smallint, 'Orders#Region', 0::smallint, 'US', null, null, null)",
            (box.one("SELECT min(id) FROM subscriptions"),),
        )


def test_the_originator_comes_from_the_login(box: Box, other: Connection) -> None:
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    Receiver(other, RoutingTable()).receive(location, [interchange(b'{"region":"ASIA"}')])
    published_by = box.one("SELECT published_by FROM spool ORDER BY published_at DESC LIMIT 1")
    assert published_by == box.host("Other").role_name


def test_each_host_can_publish_to_each_host(box: Box, other: Connection) -> None:
    location = box.add_location()
    box.add_port("Mine", "Region == 'ASIA'", host="Other")
    box.add_port("Theirs", "Region == 'ASIA'")
    Receiver(other, RoutingTable()).receive(location, [interchange(b'{"region":"ASIA"}')])
    assert box.queued() == {"Europe": 1, "Mine": 1, "Theirs": 1}
    assert (box.count_rows("other_q"), box.count_rows("default_q")) == (1, 2)


def test_a_host_cannot_read_the_file_claims_and_instances_of_another_host(box: Box, other: Connection) -> None:
    location = box.add_location()
    box.connection.execute(
        "INSERT INTO file_claims (interchange_id, location_id, name, path) VALUES (gen_random_uuid(), %s, 'a', 'in/a')",
        (location.location_id,),
    )
    box.connection.execute(
        "INSERT INTO host_instances (host_id, server, pid) VALUES (%s, 'elsewhere', 1)", (box.host().host_id,)
    )
    for table in ("file_claims", "host_instances"):
        assert other.execute(f"SELECT * FROM {table}").fetchall() == []
        assert other.execute(f"DELETE FROM {table}").rowcount == 0
        assert box.count_rows(table) == 1
    with pytest.raises(NotAllowed, match="row-level security"):
        other.execute(
            "INSERT INTO file_claims (interchange_id, location_id, name, path)"
            " VALUES (gen_random_uuid(), %s, 'b', 'in/b')",
            (location.location_id,),
        )


def test_a_host_cannot_delete_receipts(box: Box, other: Connection) -> None:
    box.agent().publish([Message.of(b"", promoted={Region: "EU"})], key="kept")
    other.execute("SELECT purge_receipts('-1 day', now() + interval '30 days')")
    assert box.count("receipts") == 1
    box.connection.execute("SELECT purge_receipts('1 day', now() + interval '30 days')")
    assert box.count("receipts") == 0


def test_a_login_without_roles_has_no_rights(box: Box) -> None:
    box.connection.execute("CREATE ROLE stranger LOGIN")
    with connect(box.url, user="stranger") as connection, pytest.raises(NotAllowed):
        connection.execute("SELECT * FROM messagebox.lock_routing()")
