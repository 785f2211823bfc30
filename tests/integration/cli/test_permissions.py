"""The command line with logins of different roles: allowed commands work, others are rejected in three lines."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.messagebox.configuration.hosts import ServiceClass, read_hosts
from postroom.messagebox.connection import connect
from postroom.messagebox.migrate import create_host
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.properties import Property
from tests.integration.cli.conftest import CommandResult, Run

Commands = list[tuple[str, ...]]

EVERYBODY_SEES: Commands = [
    ("application", "list"),
    ("group", "list"),
    ("host", "list"),
    ("host", "show", "Main"),
    ("instance", "list"),
    ("instance", "list", "--group-by", "port"),
    ("instance", "list", "--interchange", "767d8066-85c8-cc9d-2b7e-f0560eed4a98"),
    ("instance", "show", "INSTANCE"),
    ("jobs", "list"),
    ("location", "list"),
    ("orchestration", "list"),
    ("orchestration", "show", "book"),
    ("port", "list"),
    ("port", "show", "Europe"),
    ("queue", "list"),
    ("subscription", "list"),
    ("role", "list"),
    ("explain", "--promoted", "Orders.Region=EU"),
]
OPERATORS_DO: Commands = [
    ("port", "start", "Europe"),
    ("port", "stop", "Europe"),
    ("port", "start", "Europe"),
    ("port", "stop", "Audit"),
    ("orchestration", "stop", "book"),
    ("orchestration", "start", "book"),
    ("orchestration", "bind", "book", "Audit", "Europe"),
    ("orchestration", "unbind", "book", "Audit"),
    ("location", "schedule", "drop", "--every-days", "1"),
    ("location", "disable", "drop"),
    ("location", "enable", "drop"),
    ("instance", "suspend", "INSTANCE"),
    ("instance", "resume", "INSTANCE"),
    ("instance", "suspend", "INSTANCE"),
    ("instance", "reroute", "INSTANCE"),
    ("instance", "terminate", "INSTANCE", "--yes"),
]
ADMINISTRATORS_DO: Commands = [
    ("message", "list"),
    ("message", "show", "INSTANCE"),
    ("message", "body", "INSTANCE"),
    ("explain", "INSTANCE"),
    ("port", "unenlist", "BigOrders"),
    ("orchestration", "unenlist", "pay"),
    ("publish", "FILE", "-p", "Region=EU"),
    ("apply", "CHANGED"),
    ("plan", "CHANGED"),
    ("check",),
    ("role", "grant", "operators", "somebody"),
    ("role", "revoke", "operators", "somebody"),
]
ONLY_THE_OWNER_DOES: Commands = [("apply", "NEW_HOST")]

ORCHESTRATIONS = """

@app.orchestration(activate=Region == "BOOK")
async def book(order):
    await orchestrations.send(order, to="Audit")


@app.orchestration(activate=Region == "PAY")
async def pay(order):
    pass


