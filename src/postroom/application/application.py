"""Declare an application: its hosts, receive ports and send ports, as in examples/orders/app.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import SendDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.backup_transport import BackupTransport
from postroom.application.circuit_breaker import CircuitBreaker
from postroom.application.declarations import (
    Declarations,
    Declared,
    DeclaredProperty,
    ReceivePort,
    declare,
)
from postroom.application.define import define
from postroom.application.definition import (
    DEFAULT_HOST,
    ApplicationDefinition,
    Authentication,
    OrchestrationState,
    SendPortState,
)
from postroom.application.handler import Handler
from postroom.application.retry import Retry
from postroom.application.schedule import Schedule
from postroom.application.source_position import get_caller_position
from postroom.filters.expression import Filter
from postroom.lookups import Lookup
from postroom.maps import Map
from postroom.orchestrations.components import AnyPipeline
from postroom.orchestrations.correlation import Correlation
from postroom.orchestrations.definition import JournalLimits, Orchestration, OrchestrationFunction, SendPort
from postroom.orchestrations.receives import read_activation
from postroom.pipelines import ReceivePipeline, Send
from postroom.properties import Property
from postroom.throttling import Throttling

if TYPE_CHECKING:
    from postroom.schemas import Schema, Schemas


class Application(Declarations):
    """A set of ports that is applied as a whole.

    app = Application("orders")
    app.receive_port("OrdersIn").location("drop", adapters.File("in"), pipeline=pipelines.Json(promote={Region: "r"}))
    app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU")
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, position=get_caller_position())

    def host(
        self,
        name: str,
        *,
        properties: Mapping[Property, object] | None = None,
        trusted: bool | None = None,
        isolated: bool | None = None,
        handlers: Sequence[Handler] | None = None,
        threads: int | None = None,
        throttling: Throttling | None = None,
        max_hops: int | None = None,
    ) -> None:
        """Declare a host for locations and ports of this application. The host ``Main`` always exists.

        ``properties`` are its application properties: a value, or a list of values, for each property. A message with
        message predicates goes only to hosts that have these values. A ``trusted`` host may publish on behalf of other
        originators. An ``isolated`` host only receives, by HTTP or with adapters that it polls. It has no send ports,
        orchestrations or lookups, and its login needs no access to receivers. ``handlers`` are the adapters that it
        runs, each in one direction, such as ``[Handler("http", "send")]``. By default it runs every adapter that its
        type allows. ``threads`` is the number of dequeue threads for messaging, and for orchestrations, of each of its
        instances. By default these are the numbers of the service classes.
        ``throttling`` limits how much may wait in the MessageBox before its receive locations slow down.
        A message that more than ``max_hops`` services have passed on, 100 by default, is suspended as a part of a loop.
        Arguments that are left out may be set by another application that declares the host.
        """
        self.hosts.append(declare(Declared, locals()))

    def property(self, *properties: Property) -> None:
        """Declare properties for filters that no pipeline of this application promotes, because programs or other
        applications do."""
        position = get_caller_position()
        self.properties += [DeclaredProperty(property=each, position=position) for each in properties]

    def schemas(self, *paths: str | os.PathLike[str]) -> Schemas:
        """Load message types from XSD files, with BizTalk's annotations. A folder means the files ``*.xsd`` in it.
        Paths are relative to the folder of the application's file. Load property schemas together with the schemas that
        use them.

        known = app.schemas("schemas")
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipelines.XmlReceive(schemas=known))
        """
        # lxml is needed to read schemas, not to declare an application.
        from postroom.schemas.annotations import load_schemas

        position = get_caller_position()
        folder = Path(position.file).parent
        for path in paths:
            if not (folder / path).exists():
                text = f"There is no file or folder {os.fspath(path)!r} next to this file to load schemas from."
                self.schema_problems.append(position.problem(text))
        loaded = load_schemas(folder / path for path in paths if (folder / path).exists())
        self.schema_problems += loaded.problems
        return loaded.schemas

    def receive_port(
        self,
        name: str,
        *,
        route_failures: bool = False,
        authentication: Authentication = "none",
        maps: Sequence[Map] = (),
        two_way: bool = False,
        send_pipeline: Send | None = None,
        response_maps: Sequence[Map] = (),
        renamed_from: str | None = None,
    ) -> ReceivePort:
        """Declare a receive port. Its locations follow: ``app.receive_port("OrdersIn").location(...).location(...)``.

        With ``route_failures`` a message that cannot be read or routed is published as an error message instead of
        being suspended. ``authentication="drop"`` discards messages without an authenticated originator, ``"keep"``
        suspends them. ``maps`` run after the receive pipeline, each for one message type.

        A ``two_way`` port is a request-response port: each caller waits for the response to its request.
        ``response_maps`` and then the ``send_pipeline`` run before the response is sent to the caller.

        ``renamed_from`` is the old name of the port, whose locations keep their files and messages."""
        port = declare(ReceivePort, locals())
        self.receive_ports.append(port)
        return port

    def send_port(
        self,
        name: str,
        adapter: SendDefinition,
        *,
        filter: Filter | str | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        priority: int = 5,
        host: str = DEFAULT_HOST,
        state: SendPortState = "started",
        route_failures: bool = False,
        description: str = "",
        maps: Sequence[Map] = (),
        pipeline: Send | None = None,
        service_window: Schedule | None = None,
        backup: BackupTransport | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        expire_after: timedelta | float | None = None,
        two_way: bool = False,
        receive_pipeline: ReceivePipeline | None = None,
        response_maps: Sequence[Map] = (),
        ordered: bool = False,
        stop_on_failure: bool = False,
        renamed_from: str | None = None,
    ) -> Declared:
        """Declare a send port. It receives every message that matches ``filter`` (a Python expression or text) and
        every message that is directed to it.

        ``priority`` is from 1 (first) to 10. With ``route_failures`` a message that cannot be sent is published as an
        error message instead of being suspended. ``maps`` run before the adapter, each for one message type, and after
        them the ``pipeline``: ``pipelines.Send(...)``. The port sends nothing outside its
        ``service_window``. ``backup`` sends what the port could not send after all retries. A ``circuit_breaker``
        pauses the port while its receiver is dead. A message that waits longer than ``expire_after`` seconds, or a
        timedelta, is not sent. With ``ordered`` messages are sent in the order in which they were published, one at a
        time. If one fails for good, it is suspended and the next one is sent. With ``stop_on_failure`` the messages
        after it wait until it is resumed. ``renamed_from`` is the old name of the port, which keeps its messages and
        its state.

        A ``two_way`` port is a solicit-response port: the response of the receiver goes through ``receive_pipeline``
        and ``response_maps``, and is published. It goes to the caller of the request, and to every other subscriber."""
        port = declare(Declared, locals())
        self.send_ports.append(port)
        return port

    def dynamic_send_port(
        self,
        name: str,
        *,
        filter: Filter | str | None = None,
        folders: Sequence[str | os.PathLike[str]] = (".",),
        urls: Sequence[str] | None = None,
        timeout: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        priority: int = 5,
        host: str = DEFAULT_HOST,
        state: SendPortState = "started",
        route_failures: bool = False,
        description: str = "",
        maps: Sequence[Map] = (),
        pipeline: Send | None = None,
        service_window: Schedule | None = None,
        expire_after: timedelta | float | None = None,
        ordered: bool = False,
        stop_on_failure: bool = False,
        renamed_from: str | None = None,
    ) -> Declared:
        """Declare a dynamic send port: the address is in each message, in BTS.OutboundTransportLocation.

        Files are allowed under ``folders`` (by default the home folder), HTTP requests to URLs that start with one of
        ``urls`` (by default any).

        app.dynamic_send_port("Anywhere", filter=Region == "EU", folders=["out"], urls=["https://example.com/orders"])
        """
        settings = dict(declare(Declared, locals()).settings)
        adapter = Dynamic(**{argument: settings.pop(argument) for argument in ("folders", "urls", "timeout")})
        return self.send_port(name, adapter, **settings)

    def send_port_group(
        self,
        name: str,
        members: Sequence[Declared | str],
        *,
        filter: Filter | str | None = None,
        state: SendPortState = "started",
        description: str = "",
    ) -> Declared:
        """Declare a send port group. Every member receives a copy of each message that matches ``filter`` or is
        directed to the group, in addition to its own messages.

        app.send_port_group("Everyone", [europe, "Audit"], filter=Region == "EU")
        """
        # An argument that is not a list becomes the only member, so that it is reported with the other problems.
        given = tuple(members) if isinstance(members, list | tuple | set | frozenset) else (members,)
        group = Declared(
            name=name,
            position=get_caller_position(),
            settings={"members": given, "filter": filter, "state": state, "description": description},
        )
        self.send_port_groups.append(group)
        return group

    def orchestration(
        self,
        *,
        activate: Filter | Sequence[Filter | Schema | str] | None = None,
        convoy: Sequence[Property] = (),
        correlations: Sequence[Correlation] = (),
        ordered: bool = False,
        name: str | None = None,
        version: int = 1,
        host: str = DEFAULT_HOST,
        priority: int = 7,
        state: OrchestrationState = "started",
        bindings: Mapping[str, SendPort | str | None] | None = None,
        journal_limits: JournalLimits = JournalLimits(),  # noqa: B008 - it is frozen
        maps: Sequence[Map] = (),
        pipelines: Sequence[AnyPipeline] = (),
        renamed_from: str | None = None,
    ) -> Callable[[OrchestrationFunction], Orchestration]:
        """Declare a coroutine function as an orchestration. Each message that matches ``activate`` starts an instance.

        A list has several activating receives: filters, and message types as texts or schemas. The function has no
        parameter then, and receives each message, also the first one, with ``orchestrations.receive``.

        With a ``convoy`` of one to three properties, messages with equal values join the instance of the first one.
        ``correlations`` are those that its receives follow. If it is ``ordered``, an instance gets its messages in the
        order of publishing, including those of several publishers. A changed function gets a new ``version``. The old
        one stays and finishes its instances. ``priority`` is that of messages that activate it; those that join an
        instance have 5. An instance whose journal reaches ``journal_limits`` is suspended. ``maps`` are those that it
        applies with ``orchestrations.transform``, and ``pipelines`` those that it runs. ``bindings`` are the send
        ports and groups that its logical ports are bound to, by the names that its code sends to; None publishes for
        whoever subscribes. A logical port without a binding is bound to the port or group with the same name, until an
        operator binds it to another one. ``renamed_from`` is the old name of the orchestration, which keeps its
        instances.

        @app.orchestration(activate=Kind == "order", correlations=[Offers])
        async def procure(order: Message) -> None: ...
        """
        position = get_caller_position()
        filter, activations = read_activation(activate)

        def declare_function(function: OrchestrationFunction) -> Orchestration:
            orchestration = Orchestration(
                name=name or function.__name__,
                version=version,
                function=function,
                activate=filter,
                activations=activations,
                convoy=tuple(convoy),
                correlations=tuple(
                    correlation.all_properties for correlation in correlations if isinstance(correlation, Correlation)
                ),
                journal_limits=journal_limits,
                maps=maps,
                pipelines=pipelines,
                folder=position.folder,
                send_ports=self.send_ports,
                bindings={} if bindings is None else bindings,
                renamed_from=renamed_from,
            )
            settings = {
                "orchestration": orchestration,
                "activate": activate,
                "correlations": tuple(correlations),
                "ordered": ordered,
                "renamed_from": renamed_from,
            }
            self.orchestrations.append(
                Declared(
                    name=orchestration.name,
                    position=position,
                    settings={**settings, "host": host, "priority": priority, "state": state},
                )
            )
            return orchestration

        return declare_function

    def lookup(
        self,
        name: str,
        *,
        key: Property,
        filter: Filter | str,
        host: str = DEFAULT_HOST,
        renamed_from: str | None = None,
    ) -> Lookup:
        """Declare a lookup: it keeps the newest message for each value of ``key``, of the messages that match
        ``filter`` (a Python expression or text).

        Components, maps and orchestrations read it with ``get``. A message with an empty body deletes the entry of its
        key. ``renamed_from`` is the old name of the lookup, which keeps its entries.

        Customers = app.lookup("Customers", key=CustomerId, filter=Kind == "customer")
        """
        self.lookups.append(declare(Declared, locals()))
        return Lookup(name)

    def definition(self) -> ApplicationDefinition:
        """Return the definition that is stored. Raise DefinitionRefused with every problem if it has any."""
        return define(self)
