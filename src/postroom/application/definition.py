"""An application as it is stored and compared: frozen, serialisable, and free of problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    field_serializer,
    model_validator,
)
from pydantic_core import to_jsonable_python

from postroom.adapters.file.definition import File
from postroom.adapters.kinds import StoredReceiveAdapter, StoredSendAdapter, get_watched_folder
from postroom.adapters.sink.definition import SinkDefinition
from postroom.application.backup_transport import BackupTransport, TransportSettings
from postroom.application.circuit_breaker import CircuitBreaker
from postroom.application.handler import Handler
from postroom.application.schedule import Schedule
from postroom.application.source_position import SourcePosition
from postroom.filters.authorisation import ApplicationProperties, comparable_text
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, parse
from postroom.hops import MAX_HOPS
from postroom.maps.port_maps import NO_MAPS, PortMaps
from postroom.orchestrations.components import StoredAnyPipeline
from postroom.orchestrations.definition import Orchestration
from postroom.pipelines.receive.definition import StoredPipeline
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT, Send
from postroom.properties import Property
from postroom.stored_definitions import read_stored
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.throttling import Throttling
from postroom.values import Value, ValueType, value_from_json, value_to_json

#: The host of locations and ports that have no other host.
DEFAULT_HOST = "Main"

#: What an operator can do so that a failed message of an ordered port is not overtaken.
HOLD_BACK_HINT = "To hold back the messages after a failure, set stop_on_failure=True."

#: What a receive port does with messages without an authenticated originator: accept, discard or suspend them.
Authentication = Literal["none", "drop", "keep"]

SendPortState = Literal["bound", "stopped", "started"]
#: The states of an orchestration: bound, enlisted, or enlisted and started (ORS-01).
OrchestrationState = Literal["bound", "stopped", "started"]


class _Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ArtifactDefinition(_Definition):
    """What an application file declares, as it is stored. ``position`` is where it is declared."""

    position: SourcePosition = Field(default=SourcePosition(), exclude=True, repr=False)

    def to_stored(self) -> dict[str, Any]:
        """Return the definition as JSON values."""
        return self.model_dump(mode="json")

    @classmethod
    def complete(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored definition with the defaults of the settings that the version that stored it did not have."""
        defaults = {
            name: to_jsonable_python(field.get_default(call_default_factory=True))
            for name, field in cls.model_fields.items()
            if name not in stored and not field.exclude
        }
        return {**stored, **defaults}


def _read_property(source: object) -> Property:
    if isinstance(source, Property):
        return source
    if isinstance(source, Mapping) and {"key", "type"} <= source.keys() <= {"key", "type", "sensitive"}:
        sensitive = source.get("sensitive", False)
        return Property.from_key(source["key"], ValueType(source["type"]), sensitive=sensitive)
    raise ValueError(f"{source!r} is not a stored property")


def _write_property(prop: Property) -> dict[str, Any]:
    stored: dict[str, Any] = {"key": prop.key, "type": int(prop.value_type)}
    return {**stored, "sensitive": True} if prop.sensitive else stored


def _read_value(source: object) -> Value:
    return value_from_json(source) if isinstance(source, Mapping) else source  # type: ignore[return-value]


StoredProperty = Annotated[Property, PlainValidator(_read_property), PlainSerializer(_write_property)]
StoredValue = Annotated[Any, PlainValidator(_read_value), PlainSerializer(value_to_json)]


class ApplicationProperty(_Definition):
    """A value of an application property of a host."""

    property: StoredProperty
    value: StoredValue


#: The largest number of dequeue threads of a service class in a host instance.
MAX_DEQUEUE_THREADS = 100


class HostDefinition(ArtifactDefinition):
    """A host. A field is None if the application does not set it. Another application may set it."""

    name: str
    trusted: bool | None = None
    isolated: bool | None = None
    handlers: tuple[Handler, ...] | None = None
    """None, if no application sets them: the default handlers."""
    properties: tuple[ApplicationProperty, ...] | None = None
    threads: int | None = None
    """None, if no application sets it: the number of the service class."""
    throttling: Throttling | None = None
    max_hops: int | None = None
    """How many services may pass on what a message was caused by."""

    @classmethod
    def list_settings(cls) -> list[str]:
        """Return the names of what an application can set."""
        return [field for field in cls.model_fields if field not in ("name", "position")]

    def merge(self, others: Iterable[HostDefinition]) -> HostDefinition:
        """Return the host with what the others, which are definitions of the same host, set and it does not set. What
        none sets has its default."""
        found = (self, *others, _UNSET_HOST)
        settings = {
            name: next((value for host in found if (value := getattr(host, name)) is not None), None)
            for name in self.list_settings()
        }
        return self.model_copy(update=settings)

    @property
    def application_properties(self) -> ApplicationProperties:
        """The properties as predicates of messages are compared with them."""
        return frozenset((each.property.key, comparable_text(each.value)) for each in self.properties or ())

    def has_handler(self, handler: Handler) -> bool:
        """Return True if the host runs this adapter in this direction."""
        if self.handlers is not None:
            return handler.key in (declared.key for declared in self.handlers)
        return not self.isolated or handler.can_be_isolated