"""

As = Callable[..., CommandResult]


@pytest.fixture
def app(app: Path) -> Path:
    """Return the file of an application with orchestrations."""
    app.write_text(app.read_text() + ORCHESTRATIONS)
    return app


@pytest.fixture
def as_login(applied: Run, database: str, app: Path, tmp_path: Path) -> As:
    """Run a command as one of the logins olga (operators), adam (administrators) and sam (no role)."""
    with connect(database) as connection:
        for login in ("olga", "adam", "sam", "somebody"):
            connection.execute(f"CREATE ROLE {login} LOGIN")
    for role, login in (("operators", "olga"), ("administrators", "adam")):
        assert applied("role", "grant", role, login).code == ExitCode.OK
    (tmp_path / "order.json").write_text("{}")
    applied("port", "stop", "Europe")
    applied("publish", tmp_path / "order.json", "-p", "Region=EU")
    [instance] = applied("instance", "list", "-o", "json").json
    changed, new_host = tmp_path / "changed.py", tmp_path / "new_host.py"
    changed.write_text(app.read_text() + 'app.send_port("More", adapters.File("out/more"), filter=Region == "US")\n')
    new_host.write_text(app.read_text() + 'app.host("Second")\n')
    words = {
        "INSTANCE": str(instance["instance_id"]),
        "FILE": str(tmp_path / "order.json"),
        "CHANGED": str(changed),
        "NEW_HOST": str(new_host),
    }

    def run(login: str, *command: str) -> CommandResult:
        url = database.replace("postgres@", f"{login}@")
        return applied("--database", url, *(words.get(word, word) for word in command))

    return run


def is_rejected(ran: CommandResult) -> bool:
    lines = ran.err.splitlines()
    return ran.code == ExitCode.STATE and [line.split(":")[0].strip() for line in lines] == ["Error", "why", "hint"]


def test_an_operator_can_list_and_operate_only(as_login: As) -> None:
    for command in ADMINISTRATORS_DO + ONLY_THE_OWNER_DOES:
        ran = as_login("olga", *command)
        assert is_rejected(ran), (command, ran)
        assert "may not" in ran.err
    ran = as_login("olga", "instance", "resume", "INSTANCE", "--body", "FILE")
    assert is_rejected(ran), "a new body changes content"
    for command in EVERYBODY_SEES + OPERATORS_DO:
        ran = as_login("olga", *command)
        assert ran.code == ExitCode.OK, (command, ran)
    assert as_login("adam", "port", "unenlist", "Audit").code == ExitCode.OK
    for verb in ("enlist", "start"):
        assert is_rejected(as_login("olga", "port", verb, "Audit")), "a subscription is configuration"
    assert as_login("adam", "port", "start", "Audit").code == ExitCode.OK


def test_an_administrator_can_do_everything_except_create_hosts(as_login: As) -> None:
    for command in EVERYBODY_SEES + ADMINISTRATORS_DO + OPERATORS_DO:
        ran = as_login("adam", *command)
        assert ran.code == ExitCode.OK, (command, ran)
    for command in ONLY_THE_OWNER_DOES:
        assert is_rejected(as_login("adam", *command)), command


def test_a_plan_refuses_what_an_administrator_may_not_apply(as_login: As, app: Path) -> None:
    planned = as_login("adam", "plan", "NEW_HOST")
    assert is_rejected(planned)
    assert "The login may not create the host 'Second'." in planned.err
    assert as_login("postgres", "plan", "NEW_HOST").code == ExitCode.OK
    new_host = app.parent / "new_host.py"
    new_host.write_text(new_host.read_text().replace('app.send_port("Europe"', 'app.send_port("EU"'))
    refused = as_login("adam", "plan", "NEW_HOST")
    assert refused.code == ExitCode.REFUSED
    assert "2 problems" in refused.err, "the missing right is not hidden behind the other problem"


def test_an_administrator_renames_ports_and_removes_applications(as_login: As, app: Path) -> None:
    app.write_text(
        app.read_text().replace('app.send_port("Europe",', 'app.send_port("EU", renamed_from="Europe", adapter=')
    )
    for command in (
        ("apply", str(app)),
        ("application", "remove", "orders", "--backlog", "reroute", "--yes"),
        ("apply", str(app)),
    ):
        ran = as_login("adam", *command)
        assert ran.code == ExitCode.OK, (command, ran)


def test_an_administrator_changes_and_removes_what_is_deployed(as_login: As, app: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.py"
    more.write_text(
        app.read_text()
        + "from postroom.application import Throttling\n"
        + 'app.host("Main", trusted=True, throttling=Throttling(messages=7), properties={Region: "EU"})\n'
        + 'app.send_port_group("Everywhere", ["Europe", "Audit"], filter=Region == "US")\n'
        + 'app.receive_port("More").location("more", adapters.File("more"))\n'
    )
    for command in (
        ("apply", str(more)),
        ("group", "stop", "Everywhere"),
        ("group", "start", "Everywhere"),
        ("apply", str(app)),
        ("instance", "resume", "INSTANCE", "--body", "FILE"),
        ("jobs", "run"),
    ):
        ran = as_login("adam", *command)
        assert ran.code == ExitCode.OK, (command, ran)


def test_a_login_without_a_role_is_rejected(as_login: As) -> None:
    for command in EVERYBODY_SEES + ADMINISTRATORS_DO + OPERATORS_DO + ONLY_THE_OWNER_DOES:
        ran = as_login("sam", *command)
        assert is_rejected(ran), (command, ran)


def test_operators_explain_without_waiting_instances(as_login: As, database: str) -> None:
    with connect(database) as connection:
        [host] = read_hosts(connection)
        service = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")
        waiting = ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS)
        waiting.wait(connection, service, uuid.uuid4(), Property("Orders.Region", str) == "ASIA")
    asked = ("explain", "--promoted", "Orders.Region=ASIA")
    assert "Collector" in as_login("adam", *asked).out
    result = as_login("olga", *asked)
    assert result.code in (ExitCode.OK, ExitCode.FAILED), result
    assert "Collector" not in result.out
    assert "Instances may also wait for it" in result.out
    assert as_login("olga", *asked, "-o", "json").json[0]["waiting_instances_unseen"] is True
    assert (
        as_login("olga", "explain", "--promoted", "Orders.Total=1", "-o", "json").json[0]["waiting_instances_unseen"]
        is False
    )
    [listed] = as_login("olga", "subscription", "list", "--type", "instance", "-o", "json").json
    assert listed["filter"] == "Orders.Region == '(hidden)'"


def test_operators_cannot_read_adapter_settings(as_login: As) -> None:
    assert "out/europe" in as_login("adam", "port", "show", "Europe", "-o", "json").json["adapter"].values()
    assert as_login("olga", "port", "show", "Europe", "-o", "json").json["adapter"] == {"kind": "file"}


def test_roles_are_granted_to_existing_logins(applied: Run) -> None:
    listed = applied("role", "list", "-o", "json").json
    assert [one["name"] for one in listed] == ["administrators", "operators", "host:Main"]
    wrong = applied("role", "grant", "kings", "postgres")
    assert wrong.code == ExitCode.NOT_FOUND
    assert all(one["name"] in wrong.err for one in listed)
    missing = applied("role", "grant", "operators", "nobody_of_that_name")
    assert missing.code == ExitCode.NOT_FOUND
    assert "CREATE ROLE" in missing.err


@pytest.mark.parametrize("command", [("host", "run", "Main"), ("pipeline", "run", "Main", "--once")])
def test_only_the_login_of_a_host_can_run_it(as_login: As, database: str, command: tuple[str, ...]) -> None:
    """Operators, logins without a role, and the login of another host are rejected and see no success message."""
    with connect(database) as connection:
        create_host(connection, "Second")
        [role] = [host.role_name for host in read_hosts(connection) if host.name == "Second"]
        connection.execute(f"GRANT {role} TO somebody")
    for login in ("olga", "sam", "somebody"):
        ran = as_login(login, *command)
        assert is_rejected(ran), (login, ran)
        assert ran.out == ""
    assert "may not run the host Main" in as_login("somebody", *command).err


def test_only_an_administrator_can_run_up(as_login: As) -> None:
    for login in ("olga", "sam"):
        ran = as_login(login, "up", "CHANGED")
        assert is_rejected(ran), (login, ran)
