"""A receive pipeline with components in its stages, and what any receive pipeline is.

pipelines.Receive(
    decode=[components.Gzip()],
    disassemble=[pipelines.Xml(promote={Region: "/order/region"}), pipelines.JsonLines(promote={Region: "region"})],
    validate=[has_total],                                   # functions and classes of the user's own
    resolve_party=[sender_of],
)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, model_validator

from postroom.errors import DefinitionError, PipelineFailure
from postroom.pipelines.components.contract import Component, Decoder, Disassembler, PartyResolver, Validator
from postroom.pipelines.definitions import BAD_DOCUMENTS, Definition, Format, StoredFormat, limit_problems
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.shipping.files import NO_FILES, Files, ShippedFiles
from postroom.pipelines.shipping.imported_files import imported_files
from postroom.pipelines.shipping.stored_component import StoredComponent, load_component, refer_to
from postroom.properties import Property
from postroom.stored_definitions import read_stored
from postroom.system_properties import BTS

#: BizTalk's limit for one stage (RCV-02).
MAX_COMPONENTS = 255

_FORMAT: TypeAdapter[Format] = TypeAdapter(StoredFormat)


def _read_stage(source: object) -> tuple[Any, ...]:
    if not isinstance(source, list | tuple):
        raise ValueError("write a list of components, such as [components.Gzip()]")
    return tuple(map(_read_one, source))


def _read_one(source: object) -> object:
    if not isinstance(source, Mapping):
        return source
    return _FORMAT.validate_python(dict(source)) if "kind" in source else StoredComponent.read(source)


def _stored_stage(stage: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") if isinstance(one, Format) else refer_to(one, None).stored() for one in stage]


Stage = Annotated[
    Sequence[Any], PlainValidator(_read_stage), PlainSerializer(_stored_stage, return_type=list[dict[str, Any]])
]


class Receive(Definition):
    """The four stages in their order, 0 to 255 components each (RCV-02): classes of ``pipelines.components``, functions
    that take a message, and in ``disassemble`` also the other pipelines, such as ``pipelines.Json(...)``.

    Of ``disassemble`` the first whose probe accepts runs alone; without any the interchange is one message. Of the
    other stages all run, in order. ``recoverable`` says whether a bad document is suspended alone; left out, it is so
    if all disassemblers say so. ``bad_documents`` is how many may be bad before the rest of an interchange is suspended
    as one; left out, it is the least that a disassembler says. ``seconds`` is how long one call of a component may
    take.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    kind: Literal["receive"] = "receive"
    content_type: ClassVar[str] = "application/octet-stream"
    decoders: Stage = Field(default=(), alias="decode")
    disassemblers: Stage = Field(default=(), alias="disassemble")
    validators: Stage = Field(default=(), alias="validate")
    resolvers: Stage = Field(default=(), alias="resolve_party")
    recoverable: bool | None = None
    bad_documents: int | None = BAD_DOCUMENTS
    seconds: float = 60.0
    files: Files = NO_FILES

    @model_validator(mode="after")
    def _settle(self) -> Receive:
        if self.recoverable is None:
            said = [isinstance(one, Format | Disassembler) and one.recoverable for one in self.disassemblers]
            object.__setattr__(self, "recoverable", bool(said) and all(said))
        if "bad_documents" not in self.model_fields_set:
            limits = [one.bad_documents if isinstance(one, Format) else BAD_DOCUMENTS for one in self.disassemblers]
            least = min((one for one in limits if one is not None), default=None if limits else BAD_DOCUMENTS)
            object.__setattr__(self, "bad_documents", least)
        return self

    @property
    def call_seconds(self) -> float:
        return self.seconds

    @property
    def stages(self) -> Mapping[str, Sequence[Any]]:
        """The components by the name of their stage, in the order in which stages run."""
        return {
            "decode": self.decoders,
            "disassemble": self.disassemblers,
            "validate": self.validators,
            "resolve_party": self.resolvers,
        }

    @property
    def promotes(self) -> tuple[Property, ...]:
        found: dict[str, Property] = {}
        for one in self.disassemblers:
            loaded = load_component(one, self.files) if isinstance(one, StoredComponent) else one
            found |= {prop.key: prop for prop in _promoted_by(loaded)}
        if self.resolvers:
            found[BTS.OriginatorPID.key] = BTS.OriginatorPID
        return tuple(found.values())

    def problems(self) -> list[str]:
        found = []
        for stage, listed in self.stages.items():
            if len(listed) > MAX_COMPONENTS:
                found.append(f"{stage} has {len(listed)} components; it may have {MAX_COMPONENTS}.")
            for number, one in enumerate(listed, 1):
                found += [f"{stage}, component {number}: {text}" for text in _problems(stage, one)]
        if not self.seconds > 0:
            found.append(f"seconds is {self.seconds!r}, but must be more than 0.")
        found += limit_problems(self.bad_documents)
        return found + _promotion_problems(self.disassemblers)

    def packing_problems(self, folder: Path) -> list[str]:
        """What keeps the pipeline from running where only its definition is known; ``folder`` is the application's."""
        found = []
        for stage, listed in self.stages.items():
            for number, one in enumerate(listed, 1):
                try:
                    if not isinstance(one, Format):
                        refer_to(one, folder)
                except DefinitionError as error:
                    found.append(f"{stage}, component {number}: {error.what}")
        if found:
            return found
        try:
            packed = self.packed(folder)
            for stage, listed in packed.stages.items():
                for number, one in enumerate(listed, 1):
                    if not isinstance(one, Format):
                        loaded = load_component(one, packed.files)
                        if isinstance(loaded, Component):
                            found += [f"{stage}, component {number}: {text}" for text in loaded.file_problems()]
        except DefinitionError as error:
            return [" ".join(text for text in (error.what, error.hint) if text)]
        except PipelineFailure as error:
            return [" ".join(text for text in (error.what, error.why) if text)]
        return found

    def packed(self, folder: Path) -> Receive:
        """The same pipeline with everything in it that it needs elsewhere: references to its components, and the files
        of the application's folder that these are in and read."""
        stages: dict[str, tuple[Any, ...]] = {}
        names: set[str] = set()
        for stage, listed in self.stages.items():
            stages[stage] = tuple(one if isinstance(one, Format) else refer_to(one, folder) for one in listed)
            for one in stages[stage]:
                if isinstance(one, StoredComponent) and one.target == "file":
                    names.update(imported_files(folder, one.where))
            for one in listed:
                if isinstance(one, Component):
                    names.update(one.files_in(folder))
        collected = ShippedFiles.collect(folder, names)
        return self.model_copy(
            update={
                "decoders": stages["decode"],
                "disassemblers": stages["disassemble"],
                "validators": stages["validate"],
                "resolvers": stages["resolve_party"],
                "files": collected,
            }
        )