_UNSET_HOST = HostDefinition(
    name="", properties=(), trusted=False, isolated=False, throttling=Throttling(), max_hops=MAX_HOPS
)


class ReceiveLocationDefinition(ArtifactDefinition):
    name: str
    adapter: StoredReceiveAdapter
    pipeline: StoredPipeline
    host: str
    enabled: bool = True
    schedule: Schedule | None = None
    """None keeps the schedule that the operator has set."""
    renamed_from: str | None = None

    @property
    def watched_folder(self) -> File | None:
        """The folder that files are claimed in, or None if the location claims no files."""
        return get_watched_folder(self.adapter)


class ReceivePortDefinition(ArtifactDefinition):
    """A receive port with its locations."""

    name: str
    route_failures: bool = False
    authentication: Authentication = "none"
    maps: PortMaps = NO_MAPS
    two_way: bool = False
    send_pipeline: Send = PASS_THRU_TRANSMIT
    response_maps: PortMaps = NO_MAPS
    locations: tuple[ReceiveLocationDefinition, ...] = ()
    renamed_from: str | None = None

    def to_stored(self) -> dict[str, Any]:
        """Return the definition as JSON values, without the locations: each of them is stored, too."""
        return self.model_dump(mode="json", exclude={"locations"})


class SendPortSettings(TransportSettings):
    """The settings of a send port that are plain values. Whoever may see the port may read them, and they can be read
    where its adapter, its pipelines and its maps are not installed."""

    priority: int = 5
    circuit_breaker: CircuitBreaker | None = None
    """Pauses the port while its receiver is dead. None: failed messages are suspended."""
    expire_after: timedelta | None = None
    """Messages that have waited for longer are not sent. None: messages wait without a limit."""
    route_failures: bool = False
    """True if failures are published instead of suspended."""
    description: str = ""
    two_way: bool = False
    ordered: bool = False
    """True if messages are delivered in the order in which they are published."""
    stop_on_failure: bool = False
    """Of an ordered port: True if a failed message holds back the others until an operator resumes it."""

    def list_notes(self) -> Iterator[str]:
        """Yield what a plan says about a new port with these settings."""
        if self.route_failures:
            yield "routes failures"
        if self.ordered:
            yield "delivers in order, and stops at a failure" if self.stop_on_failure else "delivers in order"

    @staticmethod
    def order_problems(declared: Any) -> Iterator[str]:
        """Yield the problems of the order of delivery that a user has declared. The values can be any objects."""
        if declared.stop_on_failure is True and declared.ordered is not True:
            yield "stop_on_failure=True needs ordered=True. Without an order no message waits for a failed one."
        if declared.ordered is True and isinstance(declared.adapter, SinkDefinition):
            yield "a sink has no ordered delivery: Spark writes the messages of a batch in parallel."
        if declared.ordered is True and isinstance(declared.backup, BackupTransport):
            yield "an ordered send port has no backup transport: messages of two transports would not be in order."


class SendPortDefinition(SendPortSettings, ArtifactDefinition):
    name: str
    adapter: StoredSendAdapter
    filter: InstanceOf[Filter] | None = None
    host: str
    state: SendPortState = "started"
    maps: PortMaps = NO_MAPS
    pipeline: Send = PASS_THRU_TRANSMIT
    backup: BackupTransport | None = None
    receive_pipeline: StoredPipeline | None = None
    """The pipeline of responses. None if the port is one-way."""
    response_maps: PortMaps = NO_MAPS
    renamed_from: str | None = None

    @field_serializer("filter")
    def _filter_as_text(self, filter: Filter | None) -> str | None:
        return None if filter is None else format_filter(filter)


