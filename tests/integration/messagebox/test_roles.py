"""The privileges of each role. The tests log in with each role and run the statements (SEC-13, ACC-72)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.errors import DatabaseError, NotAllowed, NotFound, StorageFailure
from postroom.filters.text import format_filter
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import InstanceQuery, InstanceState, list_instances
from postroom.messagebox.intake.numbered_interchanges import delete_attempts, record_attempt, undo_attempt
from postroom.messagebox.migrate import migrate
from postroom.messagebox.queues import Cause
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.instances.advice import read_advice
from postroom.operations.ports import groups
from postroom.operations.ports import send_ports as ports
from postroom.operations.roles import grant_role, list_roles, revoke_role
from postroom.operations.subscriptions import list_subscriptions, read_subscription_filters
from tests.support.box import Box, Region
from tests.support.host_settings import set_trust
from tests.support.inbox_location import add_inbox_location
from tests.support.publishers import is_waiting_for_lock
from tests.support.waiting import wait_until

ADMINISTRATOR, OPERATOR, HOST, OTHER_HOST, STRANGER = "adam", "olga", "main_service", "other_service", "sam"
ALL_LOGINS = (ADMINISTRATOR, OPERATOR, HOST, OTHER_HOST, STRANGER)
NO_LOGIN: tuple[str, ...] = ()
HOSTS = (HOST, OTHER_HOST)
ADMINISTRATORS_AND_HOSTS = (ADMINISTRATOR, *HOSTS)
ADMINISTRATORS_AND_OPERATORS = (ADMINISTRATOR, OPERATOR)
ALL_ROLES = (ADMINISTRATOR, OPERATOR, *HOSTS)
CORRELATION_VALUE = "a value of a message"

#: Statements, and the logins that are allowed to run them. All other logins are rejected.
PRIVILEGES: list[tuple[str, tuple[str, ...]]] = [
    # Messages: contexts and bodies
    ("SELECT context FROM spool", (ADMINISTRATOR,)),
    ("SELECT message_id FROM spool", (ADMINISTRATOR,)),
    ("SELECT body FROM parts", (ADMINISTRATOR,)),
    ("SELECT body FROM fragments", (ADMINISTRATOR,)),
    ("SELECT * FROM message_properties", ADMINISTRATORS_AND_HOSTS),
    ("UPDATE spool SET context = context", NO_LOGIN),
    ("DELETE FROM parts WHERE false", NO_LOGIN),
    (
        "INSERT INTO spool (message_id, part_ids, context) VALUES (gen_random_uuid(), '{}', '{}')",
        ADMINISTRATORS_AND_HOSTS,
    ),
    (
        (
            "INSERT INTO spool (message_id, part_ids, context, originator_pid)"
            " VALUES (gen_random_uuid(), '{}', '{}', 'x')"
        ),
        (ADMINISTRATOR,),
    ),
    ("SELECT replace_body(gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'body')", (ADMINISTRATOR,)),
    # Queues and instances
    ("SELECT * FROM instances", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT count(*) FROM work_queue", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT error_description FROM suspended_queue", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT properties FROM suspended_queue", (ADMINISTRATOR,)),
    ("SELECT * FROM default_q", (ADMINISTRATOR,)),
    ("SELECT name, path, state FROM file_claims", ALL_ROLES),
    ("SELECT * FROM host_instances", ALL_ROLES),
    ("SELECT * FROM job_runs", ALL_ROLES),
    ("SELECT id, filter, state FROM subscriptions", ALL_ROLES),
    ("SELECT correlation_values FROM subscriptions", (ADMINISTRATOR,)),
    ("SELECT correlation_hash FROM subscriptions", (ADMINISTRATOR,)),
    ("SELECT * FROM find_instance_subscriptions(ARRAY[1])", ADMINISTRATORS_AND_HOSTS),
    ("SELECT * FROM receipts", (ADMINISTRATOR,)),
    # Deployed artifacts
    ("SELECT name, uri, adapter_kind FROM send_ports", ALL_ROLES),
    ("SELECT redacted FROM send_ports", ALL_ROLES),
    ("SELECT definition FROM send_ports", ADMINISTRATORS_AND_HOSTS),
    ("SELECT definition FROM receive_locations", ADMINISTRATORS_AND_HOSTS),
    ("SELECT name FROM applications", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT hosts FROM applications", (ADMINISTRATOR,)),
    ("UPDATE applications SET name = name", (ADMINISTRATOR,)),
    ("UPDATE send_ports SET definition = definition", (ADMINISTRATOR,)),
    ("UPDATE send_ports SET uri = uri", (ADMINISTRATOR,)),
    ("UPDATE receive_locations SET definition = definition", (ADMINISTRATOR,)),
    ("DELETE FROM send_ports WHERE false", (ADMINISTRATOR,)),
    ("INSERT INTO properties (key, value_type) VALUES ('A#b', 1)", (ADMINISTRATOR,)),
    ("UPDATE hosts SET definition = definition", NO_LOGIN),
    ("UPDATE hosts SET role_name = role_name", NO_LOGIN),
    ("UPDATE hosts SET name = name", NO_LOGIN),
    ("INSERT INTO hosts (name, role_name) VALUES ('x', 'postgres')", NO_LOGIN),
    ("UPDATE hosts SET throttling_overrides = throttling_overrides", (ADMINISTRATOR,)),
    ("UPDATE message_box SET id = id", NO_LOGIN),
    ("UPDATE schema_version SET procedures = procedures", NO_LOGIN),
    ("INSERT INTO application_properties VALUES (1, 'Security#Thumbprint', 'T')", (ADMINISTRATOR,)),
    ("UPDATE application_properties SET value = 'T'", (ADMINISTRATOR,)),
    ("UPDATE service_classes SET dequeue_threads = 1", (ADMINISTRATOR,)),
    # Operating
    ("UPDATE services SET state = state WHERE state <> 'bound'", (ADMINISTRATOR,)),
    ("UPDATE send_port_groups SET definition = definition", (ADMINISTRATOR,)),
    ("SELECT name, definition FROM send_port_groups", ADMINISTRATORS_AND_OPERATORS),
    ("UPDATE receive_locations SET enabled = enabled", (ADMINISTRATOR,)),
    ("SELECT change_routing()", (ADMINISTRATOR,)),
    ("SELECT set_subscription_state(0, 'stopped')", (ADMINISTRATOR,)),
    ("SELECT set_subscription_state(0, 'stopped')", (ADMINISTRATOR,)),
    ("SELECT start_or_stop_service(gen_random_uuid(), true, 1)", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT resume_stopped(gen_random_uuid())", (ADMINISTRATOR,)),
    ("SELECT retry_now(gen_random_uuid())", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT store_operation('start', 'x', NULL, gen_random_uuid())", (ADMINISTRATOR,)),
    ("SELECT start_operation('resume', 'x', '{}')", ADMINISTRATORS_AND_OPERATORS),
    ("INSERT INTO management.audit (action, target) VALUES ('a', 'b')", (ADMINISTRATOR,)),
    ("DELETE FROM management.audit", NO_LOGIN),
    ("UPDATE messagebox.operations SET changed = 1", NO_LOGIN),
    ("SELECT resume_stopped_group(gen_random_uuid())", (ADMINISTRATOR,)),
    ("SELECT resume_instances(ARRAY[gen_random_uuid()])", (ADMINISTRATOR,)),
    ("SELECT terminate_instances(ARRAY[gen_random_uuid()])", (ADMINISTRATOR,)),
    ("SELECT change_instances('terminate', ARRAY[gen_random_uuid()])", ADMINISTRATORS_AND_OPERATORS),
    ("SELECT remove_subscription(0)", (ADMINISTRATOR,)),
    ("SELECT create_subscription_default('messaging_in_process', gen_random_uuid(), 'x', '')", (ADMINISTRATOR, HOST)),
    (
        "SELECT create_subscription_other('messaging_in_process', gen_random_uuid(), 'x', '')",
        (ADMINISTRATOR, OTHER_HOST),
    ),
    ("SELECT store_host_definition(1::smallint, '{}')", (ADMINISTRATOR,)),
    ("SELECT grant_role('x', 'y')", (ADMINISTRATOR,)),
    ("SELECT revoke_role('x', 'y')", (ADMINISTRATOR,)),
    # The work of a host
    ("SELECT * FROM dequeue_messages_default(gen_random_uuid(), 1, 'messaging_in_process', 1)", (ADMINISTRATOR, HOST)),
    (
        "SELECT * FROM dequeue_messages_other(gen_random_uuid(), 1, 'messaging_in_process', 1)",
        (ADMINISTRATOR, OTHER_HOST),
    ),
    ("SELECT complete_messages_default(gen_random_uuid(), '{1}')", (ADMINISTRATOR, HOST)),
    ("SELECT * FROM lock_routing()", ADMINISTRATORS_AND_HOSTS),
    ("SELECT take_receipts(ARRAY[gen_random_uuid()], ARRAY[0], ARRAY['{}'::jsonb])", ADMINISTRATORS_AND_HOSTS),
    ("SELECT message_cleanup()", ADMINISTRATORS_AND_HOSTS),
    ("SELECT repair_ref_counts()", (ADMINISTRATOR,)),
    ("SELECT delete_unused_rows()", (ADMINISTRATOR,)),
    # Privileges of the owner
    ("CREATE TABLE messagebox.mine (a int)", NO_LOGIN),
    ("CREATE ROLE somebody_else", NO_LOGIN),
    ("DROP TABLE messagebox.spool", NO_LOGIN),
    ("ALTER TABLE management.send_ports DISABLE ROW LEVEL SECURITY", NO_LOGIN),
    ("SET ROLE postgres", NO_LOGIN),
    ("TRUNCATE receipts", NO_LOGIN),
    ("SELECT setval('queue_sequence', 1)", NO_LOGIN),
]

RELATIONS = (
    "SELECT c.oid::regclass::text, c.relkind FROM pg_class c WHERE c.relkind IN ('r', 'p', 'v')"
    " AND c.relnamespace IN ('messagebox'::regnamespace, 'management'::regnamespace)"
)
COLUMNS_OF_SUBSCRIPTIONS = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_schema = 'messagebox' AND table_name = 'subscriptions'"
)


@pytest.fixture
def logins(box: Box) -> Iterator[dict[str, Connection]]:
    """Yield a connection for each login. Host Default has a port, a message, a location and a waiting instance."""
    box.add_host("Other")
    box.add_location()
    box.add_port("Europe", "Region == 'EU'", adapter={"kind": "http", "headers": {"Authorization": "secret"}})
    box.agent().publish([Message.of(b"secret", promoted={Region: "EU"})])
    ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS).wait(
        box.connection,
        SubscribingService(service_id=uuid.uuid4(), name="Collector"),
        uuid.uuid4(),
        Region == CORRELATION_VALUE,
    )
    roles = {ADMINISTRATOR: "administrators", OPERATOR: "operators", HOST: "host:Default", OTHER_HOST: "host:Other"}
    with ExitStack() as stack:
        connections = {}
        for login in ALL_LOGINS:
            box.connection.execute(f"CREATE ROLE {login} LOGIN")
            if login in roles:
                grant_role(box.connection, roles[login], login)
            connections[login] = stack.enter_context(connect(box.url, user=login))
        yield connections


@contextmanager
def roll_back(connection: Connection) -> Iterator[None]:
    with connection.transaction(force_rollback=True):
        yield


def test_each_role_has_exactly_its_rights(logins: dict[str, Connection]) -> None:
    wrong = []
    for statement, allowed in PRIVILEGES:
        for login, connection in logins.items():
            may = is_allowed(connection, statement)
            if may is not (login in allowed):
                wrong.append((login, "may" if may else "may not", statement))
    assert wrong == []


def is_allowed(connection: Connection, statement: str) -> bool:
    try:
        with roll_back(connection):
            connection.execute(statement)
    except (NotAllowed, DatabaseError):
        # A login without USAGE on the schema does not find its tables.
        return False
    except NotFound:
        pass
    return True


def test_no_role_creates_a_trigger_that_the_owners_functions_would_run(box: Box, logins: dict[str, Connection]) -> None:
    """A trigger runs as the user who changes the table. In a SECURITY DEFINER function this is the owner."""
    allowed = []
    for login, connection in logins.items():
        connection.execute(
            f"CREATE FUNCTION pg_temp.become_owner() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN EXECUTE 'ALTER ROLE {login} SUPERUSER'; RETURN NULL; END $$"
        )
        for relation, kind in box.connection.execute(RELATIONS).fetchall():
            event = "INSTEAD OF UPDATE" if kind == "v" else "AFTER UPDATE"
            trigger = f"CREATE TRIGGER become_owner {event} ON {relation} FOR EACH ROW"
            if is_allowed(connection, f"{trigger} EXECUTE FUNCTION pg_temp.become_owner()"):
                allowed.append((login, relation))
    assert allowed == []


def test_an_administrator_cannot_get_the_role_of_the_owner(box: Box, logins: dict[str, Connection]) -> None:
    """grant_role runs as the owner and grants the roles that are in messagebox.hosts."""
    adam, owner = logins[ADMINISTRATOR], box.one("SELECT current_user")
    for change in ("UPDATE hosts SET role_name = %s", "INSERT INTO hosts (name, role_name) VALUES ('Mine', %s)"):
        with pytest.raises(NotAllowed):
            adam.execute(change, (owner,))
    with pytest.raises(NotFound, match="is no role of this MessageBox"):
        adam.execute("SELECT grant_role(%s, %s)", (owner, ADMINISTRATOR))
    assert not box.one("SELECT pg_has_role(%s, %s, 'member')", ADMINISTRATOR, owner)


def test_an_administrator_publishes_many_messages(box: Box, logins: dict[str, Connection]) -> None:
    messages = [Message.of(b"x", promoted={Region: "EU"}) for _ in range(100)]
    DirectAgent(logins[ADMINISTRATOR], box.host(), RoutingTable()).publish(messages, key="many")
    assert box.queued() == {"Europe": 101}


def test_an_administrator_records_attempts_to_receive_an_interchange(box: Box, logins: dict[str, Connection]) -> None:
    adam, location = logins[ADMINISTRATOR], add_inbox_location(box)
    interchange_id = uuid.uuid4()
    assert [record_attempt(adam, location.location_id, interchange_id) for _ in range(2)] == [1, 2]
    undo_attempt(adam, interchange_id)
    assert record_attempt(adam, location.location_id, interchange_id) == 2
    delete_attempts(adam, interchange_id)
    assert box.receive_attempts() == []


def test_roles_have_only_rights_on_rows(box: Box, logins: dict[str, Connection]) -> None:
    """TRIGGER, REFERENCES, TRUNCATE and MAINTAIN belong to the owner. Schemas and sequences cannot be changed."""
    others = "SELECT r.oid, r.rolname FROM pg_roles r WHERE NOT r.rolsuper AND r.rolname LIKE 'postroom%'"
    relations = (
        f"SELECT o.rolname, c.oid::regclass, a.privilege_type FROM ({others}) o"
        " JOIN pg_class c ON c.relnamespace IN ('messagebox'::regnamespace, 'management'::regnamespace)"
        " CROSS JOIN aclexplode(c.relacl) a WHERE a.grantee IN (o.oid, 0)"
        " AND a.privilege_type <> ALL (CASE c.relkind WHEN 'S' THEN '{USAGE}'::text[]"
        " ELSE '{SELECT,INSERT,UPDATE,DELETE}' END)"
    )
    assert box.connection.execute(relations).fetchall() == []
    schemas = (
        "SELECT n.nspname, a.grantee::regrole, a.privilege_type FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) a"
        " WHERE n.nspname IN ('messagebox', 'management') AND a.privilege_type <> 'USAGE' AND a.grantee <> n.nspowner"
    )
    assert box.connection.execute(schemas).fetchall() == []


def test_functions_of_the_owner_find_only_objects_of_the_owner(box: Box) -> None:
    """A SECURITY DEFINER function has a fixed search path with pg_temp at its end. PUBLIC executes no function."""
    unsafe = (
        "SELECT p.oid::regprocedure FROM pg_proc p"
        " WHERE p.pronamespace IN ('messagebox'::regnamespace, 'management'::regnamespace)"
        " AND (p.prosecdef AND NOT coalesce("
        "'search_path=messagebox, management, pg_temp' = ANY (p.proconfig), false)"
        " OR has_function_privilege('public', p.oid, 'EXECUTE'))"
    )
    assert box.connection.execute(unsafe).fetchall() == []


def test_only_administrators_read_the_values_of_instance_subscriptions(box: Box, logins: dict[str, Connection]) -> None:
    """The values are values of messages. They are in no column that operators and other hosts can read."""
    columns = [name for (name,) in box.connection.execute(COLUMNS_OF_SUBSCRIPTIONS)]
    readers = set()
    for login in ALL_ROLES:
        allowed = [name for name in columns if is_allowed(logins[login], f"SELECT {name} FROM subscriptions")]
        rows = logins[login].execute(f"SELECT {', '.join(allowed)} FROM subscriptions").fetchall()
        assert len(rows) == 2
        if CORRELATION_VALUE in str(rows):
            readers.add(login)
    assert readers == {ADMINISTRATOR}
    for login in ADMINISTRATORS_AND_OPERATORS:
        [port] = list_subscriptions(logins[login], subscription_type="activation")
        assert format_filter(read_subscription_filters(logins[login], [port])[port.subscription_id]).endswith(
            "Orders.Region == 'EU'"
        )
    shown = {
        login: subscription.filter
        for login in ADMINISTRATORS_AND_OPERATORS
        for subscription in list_subscriptions(logins[login], subscription_type="instance")
    }
    assert shown == {ADMINISTRATOR: f"Orders.Region == '{CORRELATION_VALUE}'", OPERATOR: "Orders.Region == '(hidden)'"}
    with pytest.raises(StorageFailure):
        box.connection.execute("UPDATE subscriptions SET filter = 'x' WHERE instance_id IS NOT NULL")


def test_a_host_reads_the_definitions_of_its_own_ports_and_locations_only(
    box: Box, logins: dict[str, Connection]
) -> None:
    box.add_port("Elsewhere", "Region == 'US'", host="Other", adapter={"kind": "http", "proxy": "http://u:secret@p"})
    for table, query in (
        ("ports", "SELECT name FROM send_ports ORDER BY name"),
        ("locations", "SELECT name FROM receive_locations ORDER BY name"),
    ):
        readers = {
            login: [name for (name,) in connection.execute(query)]
            for login, connection in logins.items()
            if login != STRANGER
        }
        everything = ["Elsewhere", "Europe"] if table == "ports" else ["drop"]
        assert readers == {
            ADMINISTRATOR: everything,
            OPERATOR: everything,
            HOST: ["Europe"] if table == "ports" else ["drop"],
            OTHER_HOST: ["Elsewhere"] if table == "ports" else [],
        }


def test_an_operator_gets_advice_about_a_message_that_operators_may_not_read(logins: dict[str, Connection]) -> None:
    [instance] = list_instances(logins[OPERATOR], InstanceQuery(port="Europe"))
    failed = replace(instance, state=InstanceState.SUSPENDED, cause=Cause.FAILURE, error_code="DELIVERY")
    assert "postroom instance resume" in (read_advice(logins[OPERATOR], failed) or "")


def test_an_operator_starts_and_stops_what_is_enlisted(box: Box, logins: dict[str, Connection]) -> None:
    olga = logins[OPERATOR]
    box.add_group("Started", ["Europe"], state="started")
    for operations, name in ((groups, "Started"), (ports, "Europe")):
        with pytest.raises(NotAllowed):
            operations.unenlist(olga, name)
        operations.stop(olga, name)
        operations.start(olga, name)
    assert box.one("SELECT array_agg(DISTINCT state::text) FROM subscriptions WHERE removed_at IS NULL") == ["started"]
    box.add_port("Bound", state="bound")
    with pytest.raises(NotAllowed):
        ports.start(olga, "Bound")


def test_rights_are_the_same_after_the_next_migration(box: Box, logins: dict[str, Connection]) -> None:
    box.connection.execute("UPDATE schema_version SET procedures = 'older'")
    box.connection.execute(f"GRANT SELECT ON parts TO postroom_{box.one('SELECT id FROM message_box')}_operators")
    migrate(box.url)
    test_each_role_has_exactly_its_rights(logins)


def test_roles_are_listed_with_their_logins_and_revoked(box: Box, logins: dict[str, Connection]) -> None:
    def members() -> dict[str, tuple[str, ...]]:
        return {role.name: role.logins for role in list_roles(box.connection)}

    assert members() == {
        "administrators": (ADMINISTRATOR,),
        "operators": (OPERATOR,),
        "host:Default": (HOST,),
        "host:Other": (OTHER_HOST,),
    }
    revoke_role(logins[ADMINISTRATOR], "operators", OPERATOR)
    assert members()["operators"] == ()
    assert not is_allowed(logins[OPERATOR], "SELECT * FROM instances")


def test_a_login_cannot_get_a_trusted_host_and_another_host(box: Box, logins: dict[str, Connection]) -> None:
    set_trust(box.connection, box.host("Other").host_id)
    with pytest.raises(NotAllowed, match="main_service also runs the host Default"):
        grant_role(logins[ADMINISTRATOR], "host:Other", HOST)


@pytest.mark.parametrize("last_change", ["role of the group", "trust"])
def test_a_login_cannot_get_a_trusted_host_and_another_host_through_a_group(
    box: Box, logins: dict[str, Connection], last_change: str
) -> None:
    """Each member of the group runs both hosts, although no host role was granted to the member itself."""
    adam = logins[ADMINISTRATOR]
    other = box.host("Other").host_id
    box.connection.execute("CREATE ROLE services")
    box.connection.execute(f"GRANT services TO {HOST}")
    if last_change == "trust":
        grant_role(adam, "host:Other", "services")
        with pytest.raises(NotAllowed, match="main_service also runs the host Default"):
            set_trust(adam, other)
    else:
        set_trust(adam, other)
        with pytest.raises(NotAllowed, match="main_service also runs the host Default"):
            grant_role(adam, "host:Other", "services")


def test_a_role_is_not_granted_while_trust_is_being_changed(box: Box, logins: dict[str, Connection]) -> None:
    adam = logins[ADMINISTRATOR]
    with ThreadPoolExecutor() as pool:
        with box.connection.transaction():
            set_trust(box.connection, box.host("Other").host_id)
            granted = pool.submit(grant_role, adam, "host:Other", HOST)
            wait_until(lambda: is_waiting_for_lock(box, adam), what="the grant to wait for the change of trust")
        with pytest.raises(NotAllowed, match="main_service also runs the host Default"):
            granted.result(30)


def test_the_former_host_of_a_port_reads_the_port_until_its_queue_is_empty(
    box: Box, logins: dict[str, Connection]
) -> None:
    box.move_service("Europe", box.host("Other"))
    names = "SELECT name FROM send_ports"
    box.connection.execute("SELECT purge_subscriptions()")
    assert logins[HOST].execute(names).fetchall() == [("Europe",)], "the queue has a message"
    claim = uuid.uuid4()
    (seq,) = box.connection.execute(
        "SELECT seq FROM dequeue_messages_default(%s, 1, 'messaging_in_process', 1)", (claim,)
    ).fetchone() or (0,)
    box.connection.execute("SELECT complete_messages_default(%s, %s)", (claim, [seq]))
    box.connection.execute("SELECT purge_subscriptions()")
    assert logins[HOST].execute(names).fetchall() == []
