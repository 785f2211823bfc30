"""Applying applications that declare trust and application properties of hosts. SEC-02, 09, 11."""

from __future__ import annotations

from typing import Any

from postroom import Application, Property, Throttling, adapters
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.operations.deployment.apply import plan
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.hosts import list_hosts
from postroom.ports.receive_locations import read_receive_locations
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy

Thumbprint = Property("Security.Thumbprint", str)
Level = Property("Security.Level", int)


def build_application(name: str = "guarded", **host: Any) -> Application:
    app = Application(name)
    app.host("Secure", **host)
    return app


def read_secure_host(connection: Connection) -> tuple[bool, set[tuple[str, str]]]:
    host = find_host(connection, "Secure")
    return host.trusted, Contents(connection).host_properties(host.host_id)


def test_trust_and_application_properties_follow_the_declaration(connection: Connection) -> None:
    deploy(connection, build_application(trusted=True, properties={Thumbprint: "T", Level: [1, 2]}))
    assert read_secure_host(connection) == (
        True,
        {("Security#Thumbprint", "T"), ("Security#Level", "1"), ("Security#Level", "2")},
    )
    assert (
        deploy(connection, build_application(trusted=True, properties={Level: [2, 1], Thumbprint: "T"})).changes == ()
    )
    changed = deploy(connection, build_application(properties={Thumbprint: "U"}))
    (step,) = changed.select(ChangeKind.HOST, Action.CHANGE)
    assert [(difference.field, difference.before, difference.after) for difference in step.differences] == [
        ("trusted", "yes", "no"),
        (
            "properties",
            "Security.Level = '1', Security.Level = '2', Security.Thumbprint = 'T'",
            "Security.Thumbprint = 'U'",
        ),
    ]
    assert read_secure_host(connection) == (False, {("Security#Thumbprint", "U")})


def test_undeclared_host_settings_keep_the_declaration_of_other_applications(connection: Connection) -> None:
    deploy(connection, build_application(trusted=True))
    deploy(connection, build_application("second", properties={Thumbprint: "T"}))
    deploy(connection, build_application("third"))
    assert read_secure_host(connection) == (True, {("Security#Thumbprint", "T")})


def test_conflicting_host_declarations_of_two_applications_are_rejected(connection: Connection) -> None:
    deploy(connection, build_application(trusted=True, properties={Thumbprint: "T"}))
    problems = plan(
        connection, build_application("second", trusted=False, properties={Thumbprint: "U"}).definition(), home=HOME
    ).problems
    assert [problem.text for problem in problems] == [
        "host 'Secure': it is trusted in the application 'guarded'.",
        "host 'Secure': it has other properties in the application 'guarded'.",
    ]


def test_a_host_change_increments_the_routing_version(connection: Connection) -> None:
    deploy(connection, build_application())
    before = read_routing_version(connection)
    deploy(connection, build_application(properties={Thumbprint: "T"}))
    assert read_routing_version(connection) > before


def test_authentication_follows_the_declaration_and_needs_a_trusted_host(connection: Connection) -> None:
    def app(authentication: Any, *, trusted: bool | None) -> Application:
        declared = Application("partners")
        declared.host("Gate", trusted=trusted)
        declared.receive_port("Partners", authentication=authentication).location(
            "drop", adapters.File("in"), host="Gate"
        )
        return declared

    (problem,) = plan(connection, app("drop", trusted=None).definition(), home=HOME).problems
    assert "requires authentication, but the host 'Gate' is not trusted" in problem.text
    deploy(connection, app("drop", trusted=True))
    assert [location.authentication for location in read_receive_locations(connection)] == ["drop"]
    done = deploy(connection, app("keep", trusted=True))
    [difference] = next(step.differences for step in done.select(ChangeKind.RECEIVE_PORT, Action.CHANGE))
    assert (difference.field, difference.before, difference.after) == ("authentication", "drop", "keep")
    assert [location.authentication for location in read_receive_locations(connection)] == ["keep"]


def test_the_number_of_threads_follows_the_declaration(connection: Connection) -> None:
    deploy(connection, build_application())
    assert [(host.name, host.threads) for host in list_hosts(connection)] == [("Main", None), ("Secure", None)]
    changed = deploy(connection, build_application(threads=20))
    (step,) = changed.select(ChangeKind.HOST, Action.CHANGE)
    assert [(difference.field, difference.after) for difference in step.differences] == [("threads", "20")]
    (problem,) = plan(connection, build_application("second", threads=5).definition(), home=HOME).problems
    assert problem.text == "host 'Secure': it has 20 threads in the application 'guarded'."
    deploy(connection, build_application("third"))
    assert [(host.name, host.threads) for host in list_hosts(connection)] == [("Main", None), ("Secure", 20)]
    deploy(connection, build_application())
    assert find_host(connection, "Secure").threads is None


def test_throttling_thresholds_follow_the_declaration(connection: Connection) -> None:
    deploy(connection, build_application())
    assert find_host(connection, "Secure").throttling == Throttling()
    changed = deploy(connection, build_application(throttling=Throttling(messages=1_000, longest_delay=60)))
    (step,) = changed.select(ChangeKind.HOST, Action.CHANGE)
    assert [(difference.field, difference.before, difference.after) for difference in step.differences] == [
        (
            "throttling",
            "above 50,000 messages, 10 times that in the spool, up to 300 s",
            "above 1,000 messages, 10 times that in the spool, up to 60 s",
        )
    ]
    assert find_host(connection, "Secure").throttling == Throttling(messages=1_000, longest_delay=60)
    assert deploy(connection, build_application(throttling=Throttling(messages=1_000, longest_delay=60))).changes == ()
    other = build_application("second", throttling=Throttling(messages=0)).definition()
    (problem,) = plan(connection, other, home=HOME).problems
    assert "it throttles above 1,000 messages" in problem.text
    # An application that does not declare it changes nothing.
    deploy(connection, build_application("third"))
    assert find_host(connection, "Secure").throttling.messages == 1_000