class SendPortGroupDefinition(ArtifactDefinition):
    """A send port group; ``members`` are names of send ports of the same application."""

    name: str
    members: tuple[str, ...] = ()
    filter: InstanceOf[Filter] | None = None
    state: SendPortState = "started"
    description: str = ""

    @field_serializer("filter")
    def _filter_as_text(self, filter: Filter | None) -> str | None:
        return None if filter is None else format_filter(filter)


@dataclass(frozen=True)
class LoadedCode:
    """The code of an orchestration, if it was loaded from its file. It is not part of a definition: all are equal."""

    orchestration: Orchestration | None = field(default=None, compare=False)


class OrchestrationDefinition(ArtifactDefinition):
    """An orchestration in one version. Its code stays in the file of the application."""

    name: str
    version: int
    file: str
    """The file of the application, where its hosts run."""
    code: str
    """A digest of that file and of those that it imports from its folder."""
    reached_code: str = ""
    """A digest of its function, and of what that reaches in these files. Empty if it is not known."""
    filter: InstanceOf[Filter] | None = None
    """The filter of the activation subscription. None: other orchestrations start it."""
    convoy: tuple[StoredProperty, ...] = ()
    ordered: bool = False
    correlations: tuple[tuple[StoredProperty, ...], ...] = ()
    ports: tuple[tuple[str, str], ...] = ()
    """The logical ports that its code names, each with the call: send, deliver or request."""
    bindings: tuple[tuple[str, str | None], ...] = ()
    """The send ports and groups that the application binds logical ports to. None: direct. The others are bound to the
    port or group with the same name."""
    answers: bool = False
    """True if its code can answer requests, or send them on to another orchestration. If it fails, the callers get a
    fault."""
    host: str
    priority: int = 7
    state: OrchestrationState = "started"
    renamed_from: str | None = None
    maps: PortMaps = NO_MAPS
    """The maps that its code applies."""
    pipelines: tuple[StoredAnyPipeline, ...] = ()
    """The pipelines that its code runs."""
    loaded: InstanceOf[LoadedCode] = Field(default=LoadedCode(), exclude=True, repr=False)

    @field_serializer("filter")
    def _filter_as_text(self, filter: Filter | None) -> str | None:
        return None if filter is None else format_filter(filter)


class LookupDefinition(ArtifactDefinition):
    """A lookup: it keeps the newest message that matches ``filter`` for each value of ``key``."""

    name: str
    key: StoredProperty
    filter: InstanceOf[Filter]
    host: str
    renamed_from: str | None = None

    @field_serializer("filter")
    def _filter_as_text(self, filter: Filter) -> str:
        return format_filter(filter)


class ApplicationDefinition(ArtifactDefinition):
    """Everything that one application declares.

    ``properties`` are its property schemas: the properties that its pipelines promote, that its filters compare and
    that it declares, without system properties. Filters are stored as text, and are ``Filter`` objects in memory.
    """

    name: str
    properties: tuple[StoredProperty, ...] = ()
    hosts: tuple[HostDefinition, ...] = ()
    receive_ports: tuple[ReceivePortDefinition, ...] = ()
    send_ports: tuple[SendPortDefinition, ...] = ()
    send_port_groups: tuple[SendPortGroupDefinition, ...] = ()
    orchestrations: tuple[OrchestrationDefinition, ...] = ()
    lookups: tuple[LookupDefinition, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_filters(cls, source: Any) -> Any:
        if not isinstance(source, Mapping):
            return source
        properties = source.get("properties", ())
        declared = {field: source.get(field, ()) for field in _FILTERED}
        if not all(isinstance(listed, list | tuple) for listed in (properties, *declared.values())):
            return source  # its fields are reported as wrong
        known = [*SYSTEM_PROPERTIES.values(), *map(_read_property, properties)]
        filtered = {field: [_with_filter(port, known) for port in listed] for field, listed in declared.items()}
        return {**source, **filtered}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> ApplicationDefinition:
        """Parse what ``stored`` returned. Raise DefinitionError if it is not valid."""
        return read_stored(f"application: {stored.get('name')!r}", _STORED, stored)


#: The artifacts that have a filter.
_FILTERED = ("send_ports", "send_port_groups", "orchestrations", "lookups")
_STORED: TypeAdapter[ApplicationDefinition] = TypeAdapter(ApplicationDefinition)


def _with_filter(filtered: Any, known: list[Property]) -> Any:
    if isinstance(filtered, Mapping) and isinstance(filtered.get("filter"), str):
        return {**filtered, "filter": parse(filtered["filter"], known)}
    return filtered
