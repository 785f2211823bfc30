"""Orchestrations, as artifacts of an application. Each version is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from postroom.application import ApplicationDefinition, OrchestrationDefinition
from postroom.errors import Problem, format_count
from postroom.filters.text import format_filter
from postroom.messagebox.configuration.applications import StoredApplication
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import (
    DeployedOrchestration,
    delete_orchestration,
    format_name,
    read_orchestrations,
)
from postroom.operations.deployment.artifacts import ArtifactKind, Comparison, Deployed, Deployment
from postroom.operations.deployment.bindings import (
    describe_bindings,
    drop_bindings,
    find_binding_differences,
    find_binding_problems,
    find_start_problems,
)
from postroom.operations.deployment.differences import find_differences, find_plain_differences
from postroom.operations.deployment.endpoints import describe_restored_service
from postroom.operations.deployment.plan import ChangeKind, Difference, PlanStep
from postroom.operations.deployment.renames import Renames
from postroom.operations.describe import describe_value
from postroom.operations.orchestrations.enlistment import deploy_orchestration, unenlist_orchestration
from postroom.properties import dotted_name, split_key

#: The names of settings that plans do not show as they are stored.
_NAMES = {"filter": "activate"}


class _Orchestrations(ArtifactKind[OrchestrationDefinition, DeployedOrchestration]):
    kind = ChangeKind.ORCHESTRATION
    table = "orchestrations"
    id_field = "service_id"
    keeps_instances = True
    moves_with_name = "its instances"

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[DeployedOrchestration]:
        return [one for one in read_orchestrations(connection) if one.application_id == application.id]

    def get_name(self, artifact: OrchestrationDefinition | DeployedOrchestration) -> str:
        return format_name(artifact.name, artifact.version)

    def get_old_name(self, declared: OrchestrationDefinition) -> str | None:
        return None if declared.renamed_from is None else format_name(declared.renamed_from, declared.version)

    def rename(self, known: DeployedOrchestration, declared: OrchestrationDefinition) -> DeployedOrchestration:
        return replace(known, definition={**known.definition, "name": declared.name})

    def find_differences(
        self, compared: Comparison, declared: OrchestrationDefinition, known: DeployedOrchestration
    ) -> tuple[Difference, ...]:
        built = replace(known, definition=declared.to_stored(), is_newest=_is_newest(compared.definition, declared))
        host = compared.deployed.host_name(known.host_id)
        return (
            *find_plain_differences(_list_fields(built, declared.host), _list_fields(known, host)),
            *_find_code_differences(built.definition, known.definition),
            *find_binding_differences(declared, known, compared.definition, compared.deployed.bindings),
        )

    def describe_new(self, compared: Comparison, declared: OrchestrationDefinition) -> Iterator[str]:
        filter = declared.filter
        yield f"{declared.state}, {'is started by other orchestrations' if filter is None else format_filter(filter)}"
        yield describe_restored_service(self.kind, self.get_name(declared), compared.deployed)
        yield from describe_bindings(declared, compared.definition, compared.deployed)
        yield from self._describe_lost_convoys(declared, compared.deployed)

    def describe_removal(self, compared: Comparison, known: DeployedOrchestration) -> Iterator[str]:
        if known.version == 1 and any(one.name == known.name for one in compared.definition.orchestrations):
            yield "only version 1"

    def describe_state(self, declared: OrchestrationDefinition, known: DeployedOrchestration) -> str:
        return super().describe_state(declared, known) if known.is_newest else ""

    def describe_change(
        self,
        compared: Comparison,
        declared: OrchestrationDefinition,
        known: DeployedOrchestration,
        differences: tuple[Difference, ...],
    ) -> Iterator[str]:
        yield from describe_bindings(declared, compared.definition, compared.deployed)
        running = _count_instances(known, compared.deployed)
        if running and any(difference.field == "code" for difference in differences):
            yield f"the changed code continues {format_count(running, 'instance')}"

    def _describe_lost_convoys(self, one: OrchestrationDefinition, deployed: Deployed) -> Iterator[str]:
        """Yield the older versions whose instances would get no more messages, because the new version has another
        convoy."""
        for known in deployed.get(self).values():
            running = _count_instances(known, deployed)
            is_older = known.name == one.name and known.version < one.version
            if is_older and running and known.convoy and known.convoy != [prop.key for prop in one.convoy]:
                instances = format_count(running, "instance")
                yield f"{instances} of version {known.version} would get no more messages of the convoy"

    def find_problems(self, compared: Comparison) -> Iterator[Problem]:
        """Yield orchestrations that another application has, and instances that would be left on another host."""
        deployed = compared.deployed
        others = {one.name: other.name for other in deployed.others for one in other.orchestrations}
        for name, one in self.get_declared(compared.definition).items():
            if one.name in others:
                yield one.position.problem(
                    f"the application {others[one.name]!r} has an orchestration {one.name!r} too. Use another name."
                )
            restored = deployed.find_removed(self.kind, name)
            kept_on = None if restored is None else deployed.kept_on.get(restored)
            if kept_on is not None and deployed.host_name(kept_on).lower() != one.host.lower():
                yield one.position.problem(
                    f"orchestration {one.name!r} gets back instances that were kept on host "
                    f"{deployed.host_name(kept_on)}, and cannot move. Declare it there, or terminate them."
                )
            known = deployed.get(self).get(name)
            running = 0 if known is None else _count_instances(known, deployed)
            if known is None or not running:
                continue
            if deployed.host_name(known.host_id).lower() != one.host.lower():
                yield one.position.problem(
                    f"orchestration {one.name!r} has {format_count(running, 'instance')} on host "
                    f"{deployed.host_name(known.host_id)} and cannot move. Declare a new version on the other host."
                )
            if known.convoy and [prop.key for prop in one.convoy] != known.convoy:
                before = ", ".join(dotted_name(*split_key(key)) for key in known.convoy)
                yield one.position.problem(
                    f"orchestration {one.name!r} has {format_count(running, 'instance')} with a convoy by {before}, "
                    "which would get no more messages. Declare a new version with the other convoy when they have "
                    "ended."
                )

    def find_problems_of_whole(self, compared: Comparison) -> Iterator[Problem]:
        definition, deployed = compared.definition, compared.deployed
        yield from find_binding_problems(definition, deployed)
        declared = self.get_declared(definition)
        for name, one in declared.items():
            if name not in deployed.get(self) and one.state == "started" and _is_newest(definition, one):
                yield from find_start_problems(one, definition, deployed)

    def prepare(self, deployment: Deployment, declared: OrchestrationDefinition, known: DeployedOrchestration) -> None:
        """Delete bindings that are replaced, because the ports may be removed next."""
        drop_bindings(deployment.connection, deployment.compared.definition, declared.name)

    def store(
        self,
        deployment: Deployment,
        step: PlanStep,
        declared: OrchestrationDefinition,
        known: DeployedOrchestration | None,
    ) -> None:
        deploy_orchestration(
            deployment.connection,
            declared,
            known=known,
            new_id=deployment.get_id(self, step.name),
            application_id=deployment.application_id,
            host_id=deployment.get_host_id(declared.host),
            is_newest=_is_newest(deployment.compared.definition, declared),
        )

    def remove(self, deployment: Deployment, known: DeployedOrchestration) -> None:
        unenlist_orchestration(deployment.connection, known)
        delete_orchestration(deployment.connection, known.service_id)
        deployment.remove_service(known.service_id)
        drop_bindings(deployment.connection, deployment.compared.definition, known.name)


ORCHESTRATIONS = _Orchestrations()


def find_new_orchestration_names(definition: ApplicationDefinition, renames: Renames) -> dict[str, str]:
    """Return the new names of orchestrations, by old name, without versions."""
    declared = ORCHESTRATIONS.get_declared(definition)
    renamed = [declared[name] for name in renames.old_names]
    return {one.renamed_from: one.name for one in renamed if one.renamed_from is not None}


def _is_newest(definition: ApplicationDefinition, one: OrchestrationDefinition) -> bool:
    """Return True if there is no higher version. Only the newest version is activated by messages."""
    return all(other.version <= one.version for other in definition.orchestrations if other.name == one.name)


def _count_instances(one: DeployedOrchestration, deployed: Deployed) -> int:
    return deployed.orchestration_instances.get(one.service_id, 0)


def _list_fields(one: DeployedOrchestration, host: str) -> dict[str, Any]:
    """Return the stored fields of an orchestration, declared or deployed. Its state belongs to the operator. The ports
    follow from its code, and bindings are compared with those of operators."""
    settings = {
        "answers": False,  # of one that an earlier version has stored
        **one.definition,
        "convoy": [dotted_name(*split_key(key)) for key in one.convoy],
        "correlations": [" and ".join(dotted_name(*split_key(key)) for key in keys) for keys in one.correlations],
    }
    besides = ("name", "version", "host", "state", "ports", "bindings", "renamed_from")
    code = ("code", "reached_code", "maps", "pipelines")
    return {
        "host": host.lower(),
        **{_NAMES.get(name, name): value for name, value in settings.items() if name not in (*besides, *code)},
        "newest version": one.is_newest,
    }


def _find_code_differences(declared: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield what differs in the code that the function reaches, and in its maps and pipelines. The rest of its file
    does not count, if it is known what the function reaches."""
    field = "reached_code" if declared["reached_code"] and known["reached_code"] else "code"
    if declared[field] != known[field]:
        yield Difference(field="code", before=known[field], after=declared[field])
    yield from find_differences({"maps": _remove_code(declared["maps"])}, {"maps": _remove_code(known["maps"])})
    new, old = declared["pipelines"], known["pipelines"]
    if len(new) == len(old):
        for after, before in zip(new, old, strict=True):
            yield from find_differences({"pipeline": _remove_code(after)}, {"pipeline": _remove_code(before)})
    else:
        before, after = (describe_value([one["kind"] for one in listed]) for listed in (old, new))
        yield Difference(field="pipelines", before=before, after=after)


def _remove_code(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored maps, or a stored pipeline, without Python files: the function reaches their code."""
    files = {name: content for name, content in stored.get("files", {}).items() if not name.endswith(".py")}
    return {**stored, "files": files}
