"""What an application consists of, by kind: how an artifact is declared, compared, stored and removed.

Each kind of artifact is one object, in the module of the kind. The table of all kinds is ``deployed.KINDS``, in the
order in which artifacts are stored. One loop compares them (``compare``), and one executes the plan (``apply``).
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from postroom.application import ApplicationDefinition
from postroom.application.definition import ArtifactDefinition
from postroom.errors import Problem
from postroom.messagebox.configuration.applications import ArtifactTable, StoredApplication
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.configuration.services import (
    ServiceState,
    is_service_id,
    read_removed_services,
    remove_service,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceState
from postroom.operations.deployment.backlog import Backlog, describe_backlog
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, Plan, PlanStep
from postroom.operations.deployment.renames import NO_RENAMES, Renames
from postroom.operations.orchestrations.bindings import BoundNames
from postroom.values import ValueType

#: Ids are derived from the names of the object and its application.
_ID_NAMESPACE = uuid.UUID("6f1d8a4e-30a5-4c1c-9d43-6f6a2b7a9d10")

_Declared = TypeVar("_Declared", bound=ArtifactDefinition)
_Known = TypeVar("_Known")


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The current deployment. Artifacts are those of one application."""

    hosts: dict[str, Host] = field(default_factory=dict)
    """By name in lower case, because names of hosts are not case-sensitive."""
    properties: dict[str, ValueType] = field(default_factory=dict)
    sensitive: frozenset[str] = frozenset()
    """The keys of sensitive properties."""
    definition: dict[str, Any] | None = None
    """The stored definition of the application. None if it was never applied."""
    others: tuple[ApplicationDefinition, ...] = ()
    artifacts: Mapping[ChangeKind, Mapping[str, Any]] = field(default_factory=dict)
    """By name, sorted."""
    orchestration_instances: dict[uuid.UUID, int] = field(default_factory=dict)
    """The number of instances of each orchestration, by its id."""
    unfinished_files: dict[uuid.UUID, int] = field(default_factory=dict)
    """The number of received but unpublished files by the id of the location."""
    busy_hosts: Mapping[str, str] = field(default_factory=dict)
    """The messages and processes of hosts that an application makes isolated or in-process, by name in lower case."""
    can_create_hosts: bool = True
    """True if the login may create hosts. Only the owner of the MessageBox may."""
    renames: Mapping[ChangeKind, Renames] = field(default_factory=dict)
    """Renames that are still to be done. Artifacts have their new names here."""
    backlog: Mapping[uuid.UUID, Mapping[InstanceState, int]] = field(default_factory=dict)
    """The instances of ports and locations that are no longer declared, or that are declared again, by id."""
    kept_on: Mapping[uuid.UUID, int] = field(default_factory=dict)
    """The hosts of the instances that orchestrations get back that are declared again, by the id of these."""
    removed: Mapping[tuple[str, str], uuid.UUID] = field(default_factory=dict)
    """The ids of removed ports and locations of the application, by kind and name."""
    bindings: BoundNames = field(default_factory=dict)
    """What operators have bound the logical ports of orchestrations to. Send ports have their new names."""
    port_states: Mapping[str, ServiceState] = field(default_factory=dict)
    """The states of all send ports and groups of all applications, by name."""
    orphans: Mapping[uuid.UUID, Mapping[InstanceState, int]] = field(default_factory=dict)
    """The instances of ports and locations that were removed before and are not declared again, by id."""

    def get(self, kind: ArtifactKind[Any, _Known]) -> Mapping[str, _Known]:
        """Return the artifacts of a kind by name."""
        return self.artifacts.get(kind.kind, {})

    def get_renames(self, kind: ChangeKind) -> Renames:
        return self.renames.get(kind, NO_RENAMES)

    def get_removed_name(self, kind: ChangeKind, name: str) -> str:
        """Return the name of the removed port or location that a new one takes over."""
        return self.get_renames(kind).removed_names.get(name, name)

    def find_removed(self, kind: ChangeKind, name: str) -> uuid.UUID | None:
        """Return the id that a new port or location takes over: of the same name, or of the name that it is renamed
        from."""
        return self.removed.get((kind, self.get_removed_name(kind, name)))

    def host_name(self, host_id: int) -> str:
        return next(host.name for host in self.hosts.values() if host.host_id == host_id)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An application and what it is compared with. Relative paths are relative to ``home``."""

    definition: ApplicationDefinition
    deployed: Deployed
    home: Path
    backlog: Backlog | None = None
    """What becomes of the instances of what is removed. Without it this may have none."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A plan while it is executed, inside the caller's transaction and under the routing lock."""

    connection: Connection
    compared: Comparison
    plan: Plan
    application_id: uuid.UUID
    host_ids: Mapping[str, int]
    """By name in lower case."""

    def get_host_id(self, name: str) -> int:
        return self.host_ids[name.lower()]

    def get_id(self, kind: ArtifactKind[Any, Any], name: str) -> uuid.UUID:
        """Return the id of a deployed or a new artifact."""
        known = self.compared.deployed.get(kind).get(name)
        return self._choose_id(kind.kind, name) if known is None else kind.get_id(known)

    def _choose_id(self, kind: ChangeKind, name: str) -> uuid.UUID:
        """Return the id of a new artifact. A port or location that this application removed and declares again, or
        under a new name, gets its old id, so that its instances can be resumed."""
        application = self.compared.definition.name
        names = (kind, application, self.compared.deployed.get_removed_name(kind, name))
        for removed in reversed(read_removed_services(self.connection)):
            if (removed.kind, removed.application, removed.display_name) == names:
                return removed.id
        derived = uuid.uuid5(_ID_NAMESPACE, f"{kind}/{application}/{name}")
        # A renamed object keeps the id that was derived from its old name.
        return uuid.uuid4() if is_service_id(self.connection, derived) else derived

    def remove_service(self, service_id: uuid.UUID) -> None:
        """Remove a port or location from the MessageBox. Keep the decision about its instances if it has any."""
        has_instances = service_id in self.compared.deployed.backlog
        decision = (self.compared.backlog if has_instances else None) or Backlog.KEEP
        remove_service(self.connection, service_id, backlog=decision)


