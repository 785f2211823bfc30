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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo, model_validator

from postroom.pipelines.components.contract import Component, Decoder, Disassembler, PartyResolver, Validator
from postroom.pipelines.components.staged_pipeline import StagedPipeline, class_problems, read_stage, store_stage
from postroom.pipelines.components.stored_component import StoredComponent, load_component
from postroom.pipelines.definition import BAD_DOCUMENTS, Definition, Format, PassThrough, limit_problems
from postroom.pipelines.flat.definition import Csv, FlatFile
from postroom.pipelines.json.definition import Json, JsonLines
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.xml.definition import Xml, XmlReceive
from postroom.properties import Property
from postroom.stored_definitions import read_stored
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from postroom.message import Body, Context
    from postroom.pipelines.documents.disassembled_batch import BatchSize, DisassembledBatch

_AnyFormat = PassThrough | Json | JsonLines | Xml | XmlReceive | Csv | FlatFile
_FORMAT: TypeAdapter[_AnyFormat] = TypeAdapter(Annotated[_AnyFormat, Field(discriminator="kind")])


def _read_stage(source: object, info: ValidationInfo) -> tuple[Any, ...]:
    """Parse a stage. Formats are stored by their kind, other components by reference."""
    if isinstance(source, list | tuple):
        source = [
            _FORMAT.validate_python(dict(each)) if isinstance(each, Mapping) and "kind" in each else each
            for each in source
        ]
    return read_stage(source, info)


Stage = Annotated[
    Sequence[Any], PlainValidator(_read_stage), PlainSerializer(store_stage, return_type=list[dict[str, Any]])
]


class Receive(StagedPipeline, Definition):
    """A pipeline of four stages with 0 to 255 components each (RCV-02): classes of ``pipelines.components``, functions
    that take a message, and in ``disassemble`` also the other pipelines, such as ``pipelines.Json(...)``.

    In ``disassemble`` only the first component whose probe accepts the interchange runs. Without a disassembler the
    interchange is one message. In the other stages all components run, in order. ``recoverable``: a bad document is
    suspended alone. The default is True if all disassemblers are recoverable. ``bad_documents`` is the maximum number
    of bad documents before the rest of an interchange is suspended as one message. The default is the minimum of the
    disassemblers. ``seconds`` is the time limit for one call of a component.
    """

    kind: Literal["receive"] = "receive"
    content_type: ClassVar[str] = "application/octet-stream"
    decoders: Stage = Field(default=(), alias="decode")
    disassemblers: Stage = Field(default=(), alias="disassemble")
    validators: Stage = Field(default=(), alias="validate")
    resolvers: Stage = Field(default=(), alias="resolve_party")
    recoverable: bool | None = None
    bad_documents: int | None = BAD_DOCUMENTS

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
        found = self._stage_problems() + limit_problems(self.bad_documents)
        return found + _promotion_problems(self.disassemblers)

    def _component_problems(self, stage: str, component: object) -> Iterator[str]:
        if not isinstance(component, Format):
            yield from class_problems(component, (_CLASSES[stage],))
        elif stage == "disassemble":
            yield from component.problems()
        else:
            yield f"pipelines.{type(component).__name__} is a disassembler and cannot be used in this stage."

    def _read_batches(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        from postroom.pipelines.receive.stages import run_stages

        return run_stages(self, body, context, size)


_CLASSES: Mapping[str, type[Component]] = {
    "decode": Decoder,
    "disassemble": Disassembler,
    "validate": Validator,
    "resolve_party": PartyResolver,
}


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
