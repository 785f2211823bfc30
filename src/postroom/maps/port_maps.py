"""The maps of one port as they are declared, checked and stored: 0 to n, each for a type of its own (RCV-20)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, TypeAdapter

from postroom.errors import DefinitionError, PipelineFailure
from postroom.maps.contract import Map
from postroom.maps.definitions import Python
from postroom.pipelines.shipping.files import NO_FILES, Files, ShippedFiles
from postroom.pipelines.shipping.imported_files import imported_files
from postroom.pipelines.shipping.stored_component import StoredComponent, load_component, refer_to
from postroom.stored_definitions import read_stored

if TYPE_CHECKING:
    from postroom.maps.running import RunningMaps


def _read_maps(source: object) -> tuple[Any, ...]:
    if not isinstance(source, list | tuple):
        raise ValueError("write a list of maps, such as [maps.Xslt(...)]")
    return tuple(StoredComponent.read(one) if isinstance(one, Mapping) else one for one in source)


def _stored_maps(maps: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [refer_to(one, None).stored() for one in maps]


class PortMaps(BaseModel):
    """The maps of a port, with the files that they need where they run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    maps: Annotated[
        Sequence[Any], PlainValidator(_read_maps), PlainSerializer(_stored_maps, return_type=list[dict[str, Any]])
    ] = ()
    files: Files = NO_FILES

    @classmethod
    def packed(cls, maps: Sequence[Map], folder: Path) -> PortMaps:
        """Everything that the maps need elsewhere; DefinitionError for what could not be found there."""
        names: set[str] = set()
        stored: list[StoredComponent] = []
        for one in maps:
            names.update(one.files_in(folder))
            if isinstance(one, Python):
                one = one.model_copy(update={"function": refer_to(one.function, folder)})
                if one.function.target == "file":
                    names.update(imported_files(folder, one.function.where))
            reference = refer_to(one, folder)
            if reference.target == "file":
                names.update(imported_files(folder, reference.where))
            stored.append(reference)
        return cls(maps=stored, files=ShippedFiles.collect(folder, names))

    def __bool__(self) -> bool:
        return bool(self.maps)

    def __reduce__(self) -> tuple[Any, ...]:
        # As they are stored, so that the tasks of one worker share what was compiled.
        return load_maps, (self.model_dump(mode="json"),)

    @property
    def longest_seconds(self) -> float:
        """The longest time that one of the maps may take for a message; 0 if there is none. Nothing is loaded."""
        default = Map.model_fields["seconds"].default
        return max((float((one.settings or {}).get("seconds", default)) for one in self.maps), default=0.0)

    @cached_property
    def running(self) -> RunningMaps:
        """The maps, ready to run; PipelineFailure if one cannot be loaded here."""
        # pyarrow is needed to run maps, not to declare them.
        from postroom.maps.running import RunningMaps

        return RunningMaps(self.loaded())

    def loaded(self) -> tuple[Map, ...]:
        """The maps themselves; PipelineFailure if one cannot be made here."""
        found = []
        for one in self.maps:
            loaded = load_component(one, self.files)
            assert isinstance(loaded, Map), f"{one!r} is no map"
            found.append(loaded)
        return tuple(found)


NO_MAPS = PortMaps()

_STORED: TypeAdapter[PortMaps] = TypeAdapter(PortMaps)


def map_problems(maps: object, folder: Path) -> Iterator[str]:
    """Everything that is wrong with the maps of a port, in words; ``folder`` is the application's."""
    if not isinstance(maps, list | tuple):
        yield f"maps is {maps!r}, but must be a list, such as [maps.Xslt(...)]."
        return
    sources = Counter(one.source for one in maps if isinstance(one, Map))
    for source, count in sources.items():
        if count > 1:
            yield f"{count} maps have the source {source!r}; a message type has one map."
    for number, one in enumerate(maps, 1):
        for text in _problems(one, folder):
            yield f"map {number}: {text}"
    if not any(sources.values()):
        return
    try:
        # Each may be small enough, and all of them together too large.
        PortMaps.packed([one for one in maps if isinstance(one, Map) and not list(_problems(one, folder))], folder)
    except DefinitionError as error:
        yield _in_words(error)


def _problems(one: object, folder: Path) -> Iterator[str]:
    if isinstance(one, type):
        yield f"{one.__name__} is a class; write {one.__name__}(...)."
        return
    if not isinstance(one, Map):
        yield f"{one!r} is not a map, such as maps.Xslt(...)."
        return
    texts = one.problems()
    yield from texts
    if texts:
        return
    try:
        [loaded] = PortMaps.packed([one], folder).loaded()
        yield from loaded.file_problems()
    except (DefinitionError, PipelineFailure) as error:
        yield _in_words(error)


def _in_words(error: DefinitionError | PipelineFailure) -> str:
    return " ".join(text for text in (error.what, error.why, error.hint) if text)


def load_maps(stored: Mapping[str, Any]) -> PortMaps:
    """Return the maps of a port that are stored like this."""
    return _load(json.dumps(stored, sort_keys=True)) if stored.get("maps") else NO_MAPS


@lru_cache(maxsize=16)
def _load(stored: str) -> PortMaps:
    # Kept, so that what maps have compiled serves the next message too.
    return read_stored("list of maps", _STORED, json.loads(stored))
