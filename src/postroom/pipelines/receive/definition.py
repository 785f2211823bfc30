"""A receive pipeline with components in its stages, and the type of all receive pipelines.

pipelines.Receive(
    decode=[components.Gzip()],
    disassemble=[pipelines.Xml(promote={Region: "/order/region"}), pipelines.JsonLines(promote={Region: "region"})],
    validate=[has_total],                                   # functions and classes of the user
    resolve_party=[sender_of],
)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, model_validator

from postroom.errors import DefinitionError, PipelineFailure
from postroom.pipelines.components.contract import Component, Decoder, Disassembler, PartyResolver, Validator
from postroom.pipelines.components.stored_component import StoredComponent, load_component, refer_to
from postroom.pipelines.definition import BAD_DOCUMENTS, Definition, Format, PassThrough, limit_problems
from postroom.pipelines.flat.definition import Csv, FlatFile
from postroom.pipelines.json.definition import Json, JsonLines
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.shipping.imported_files import find_imported_files
from postroom.pipelines.shipping.shipped_files import NO_FILES, Files, ShippedFiles
from postroom.pipelines.xml.definition import Xml, XmlReceive
from postroom.properties import Property
from postroom.stored_definitions import read_stored
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from postroom.message import Body, Context
    from postroom.pipelines.documents.disassembled_batch import BatchSize, DisassembledBatch

#: BizTalk's maximum for one stage (RCV-02).
MAX_COMPONENTS = 255

_AnyFormat = PassThrough | Json | JsonLines | Xml | XmlReceive | Csv | FlatFile
_FORMAT: TypeAdapter[_AnyFormat] = TypeAdapter(Annotated[_AnyFormat, Field(discriminator="kind")])


def _read_stage(source: object) -> tuple[Any, ...]:
    if not isinstance(source, list | tuple):
        raise ValueError("write a list of components, such as [components.Gzip()]")
    return tuple(map(_read_component, source))


def _read_component(source: object) -> object:
    if not isinstance(source, Mapping):
        return source
    return _FORMAT.validate_python(dict(source)) if "kind" in source else StoredComponent.read(source)


def _to_stored_stage(stage: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [
        component.model_dump(mode="json") if isinstance(component, Format) else refer_to(component, None).to_stored()
        for component in stage
    ]


Stage = Annotated[
    Sequence[Any], PlainValidator(_read_stage), PlainSerializer(_to_stored_stage, return_type=list[dict[str, Any]])
]


class Receive(Definition):
    """A pipeline of four stages with 0 to 255 components each (RCV-02): classes of ``pipelines.components``, functions
    that take a message, and in ``disassemble`` also the other pipelines, such as ``pipelines.Json(...)``.

    In ``disassemble`` only the first component whose probe accepts the interchange runs. Without a disassembler the
    interchange is one message. In the other stages all components run, in order. ``recoverable``: a bad document is
    suspended alone. The default is True if all disassemblers are recoverable. ``bad_documents`` is the maximum number
    of bad documents before the rest of an interchange is suspended as one message. The default is the minimum of the
    disassemblers. ``seconds`` is the time limit for one call of a component.
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
    def _set_defaults(self) -> Receive:
        if self.recoverable is None:
            flags = [
                isinstance(disassembler, Format | Disassembler) and disassembler.recoverable
                for disassembler in self.disassemblers
            ]
            object.__setattr__(self, "recoverable", bool(flags) and all(flags))
        if "bad_documents" not in self.model_fields_set:
            limits = [
                disassembler.bad_documents if isinstance(disassembler, Format) else BAD_DOCUMENTS
                for disassembler in self.disassemblers
            ]
            minimum = min((limit for limit in limits if limit is not None), default=None if limits else BAD_DOCUMENTS)
            object.__setattr__(self, "bad_documents", minimum)
        return self

    @property
    def call_seconds(self) -> float:
        return self.seconds

    @property
    def stages(self) -> Mapping[str, Sequence[Any]]:
        """The components by stage, in the order in which the stages run."""
        return {
            "decode": self.decoders,
            "disassemble": self.disassemblers,
            "validate": self.validators,
            "resolve_party": self.resolvers,
        }

    @property
    def promotes(self) -> tuple[Property, ...]:
        found: dict[str, Property] = {}
        for disassembler in self.disassemblers:
            loaded = (
                load_component(disassembler, self.files) if isinstance(disassembler, StoredComponent) else disassembler
            )
            found |= {prop.key: prop for prop in _promoted_properties(loaded)}
        if self.resolvers:
            found[BTS.OriginatorPID.key] = BTS.OriginatorPID
        return tuple(found.values())

    def problems(self) -> list[str]:
        found = []
        for stage, listed in self.stages.items():
            if len(listed) > MAX_COMPONENTS:
                found.append(f"{stage} has {len(listed)} components; the maximum is {MAX_COMPONENTS}.")
            for number, component in enumerate(listed, 1):
                found += [f"{stage}, component {number}: {text}" for text in _problems(stage, component)]
        if not self.seconds > 0:
            found.append(f"seconds is {self.seconds!r}, but must be more than 0.")
        found += limit_problems(self.bad_documents)
        return found + _promotion_problems(self.disassemblers)

    def packing_problems(self, folder: Path) -> list[str]:
        """Describe what prevents the pipeline from running outside the application's folder, ``folder``."""
        found = []
        for stage, listed in self.stages.items():
            for number, component in enumerate(listed, 1):
                try:
                    if not isinstance(component, Format):
                        refer_to(component, folder)
                except DefinitionError as error:
                    found.append(f"{stage}, component {number}: {error.what}")
        if found:
            return found
        try:
            packed = self.pack(folder)
            for stage, listed in packed.stages.items():
                for number, component in enumerate(listed, 1):
                    if not isinstance(component, Format):
                        loaded = load_component(component, packed.files)
                        if isinstance(loaded, Component):
                            found += [f"{stage}, component {number}: {text}" for text in loaded.file_problems()]
        except DefinitionError as error:
            return [" ".join(text for text in (error.what, error.hint) if text)]
        except PipelineFailure as error:
            return [error.join_sentences(with_hint=False)]
        return found

    def pack(self, folder: Path) -> Receive:
        """Return the pipeline with everything that it needs on other machines: references to its components, and the
        files of the application's folder that contain the components or that they read."""
        stages: dict[str, tuple[Any, ...]] = {}
        names: set[str] = set()
        for stage, listed in self.stages.items():
            stages[stage] = tuple(
                component if isinstance(component, Format) else refer_to(component, folder) for component in listed
            )
            for component in stages[stage]:
                if isinstance(component, StoredComponent) and component.target == "file":
                    names.update(find_imported_files(folder, component.where))
            for component in listed:
                if isinstance(component, Component):
                    names.update(component.files_in(folder))
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

    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        from postroom.pipelines.receive.stages import run_stages

        return run_stages(self, body, context, size)


