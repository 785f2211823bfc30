"""A new setting of an artifact is compared as soon as its definition has it. No other module lists the settings."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom import Throttling, adapters, pipelines
from postroom.application import (
    ApplicationDefinition,
    HostDefinition,
    OrchestrationDefinition,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    SendPortDefinition,
    SendPortGroupDefinition,
)
from postroom.messagebox.configuration.endpoints import StoredReceivePort
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.configuration.send_port_groups import SendPortGroup
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.orchestrations import DeployedOrchestration
from postroom.operations.deployment.artifacts import ArtifactKind, Comparison, Deployed
from postroom.operations.deployment.endpoints import LOCATIONS, RECEIVE_PORTS, SEND_PORTS
from postroom.operations.deployment.hosts import plan_hosts
from postroom.operations.deployment.orchestrations import ORCHESTRATIONS
from postroom.operations.deployment.plan import Action, Difference, PlanStep
from postroom.operations.deployment.send_port_groups import SEND_PORT_GROUPS
from postroom.ports.receive_locations import build_receive_location
from postroom.ports.send_ports import build_send_port

ID = uuid.uuid4()
MAIN = Host(host_id=1, name="Main", role_name="main", is_default=True)
CHANGED = (Difference(field="colour", before="red", after="blue"),)


class ColouredPort(ReceivePortDefinition):
    colour: str = "red"


class ColouredLocation(ReceiveLocationDefinition):
    colour: str = "red"


class ColouredSendPort(SendPortDefinition):
    colour: str = "red"


class ColouredGroup(SendPortGroupDefinition):
    colour: str = "red"


class ColouredOrchestration(OrchestrationDefinition):
    colour: str = "red"


class ColouredHost(HostDefinition):
    colour: str | None = None


UNSET = ColouredHost(name="", trusted=False, isolated=False, properties=(), throttling=Throttling())


def build_receive_port(colour: str) -> tuple[ApplicationDefinition, Any]:
    port = ColouredPort(name="In", colour=colour)
    known = StoredReceivePort(port_id=ID, name="In", definition=port.to_stored())
    return ApplicationDefinition(name="paint", receive_ports=(port,)), known


def build_location(colour: str) -> tuple[ApplicationDefinition, Any]:
    location = ColouredLocation(
        name="drop", adapter=adapters.File("in"), pipeline=pipelines.PassThrough(), host="Main", colour=colour
    )
    port = ReceivePortDefinition(name="In", locations=(location,))
    known = build_receive_location(port, location, location_id=ID, port_id=ID, host_id=1, home=Path())
    return ApplicationDefinition(name="paint", receive_ports=(port,)), known


def build_port(colour: str) -> tuple[ApplicationDefinition, Any]:
    port = ColouredSendPort(name="Out", adapter=adapters.File("out"), host="Main", state="bound", colour=colour)
    known = build_send_port(port, port_id=ID, host_id=1, home=Path())
    return ApplicationDefinition(name="paint", send_ports=(port,)), known


def build_group(colour: str) -> tuple[ApplicationDefinition, Any]:
    group = ColouredGroup(name="All", state="bound", colour=colour)
    known = SendPortGroup(
        group_id=ID, application="paint", definition=group.to_stored(), state=ServiceState.BOUND, members=()
    )
    return ApplicationDefinition(name="paint", send_port_groups=(group,)), known


def build_orchestration(colour: str) -> tuple[ApplicationDefinition, Any]:
    one = ColouredOrchestration(name="mix", version=1, file="app.py", code="0", host="Main", colour=colour)
    known = DeployedOrchestration(
        service_id=ID,
        application_id=ID,
        host_id=1,
        definition=one.to_stored(),
        is_newest=True,
        state=ServiceState.STARTED,
        subscription_id=None,
    )
    return ApplicationDefinition(name="paint", orchestrations=(one,)), known


KINDS = pytest.mark.parametrize(
    ("kind", "build"),
    [
        (RECEIVE_PORTS, build_receive_port),
        (LOCATIONS, build_location),
        (SEND_PORTS, build_port),
        (SEND_PORT_GROUPS, build_group),
        (ORCHESTRATIONS, build_orchestration),
    ],
)


def plan_change(kind: ArtifactKind[Any, Any], definition: ApplicationDefinition, known: Any) -> PlanStep:
    deployed = Deployed(hosts={"main": MAIN}, artifacts={kind.kind: {kind.get_name(known): known}})
    (step,) = kind.plan(Comparison(definition=definition, deployed=deployed, home=Path()))
    return step


@KINDS
def test_a_new_setting_of_an_artifact_is_compared(kind: ArtifactKind[Any, Any], build: Any) -> None:
    definition, _ = build("blue")
    _, known = build("red")
    step = plan_change(kind, definition, known)
    assert (step.action, step.differences) == (Action.CHANGE, CHANGED)


@KINDS
def test_an_artifact_that_an_earlier_version_stored_has_the_default_of_a_new_setting(
    kind: ArtifactKind[Any, Any], build: Any
) -> None:
    same, known = build("red")
    changed, _ = build("blue")
    stored = {name: value for name, value in known.definition.items() if name != "colour"}
    known = replace(known, definition=stored)
    assert plan_change(kind, same, known).action is Action.KEEP
    assert plan_change(kind, changed, known).differences == CHANGED


def test_a_new_setting_of_a_host_is_merged_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.operations.deployment.hosts.HostDefinition", ColouredHost)
    monkeypatch.setattr("postroom.application.definition._UNSET_HOST", UNSET)
    known = replace(MAIN, definition=ColouredHost(name="Main", colour="red").to_stored())
    other = ApplicationDefinition(name="other", hosts=(ColouredHost(name="Main", colour="blue"),))
    deployed = Deployed(hosts={"main": known}, others=(other,))
    (step,) = plan_hosts(ApplicationDefinition(name="paint", hosts=(ColouredHost(name="Main"),)), deployed)
    assert (step.action, step.differences) == (Action.CHANGE, CHANGED)
