"""Checks of two-way ports: which adapters can have one, and which settings a port with or without responses needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from postroom.adapters import AdapterDefinition
from postroom.adapters.http.definition import Http
from postroom.application.backup_transport import BackupTransport
from postroom.application.declarations import Declared, ReceivePort
from postroom.maps.port_maps import map_problems
from postroom.pipelines import Receive, ReceivePipeline, Send


def two_way_receive_problems(port: ReceivePort) -> Iterator[str]:
    """Yield the problems of a request-response receive port, or of response settings without one."""
    if not isinstance(port.two_way, bool):
        yield f"two_way is {port.two_way!r}, but must be True or False."
        return
    if not port.two_way:
        yield from _one_way_problems(send_pipeline=port.send_pipeline, response_maps=port.response_maps)
        return
    if port.route_failures is True:
        yield "route_failures cannot be used with two_way; a failed request is suspended, and its caller gets an error."
    for location in port.locations:
        if isinstance(location.adapter, AdapterDefinition) and not location.adapter.can_be_two_way:
            yield (
                f"the location {location.name!r} uses the adapter {location.adapter.kind!r}, which cannot return a"
                " response; a two-way receive port needs adapters.HttpReceive(...)."
            )
    if isinstance(port.send_pipeline, Send):
        texts = port.send_pipeline.problems() or port.send_pipeline.packing_problems(port.position.folder)
        yield from (f"send_pipeline: {text}" for text in texts)
    elif port.send_pipeline is not None:
        yield f"send_pipeline: {port.send_pipeline!r} is not a send pipeline; write pipelines.Send(...)."
    yield from _response_map_problems(port.response_maps, port.position.folder)


def two_way_send_problems(port: Declared) -> Iterator[str]:
    """Yield the problems of a solicit-response send port, or of response settings without one."""
    if not isinstance(port.two_way, bool):
        return  # reported with the other flags
    if not port.two_way:
        yield from _one_way_problems(receive_pipeline=port.receive_pipeline, response_maps=port.response_maps)
        if isinstance(port.adapter, Http):
            names = "response_statuses", "pass_headers"
            yield from _one_way_problems(**{name: getattr(port.adapter, name) for name in names})
        return
    if isinstance(port.adapter, AdapterDefinition) and not port.adapter.can_be_two_way:
        yield (
            f"the adapter {port.adapter.kind!r} has no response to what it sends; a two-way send port needs"
            " adapters.Http(...)."
        )
    if isinstance(port.backup, BackupTransport):
        backup = port.backup.adapter
        if isinstance(backup, AdapterDefinition) and not backup.can_be_two_way:
            yield f"backup: the adapter {backup.kind!r} has no response to what it sends."
    if isinstance(port.receive_pipeline, ReceivePipeline):
        texts = port.receive_pipeline.problems()
        if not texts and isinstance(port.receive_pipeline, Receive):
            texts = port.receive_pipeline.packing_problems(port.position.folder)
        yield from (f"receive_pipeline: {text}" for text in texts)
    elif port.receive_pipeline is not None:
        yield f"receive_pipeline: {port.receive_pipeline!r} is not a pipeline, such as pipelines.Json(...)."
    yield from _response_map_problems(port.response_maps, port.position.folder)


def _one_way_problems(**settings: object) -> Iterator[str]:
    for name, value in settings.items():
        if value is not None and value != ():
            yield f"{name} is set, but the port is one-way and has no responses; add two_way=True."


def _response_map_problems(maps: object, folder: Path) -> Iterator[str]:
    yield from (f"response_maps: {text}" for text in map_problems(maps, folder))