_CLASSES: Mapping[str, type[Component]] = {
    "decode": Decoder,
    "disassemble": Disassembler,
    "validate": Validator,
    "resolve_party": PartyResolver,
}


def _problems(stage: str, component: object) -> Iterator[str]:
    required = _CLASSES[stage]
    if isinstance(component, Format):
        if stage == "disassemble":
            yield from component.problems()
        else:
            yield f"pipelines.{type(component).__name__} is a disassembler and cannot be used in this stage."
    elif isinstance(component, Component):
        if isinstance(component, required):
            yield from component.problems()
        else:
            yield f"{component.name} is not a {required.__name__} and cannot be used in this stage."
    elif isinstance(component, type):
        yield f"{component.__name__} is a class; write {component.__name__}()."
    elif not isinstance(component, StoredComponent | FunctionType):
        yield f"{component!r} is neither a component nor a function."


def _promoted_properties(disassembler: object) -> tuple[Property, ...]:
    return disassembler.promotes if isinstance(disassembler, Format | Disassembler) else ()


def _promotion_problems(disassemblers: Sequence[Any]) -> list[str]:
    """Report properties that two disassemblers promote with different types."""
    types: dict[str, Property] = {}
    found = []
    for disassembler in disassemblers:
        for prop in _promoted_properties(disassembler):
            other = types.setdefault(prop.key, prop)
            if other.value_type is not prop.value_type:
                found.append(f"{prop.dotted_name} is promoted as two types by two disassemblers.")
    return found


#: Any receive pipeline, by ``kind``.
ReceivePipeline = _AnyFormat | Receive | Rows

#: The same, as a field of a stored definition.
StoredPipeline = Annotated[ReceivePipeline, Field(discriminator="kind")]

_STORED: TypeAdapter[ReceivePipeline] = TypeAdapter(StoredPipeline)


def load_pipeline(stored: Mapping[str, Any]) -> ReceivePipeline:
    """Parse a stored receive pipeline."""
    return _load(json.dumps(stored, sort_keys=True))


@lru_cache(maxsize=64)
def _load(stored: str) -> ReceivePipeline:
    # Cached, so that what components have compiled is used again for the next interchange.
    definition: dict[str, Any] = json.loads(stored)
    return read_stored(f"receive pipeline of the kind {definition.get('kind')!r}", _STORED, definition)