class ArtifactKind(ABC, Generic[_Declared, _Known]):
    """One kind of artifact: its definition ``_Declared``, and the deployed artifact ``_Known`` with such a definition.

    Notes are remarks for the user. Pure functions, except for ``read``, ``prepare``, ``store`` and ``remove``."""

    kind: ClassVar[ChangeKind]
    table: ClassVar[ArtifactTable]
    id_field: ClassVar[str]
    """The field of a deployed artifact with its id."""
    keeps_instances: ClassVar[bool] = False
    """True if its instances stay when it is removed."""
    moves_with_name: ClassVar[str] = ""
    """What moves with it when it is renamed. Empty if it cannot be renamed."""
    is_removed_last: ClassVar[bool] = False
    """True if artifacts are stored before it is removed."""

    @abstractmethod
    def read(self, connection: Connection, application: StoredApplication) -> Iterable[_Known]:
        """Return the artifacts of an application."""

    @abstractmethod
    def find_differences(self, compared: Comparison, declared: _Declared, known: _Known) -> tuple[Difference, ...]: ...

    @abstractmethod
    def store(self, deployment: Deployment, step: PlanStep, declared: _Declared, known: _Known | None) -> None:
        """Store a new artifact, or a changed one."""

    @abstractmethod
    def remove(self, deployment: Deployment, known: _Known) -> None: ...

    def list_declared(self, definition: ApplicationDefinition) -> Iterable[_Declared]:
        declared: Iterable[_Declared] = getattr(definition, self.table)
        return declared

    def get_id(self, known: _Known) -> uuid.UUID:
        found: uuid.UUID = getattr(known, self.id_field)
        return found

    def get_state(self, artifact: Any) -> str | None:
        """Return the state of a declared or deployed artifact, which belongs to the operator. None: it has none."""
        return str(getattr(artifact.state, "value", artifact.state))

    def get_name(self, artifact: Any) -> str:
        """Return the name of a declared or deployed artifact in a plan."""
        return str(artifact.name)

    def get_old_name(self, declared: Any) -> str | None:
        """Return the name in a plan that a declared artifact was renamed from."""
        old_name: str | None = declared.renamed_from
        return old_name

    def rename(self, known: _Known, declared: _Declared) -> _Known:
        """Return a deployed artifact with its new name."""
        renamed: _Known = replace(known, name=self.get_name(declared))  # type: ignore[type-var]
        return renamed

    def describe_new(self, compared: Comparison, declared: _Declared) -> Iterator[str]:
        """Yield the notes about a new artifact."""
        yield from ()

    def describe_removal(self, compared: Comparison, known: _Known) -> Iterator[str]:
        """Yield more notes about an artifact that is removed."""
        yield from ()

    def describe_state(self, declared: _Declared, known: _Known) -> str:
        """Return a note if the state of an artifact stays another than the declared one."""
        state = self.get_state(known)
        return "" if self.get_state(declared) == state else f"stays {state}"

    def describe_change(
        self, compared: Comparison, declared: _Declared, known: _Known, differences: tuple[Difference, ...]
    ) -> Iterator[str]:
        """Yield more notes about an artifact that changes or stays as it is."""
        yield from ()

    def find_problems(self, compared: Comparison) -> Iterator[Problem]:
        """Yield conflicts with the deployment, also of a part of an application. Removals are not checked: what is
        missing in a part may be declared in the rest."""
        yield from ()

    def find_problems_of_whole(self, compared: Comparison) -> Iterator[Problem]:
        """Yield what is not possible because of something that the whole application does not declare."""
        yield from ()

    def prepare(self, deployment: Deployment, declared: _Declared, known: _Known) -> None:
        """Change a declared artifact before others are removed."""

    def get_declared(self, definition: ApplicationDefinition) -> dict[str, _Declared]:
        """Return the declared artifacts by the names that a plan shows."""
        return {self.get_name(declared): declared for declared in self.list_declared(definition)}

    def plan(self, compared: Comparison) -> Iterator[PlanStep]:
        """Yield what happens to each artifact."""
        deployed, declared = compared.deployed.get(self), self.get_declared(compared.definition)
        old_names = compared.deployed.get_renames(self.kind).old_names
        for name, removed in deployed.items():
            if name not in declared:
                counts = compared.deployed.backlog.get(self.get_id(removed))
                notes = [
                    *self.describe_removal(compared, removed),
                    describe_backlog(counts, compared.backlog, self.kind),
                ]
                yield self._plan_step(name, Action.REMOVE, notes)
        for name, one in declared.items():
            if name not in deployed:
                yield self._plan_step(name, Action.CREATE, self.describe_new(compared, one))
                continue
            known: Any = deployed[name]
            known = replace(known, definition=one.complete(known.definition))
            differences = self.find_differences(compared, one, known)
            notes = [self.describe_state(one, known), *self.describe_change(compared, one, known, differences)]
            if name in old_names:
                differences = (Difference(field="name", before=old_names[name], after=name), *differences)
                notes = [f"renamed: {self.moves_with_name} move with it", *notes]
            yield self._plan_step(name, Action.CHANGE if differences else Action.KEEP, notes, differences)

    def _plan_step(
        self, name: str, action: Action, notes: Iterable[str], differences: tuple[Difference, ...] = ()
    ) -> PlanStep:
        note = "; ".join(filter(None, notes))
        return PlanStep(kind=self.kind, name=name, action=action, differences=differences, note=note)