_CLASSES: Mapping[str, type[Component]] = {
    "decode": Decoder,
    "disassemble": Disassembler,
    "validate": Validator,
    "resolve_party": PartyResolver,
}


def _problems(stage: str, one: object) -> Iterator[str]:
    wanted = _CLASSES[stage]
    if isinstance(one, Format):
        if stage == "disassemble":
            yield from one.problems()
        else:
            yield f"pipelines.{type(one).__name__} is a disassembler and cannot stand here."
    elif isinstance(one, Component):
        if isinstance(one, wanted):
            yield from one.problems()
        else:
            yield f"{one.name} is no {wanted.__name__} and cannot stand here."
    elif isinstance(one, type):
        yield f"{one.__name__} is a class; write {one.__name__}()."
    elif not isinstance(one, StoredComponent | FunctionType):
        yield f"{one!r} is neither a component nor a function."


def _promoted_by(one: object) -> tuple[Property, ...]:
    return one.promotes if isinstance(one, Format | Disassembler) else ()


def _promotion_problems(disassemblers: Sequence[Any]) -> list[str]:
    """One property has one type, whichever disassembler promotes it."""
    types: dict[str, Property] = {}
    found = []
    for one in disassemblers:
        for prop in _promoted_by(one):
            other = types.setdefault(prop.key, prop)
            if other.value_type is not prop.value_type:
                found.append(f"{prop.dotted} is promoted as two types by two disassemblers.")
    return found


#: Any receive pipeline; ``kind`` tells which.
ReceivePipeline = Format | Receive | Rows

#: The same, as a field of what is stored.
StoredPipeline = Annotated[ReceivePipeline, Field(discriminator="kind")]

_STORED: TypeAdapter[ReceivePipeline] = TypeAdapter(StoredPipeline)


def load_pipeline(stored: Mapping[str, Any]) -> ReceivePipeline:
    """Return the receive pipeline that is stored like this."""
    return _load(json.dumps(stored, sort_keys=True))


@lru_cache(maxsize=64)
def _load(stored: str) -> ReceivePipeline:
    # Kept, so that what components have compiled serves the next interchange too.
    definition: dict[str, Any] = json.loads(stored)
    return read_stored(f"receive pipeline of the kind {definition.get('kind')!r}", _STORED, definition)
