"""The bindings of orchestrations in a deployment: what an apply keeps, changes and refuses (ORC-13, SPT-09, ORS-01)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.application import load
from postroom.errors import DefinitionRefused, NotFound, StateError
from postroom.messagebox.audit import list_audit
from postroom.messagebox.bindings import BoundBy, read_bindings
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment.apply import apply, plan, remove
from postroom.operations.deployment.plan import ChangeKind, Plan, PlanStep
from postroom.operations.orchestrations import states
from postroom.operations.orchestrations.bindings import PortBinding, bind, unbind
from postroom.operations.ports import groups, send_ports
from postroom.ports.send_ports import read_send_ports

HEAD = """
from postroom import Application, Message, Property, adapters, orchestrations

Kind = Property("Tests.Kind", str)
app = Application("{name}")
app.property(Kind)
"""
PORTS = """
app.send_port("Shipping", adapters.Null())
app.send_port("Courier", adapters.Null())
app.send_port_group("Carriers", ["Shipping", "Courier"])
"""
SHIP = """
@app.orchestration(activate=Kind == "order"{settings})
async def ship(order: Message) -> None:
    await orchestrations.send(Message.of(b""), to="Shipping")
"""

Act = Callable[..., Plan]


@pytest.fixture
def deploy(connection: Connection, tmp_path: Path) -> Act:
    """Write an application, and apply it, or only plan it with ``act=plan``."""

    def deploy(*parts: str, name: str = "shop", act: Act = apply) -> Plan:
        file = tmp_path / f"{name}.py"
        file.write_text(HEAD.format(name=name) + "".join(map(textwrap.dedent, parts)))
        return act(connection, load(file), home=tmp_path)

    return deploy


def ship(settings: str = "") -> str:
    return SHIP.format(settings=settings)


def get_binding(connection: Connection, name: str = "ship") -> PortBinding:
    [binding] = states.get_orchestration_details(connection, name).bindings
    return binding


def describe(connection: Connection) -> tuple[str, str | None, str]:
    binding = get_binding(connection)
    return binding.target, binding.kind, binding.bound_by


def get_step(plan: Plan) -> PlanStep:
    [step] = (step for step in plan.steps if step.kind is ChangeKind.ORCHESTRATION)
    return step


def test_an_apply_keeps_the_binding_of_an_operator(connection: Connection, deploy: Act) -> None:
    """ORC-13: also with changed code, and in a new version."""
    deploy(PORTS, ship())
    assert describe(connection) == ("Shipping", "send port", BoundBy.DEFAULT)
    bind(connection, "ship", "Shipping", "Carriers")
    assert describe(connection) == ("Carriers", "send port group", BoundBy.OPERATOR)
    planned = deploy(PORTS, ship())
    assert planned.changes == ()
    assert get_step(planned).note == "Shipping stays bound to Carriers"
    deploy(PORTS, ship(), "# another comment\n")
    deploy(PORTS, ship(), ship(", version=2"))
    assert describe(connection) == ("Carriers", "send port group", BoundBy.OPERATOR)
    bind(connection, "ship", "Shipping", None)
    assert describe(connection) == ("direct", "direct", BoundBy.OPERATOR)
    unbind(connection, "ship", "Shipping")
    assert describe(connection) == ("Shipping", "send port", BoundBy.DEFAULT)
    assert find_violations(connection) == []


def test_a_binding_that_the_application_declares_replaces_that_of_an_operator(
    connection: Connection, deploy: Act
) -> None:
    """FLT-13: the plan shows it, and an apply restores it."""
    deploy(PORTS, ship())
    declared = ship(', bindings={"Shipping": "Courier"}')
    planned = deploy(PORTS, declared)
    differences = [(one.field, one.before, one.after) for one in get_step(planned).differences]
    assert ("binding of Shipping", "Shipping", "Courier") in differences
    assert describe(connection) == ("Courier", "send port", BoundBy.APPLICATION)
    bind(connection, "ship", "Shipping", None)
    planned = deploy(PORTS, declared)
    assert [(one.before, one.after) for one in get_step(planned).differences] == [("direct", "Courier")]
    assert describe(connection) == ("Courier", "send port", BoundBy.APPLICATION)
    assert deploy(PORTS, declared).changes == ()
    deploy(PORTS, ship())
    assert describe(connection) == ("Shipping", "send port", BoundBy.DEFAULT)


def test_a_port_that_an_orchestration_of_another_application_is_bound_to_is_not_removed(
    connection: Connection, deploy: Act, tmp_path: Path
) -> None:
    """SPT-09: bound by its name, or by an operator. The plan says who is bound."""
    deploy(PORTS, name="ports")
    deploy(ship())
    group = 'app.send_port_group("Carriers", ["Courier"])\napp.send_port("Courier", adapters.Null())\n'
    [problem] = deploy(group, name="ports", act=plan).problems
    assert problem.text == (
        "orchestration 'ship' of the application 'shop': its application binds its logical port 'Shipping' to "
        "'Shipping', which cannot be removed. Bind it to another one first: "
        "postroom orchestration bind ship Shipping TARGET"
    )
    with pytest.raises(DefinitionRefused):
        deploy(group, name="ports")
    bind(connection, "ship", "Shipping", "Carriers")
    with pytest.raises(DefinitionRefused, match="an operator has bound its logical port 'Shipping' to 'Carriers'"):
        remove(connection, "ports", home=tmp_path)
    deploy(group, name="ports")
    with pytest.raises(StateError, match="Orchestration 'ship' is not bound"):
        unbind(connection, "ship", "Shipping")
    remove(connection, "shop", home=tmp_path)
    assert read_bindings(connection) == {}
    remove(connection, "ports", home=tmp_path)
    assert find_violations(connection) == []


def test_an_application_does_not_remove_a_port_that_an_operator_has_bound_its_own_orchestration_to(
    connection: Connection, deploy: Act
) -> None:
    """SPT-09: it may remove the port with the orchestration, or with the code that names the logical port."""
    courier = 'app.send_port("Courier", adapters.Null())\n'
    shipping = 'app.send_port("Shipping", adapters.Null())\n'
    deploy(shipping, courier, ship())
    bind(connection, "ship", "Shipping", "Courier")
    with pytest.raises(DefinitionRefused, match="to 'Courier', which cannot be removed"):
        deploy(shipping, ship())
    deploy(courier, ship())
    deploy(courier, ship(', bindings={"Shipping": None}'))
    assert read_bindings(connection) == {}
    deploy(courier, ship(', state="bound"').replace("Shipping", "Courier"))
    bind(connection, "ship", "Courier", "Courier")
    deploy(shipping, ship())
    assert describe(connection) == ("Shipping", "send port", BoundBy.DEFAULT)


def test_the_binding_of_an_operator_moves_with_a_renamed_port(connection: Connection, deploy: Act) -> None:
    """SPT-09: a port that is bound by its name is not renamed by another application, until an operator binds it."""
    deploy(PORTS, name="ports")
    deploy(ship())
    renamed = PORTS.replace('"Shipping"', '"Parcels"').replace("Null()", 'Null(), renamed_from="Shipping"', 1)
    with pytest.raises(DefinitionRefused, match="postroom orchestration bind ship Shipping Shipping"):
        deploy(renamed, name="ports")
    bind(connection, "ship", "Shipping", "Shipping")
    deploy(renamed, name="ports")
    assert describe(connection) == ("Parcels", "send port", BoundBy.OPERATOR)
    assert "Parcels" in {port.name for port in read_send_ports(connection)}


def test_an_orchestration_that_is_not_bound_can_be_deployed_and_not_enlisted(
    connection: Connection, deploy: Act
) -> None:
    """ORS-01: it is enlisted as soon as an operator has bound it."""
    courier = 'app.send_port("Courier", adapters.Null())\n'
    with pytest.raises(DefinitionRefused, match="there is no send port or send port group 'Shipping'"):
        deploy(courier, ship())
    planned = deploy(courier, ship(', state="bound"'))
    assert "Shipping is not bound" in get_step(planned).note
    assert get_binding(connection).kind is None
    for operation in (states.enlist, states.start):
        with pytest.raises(StateError, match="Orchestration 'ship' is not bound") as refused:
            operation(connection, "ship")
        assert "postroom orchestration bind ship Shipping TARGET" in refused.value.hint
    bind(connection, "ship", "Shipping", "Courier")
    states.start(connection, "ship")
    with pytest.raises(StateError, match="Orchestration 'ship' is not bound"):
        unbind(connection, "ship", "Shipping")


def test_an_orchestration_starts_only_if_its_ports_are_enlisted(connection: Connection, deploy: Act) -> None:
    """ORS-02: the start does not start the ports."""
    bound = PORTS.replace('"Shipping", adapters.Null()', '"Shipping", adapters.Null(), state="bound"')
    with pytest.raises(DefinitionRefused, match="orchestration 'ship' cannot start: 'Shipping'"):
        deploy(bound, ship())
    deploy(bound, ship(', state="stopped"'))
    with pytest.raises(StateError, match="the send port 'Shipping', to which its logical port 'Shipping' is bound, is"):
        states.start(connection, "ship")
    send_ports.enlist(connection, "Shipping")
    states.start(connection, "ship")
    assert [port.state for port in read_send_ports(connection) if port.name == "Shipping"] == ["stopped"]
    states.stop(connection, "ship")
    groups.unenlist(connection, "Carriers")
    bind(connection, "ship", "Shipping", "Carriers")
    with pytest.raises(StateError, match="the send port group 'Carriers'"):
        states.start(connection, "ship")


def test_unknown_names_are_reported_with_suggestions(connection: Connection, deploy: Act) -> None:
    deploy(PORTS, ship())
    for arguments, what, hint in (
        (("shop", "Shipping", "Courier"), "There is no orchestration 'shop'.", "Did you mean ship?"),
        (("ship", "Shiping", "Courier"), "The orchestration 'ship' has no logical port 'Shiping'.", "mean Shipping?"),
        (("ship", "Shipping", "Courir"), "There is no send port or send port group 'Courir'.", "mean Courier?"),
    ):
        with pytest.raises(NotFound) as unknown:
            bind(connection, *arguments)
        assert unknown.value.what == what
        assert hint in unknown.value.hint
    with pytest.raises(StateError, match="No operator has bound the logical port 'Shipping'"):
        unbind(connection, "ship", "Shipping")
    with pytest.raises(DefinitionRefused) as refused:
        deploy(PORTS, ship(', bindings={"Shiping": "Courier", "Shipping": 7}'))
    texts = [problem.text for problem in refused.value.problems]
    assert texts == [
        "orchestration 'ship': bindings has 'Shiping', but its code does not send to it. Did you mean Shipping?",
        (
            "orchestration 'ship': bindings has 7 for 'Shipping', but must have a send port, a send port group, the "
            "name of one, or None."
        ),
    ]
    with pytest.raises(DefinitionRefused, match="there is no send port or send port group 'Courir'"):
        deploy(PORTS, ship(', bindings={"Shipping": "Courir"}'))


def test_a_binding_is_recorded_in_the_audit(connection: Connection, deploy: Act) -> None:
    deploy(PORTS, ship())
    bind(connection, "ship", "Shipping", "Courier")
    bind(connection, "ship", "Shipping", None)
    unbind(connection, "ship", "Shipping")
    entries = [entry for entry in list_audit(connection) if entry.action.startswith("orchestration.")]
    assert [(entry.action, entry.target, entry.before, entry.after) for entry in reversed(entries)] == [
        ("orchestration.bind", "ship", {"Shipping": "default"}, {"Shipping": "Courier"}),
        ("orchestration.bind", "ship", {"Shipping": "Courier"}, {"Shipping": "direct"}),
        ("orchestration.unbind", "ship", {"Shipping": "direct"}, {"Shipping": "default"}),
    ]
