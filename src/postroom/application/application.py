"""What a user writes: an application with its ports, as in examples/orders/app.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import PortAdapter
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.declarations import (
    Declarations,
    DeclaredHost,
    DeclaredProperty,
    DeclaredSendPort,
    DeclaredSendPortGroup,
    ReceivePort,
)
from postroom.application.define import define
from postroom.application.definition import DEFAULT_HOST, ApplicationDefinition, Authentication, SendPortState
from postroom.application.place import here
from postroom.application.retry import Retry
from postroom.application.throttling import Throttling
from postroom.filters.expression import Filter
from postroom.maps import Map
from postroom.properties import Property

if TYPE_CHECKING:
    from postroom.schemas import Schemas


class Application(Declarations):
    """A set of ports that is applied as a whole.

    app = Application("orders")
    app.receive_port("OrdersIn").location("drop", adapters.File("in"), pipeline=pipelines.Json(promote={Region: "r"}))
    app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU")
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, place=here())

    def host(
        self,
        name: str,
        *,
        properties: Mapping[Property, object] | None = None,
        trusted: bool | None = None,
        throttling: Throttling | None = None,
    ) -> None:
        """A host that locations and ports of this application can name. The host ``Main`` is always there.

        ``properties`` are what it can show for itself (a value, or a list of values, each): messages that ask for that
        go to no other host. A ``trusted`` host is believed when it says on whose behalf it publishes.
        ``throttling`` says how much may wait in the MessageBox before its receive locations slow down. What an
        application leaves out is left to the other applications that declare the host.
        """
        self.hosts.append(
            DeclaredHost(name=name, properties=properties, trusted=trusted, throttling=throttling, place=here())
        )

    def property(self, *properties: Property) -> None:
        """Properties that filters may compare although no pipeline of this application promotes them, because programs
        or other applications do."""
        place = here()
        self.properties += [DeclaredProperty(property=each, place=place) for each in properties]

    def schemas(self, *paths: str | os.PathLike[str]) -> Schemas:
        """The message types in XSD files, with what BizTalk's annotations in them say; a folder stands for the files
        ``*.xsd`` in it. Paths start at the folder of the file that declares the application. Property schemas and the
        schemas that use them are read together.

        known = app.schemas("schemas")
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipelines.XmlReceive(schemas=known))
        """
        # lxml is needed to read schemas, not to declare an application.
        from postroom.schemas.load import load_schemas

        place = here()
        folder = Path(place.file).parent
        for path in paths:
            if not (folder / path).exists():
                text = f"There is no file or folder {os.fspath(path)!r} beside this file to read schemas from."
                self.schema_problems.append(place.problem(text))
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
    ) -> ReceivePort:
        """A receive port; its locations follow: ``app.receive_port("OrdersIn").location(...).location(...)``.

        With ``route_failures`` what cannot be read or routed is published as an error message instead of suspended.
        ``authentication="drop"`` discards messages without an authenticated originator, ``"keep"`` suspends them.
        ``maps`` are for messages after their pipeline, each for one message type."""
        port = ReceivePort(
            name=name, place=here(), route_failures=route_failures, authentication=authentication, maps=maps
        )
        self.receive_ports.append(port)
        return port

    def send_port(
        self,
        name: str,
        adapter: PortAdapter,
        *,
        filter: Filter | str | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        priority: int = 5,
        host: str = DEFAULT_HOST,
        state: SendPortState = "started",
        route_failures: bool = False,
        description: str = "",
        maps: Sequence[Map] = (),
    ) -> DeclaredSendPort:
        """A send port, which gets every message that meets ``filter`` (a Python expression, or text) and every message
        that is directed to it. ``priority`` is 1 (first) to 10. With ``route_failures`` what cannot be sent is
        published as an error message instead of suspended. ``maps`` are for messages before the adapter sees them,
        each for one message type."""
        port = DeclaredSendPort(
            name=name,
            adapter=adapter,
            filter=filter,
            retry=retry,
            priority=priority,
            host=host,
            state=state,
            route_failures=route_failures,
            description=description,
            maps=maps,
            place=here(),
        )
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
    ) -> DeclaredSendPort:
        """A send port without an address of its own: every message brings one, in BTS.OutboundTransportLocation.

        Messages may be written as files under ``folders`` (the home folder by default) and posted to URLs that begin
        like one of ``urls`` (any, by default).

        app.dynamic_send_port("Anywhere", filter=Region == "EU", folders=["out"], urls=["https://example.com/orders"])
        """
        port = DeclaredSendPort(
            name=name,
            adapter=Dynamic(folders=folders, urls=urls, timeout=timeout),
            filter=filter,
            retry=retry,
            priority=priority,
            host=host,
            state=state,
            route_failures=route_failures,
            description=description,
            maps=maps,
            place=here(),
        )
        self.send_ports.append(port)
        return port

    def send_port_group(
        self,
        name: str,
        members: Sequence[DeclaredSendPort | str],
        *,
        filter: Filter | str | None = None,
        state: SendPortState = "started",
        description: str = "",
    ) -> DeclaredSendPortGroup:
        """Send ports of this application that get messages together: every member gets a copy of each message that
        meets ``filter`` and of each that is directed to the group, besides what it gets by itself.

        app.send_port_group("Everyone", [europe, "Audit"], filter=Region == "EU")
        """
        # What cannot be a list of members is kept as the only one, and told with the other problems.
        given = tuple(members) if isinstance(members, list | tuple | set | frozenset) else (members,)
        group = DeclaredSendPortGroup(
            name=name, members=given, filter=filter, state=state, description=description, place=here()
        )
        self.send_port_groups.append(group)
        return group

    def definition(self) -> ApplicationDefinition:
        """The application as it is stored; DefinitionRefused with every problem if it has any."""
        return define(self)
