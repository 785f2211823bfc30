"""The maps of a port as they are declared, checked and stored: at most one per message type (RCV-20)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from postroom.errors import DefinitionError, DefinitionRefused, PipelineFailure, Problem
from postroom.maps.contract import Map
from postroom.maps.definitions import Python
from postroom.message import Message
from postroom.pipelines.components.stored_component import StoredComponent, load_component, refer_to
from postroom.pipelines.shipping.modules import find_imported_files
from postroom.pipelines.shipping.shipped_files import NO_FILES, Files, ShippedFiles
from postroom.stored_definitions import check_stored_objects, read_stored
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from postroom.maps.running import RunningMaps


def _read_maps(source: object, info: ValidationInfo) -> tuple[Any, ...]:
    if not isinstance(source, list | tuple):
        raise ValueError("write a list of maps, such as [maps.Xslt(...)]")
    check_stored_objects(source, info)
    return tuple(StoredComponent.read(port_map) if isinstance(port_map, Mapping) else port_map for port_map in source)


def _store_maps(maps: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [refer_to(port_map, None).to_stored() for port_map in maps]


class PortMaps(BaseModel):
    """The maps of a port, with the files that they need at run time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    maps: Annotated[
        Sequence[Any], PlainValidator(_read_maps), PlainSerializer(_store_maps, return_type=list[dict[str, Any]])
    ] = ()
    files: Files = NO_FILES

    @classmethod
    def pack(cls, maps: Sequence[Map], folder: Path) -> PortMaps:
        """Return the maps with all files that they need on other machines. Raise DefinitionError if one cannot be
        shipped."""
        names: set[str] = set()
        stored: list[StoredComponent] = []
        for port_map in maps:
            names.update(port_map.files_in(folder))
            if isinstance(port_map, Python):
                port_map = port_map.model_copy(update={"function": refer_to(port_map.function, folder)})
                if port_map.function.target == "file":
                    names.update(find_imported_files(folder, port_map.function.where))
            reference = refer_to(port_map, folder)
            if reference.target == "file":
                names.update(find_imported_files(folder, reference.where))
            stored.append(reference)
        return cls(maps=stored, files=ShippedFiles.collect(folder, names))

    @classmethod
    def read_files(cls, maps: Sequence[Map], folder: Path) -> PortMaps:
        """Return the maps with the files that they read, to run them in this process. Raise DefinitionError if one is
        missing."""
        return cls(
            maps=maps, files=ShippedFiles.collect(folder, {name for one in maps for name in one.files_in(folder)})
        )

    def __bool__(self) -> bool:
        return bool(self.maps)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled in the stored form, so that the tasks of one worker share the compiled maps.
        return load_maps, (self.model_dump(mode="json"),)

    @property
    def longest_seconds(self) -> float:
        """The longest time limit of the maps, 0 if there are none. It does not load them."""
        default = Map.model_fields["seconds"].default
        return max((float((port_map.settings or {}).get("seconds", default)) for port_map in self.maps), default=0.0)

    @cached_property
    def running(self) -> RunningMaps:
        """The maps, ready to run. Raise PipelineFailure if one cannot be loaded here."""
        # pyarrow is needed to run maps, not to declare them.
        from postroom.maps.running import RunningMaps

        return RunningMaps(self.load())

    def load(self) -> tuple[Map, ...]:
        """Load the maps. Raise PipelineFailure if one cannot be loaded here."""
        maps = []
        for stored in self.maps:
            loaded = load_component(stored, self.files)
            assert isinstance(loaded, Map), f"{stored!r} is not a map"
            maps.append(loaded)
        return tuple(maps)


NO_MAPS = PortMaps()

_STORED: TypeAdapter[PortMaps] = TypeAdapter(PortMaps)


def map_problems(maps: object, folder: Path, *, of_port: bool = True) -> Iterator[str]:
    """Describe everything that is wrong with the maps of a port, or of an orchestration. ``folder`` is the
    application's folder."""
    if not isinstance(maps, list | tuple):
        yield f"maps is {maps!r}, but must be a list, such as [maps.Xslt(...)]."
        return
    sources = Counter(port_map.source for port_map in maps if isinstance(port_map, Map))
    for source, count in sources.items():
        if count > 1 and of_port:
            yield f"{count} maps have the source {source!r}; a message type can have one map."
    for number, port_map in enumerate(maps, 1):
        for text in _problems(port_map, folder):
            yield f"map {number}: {text}"
    if not any(sources.values()):
        return
    try:
        # The files of each map may be small enough, but too large in total.
        PortMaps.pack(
            [port_map for port_map in maps if isinstance(port_map, Map) and not list(_problems(port_map, folder))],
            folder,
        )
    except DefinitionError as error:
        yield error.join_sentences()


def _problems(port_map: object, folder: Path) -> Iterator[str]:
    if isinstance(port_map, type):
        yield f"{port_map.__name__} is a class; write {port_map.__name__}(...)."
        return
    if not isinstance(port_map, Map):
        yield f"{port_map!r} is not a map, such as maps.Xslt(...)."
        return
    texts = port_map.problems()
    yield from texts
    if texts:
        return
    try:
        [loaded] = PortMaps.pack([port_map], folder).load()
        yield from loaded.file_problems()
    except (DefinitionError, PipelineFailure) as error:
        yield error.join_sentences()


def load_maps(stored: Mapping[str, Any]) -> PortMaps:
    """Parse the stored maps of a port."""
    return _load(json.dumps(stored, sort_keys=True)) if stored.get("maps") else NO_MAPS


@lru_cache(maxsize=16)
def _load(stored: str) -> PortMaps:
    # Cached, so that what maps have compiled is used again for the next message.
    return read_stored("list of maps", _STORED, json.loads(stored))


def try_out(port_map: Map, message: Message | bytes, *, folder: str | os.PathLike[str] = ".") -> Message:
    """Map a message as a port would. Bytes become the body of a message of the map's source type. ``folder`` is the
    application's folder. Raise MapFailure if the message cannot be mapped, DefinitionRefused if the map has problems.

    maps.try_out(to_invoice, b"<order><total>5</total></order>").data
    """
    problems = [Problem(text) for text in map_problems([port_map], Path(folder))]
    if problems:
        raise DefinitionRefused("The map", problems)
    original = (
        message if isinstance(message, Message) else Message.of(message, promoted={BTS.MessageType: port_map.source})
    )
    return PortMaps.pack([port_map], Path(folder)).running.map_message(original)
