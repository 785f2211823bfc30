"""A send pipeline: how a message becomes what the adapter of a send port sends.

pipelines.Send(
    pre_assemble=[components.JsonSchema("order.json")],
    assemble=components.JsonAssembler(demote={Region: "region"}),
    encode=[components.GzipEncoder(), add_checksum],        # functions and classes of the user
)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from postroom.pipelines.components.assemblers import XmlAssembler
from postroom.pipelines.components.contract import Assembler, Component, Encoder, PreAssembler, Validator
from postroom.pipelines.components.staged_pipeline import (
    MAX_COMPONENTS,
    StagedPipeline,
    class_problems,
    read_stage,
    store_stage,
)
from postroom.properties import Property
from postroom.stored_definitions import read_stored

if TYPE_CHECKING:
    from postroom.message import Message
    from postroom.pipelines.send.stages import SendStages


def _read_assembler(source: object, info: ValidationInfo) -> tuple[Any, ...]:
    if isinstance(source, list | tuple):
        return read_stage(source, info)
    return () if source is None else read_stage([source], info)


_Stage = Annotated[
    Sequence[Any], PlainValidator(read_stage), PlainSerializer(store_stage, return_type=list[dict[str, Any]])
]
_AssembleStage = Annotated[
    Any, PlainValidator(_read_assembler), PlainSerializer(store_stage, return_type=list[dict[str, Any]])
]


class Send(StagedPipeline):
    """A pipeline of three stages that runs after the maps of a send port (SND-01). Its components are classes of
    ``pipelines.components`` and functions that take a message.

    ``pre_assemble`` and ``encode`` have 0 to 255 components, which all run, in order. ``assemble`` is one component, or
    None. Validators can be used in ``pre_assemble``. Every other component returns one message. If it returns None, the
    message is consumed: its instance is completed and nothing is sent (SND-02). A failure suspends the instance at once
    (SND-03). ``seconds`` is the time limit for one call of a component. Without components the message passes through
    unchanged.
    """

    kind: Literal["send"] = "send"
    pre_assemblers: _Stage = Field(default=(), alias="pre_assemble")
    assemblers: _AssembleStage = Field(default=(), alias="assemble")
    encoders: _Stage = Field(default=(), alias="encode")

    def __bool__(self) -> bool:
        return bool(self.pre_assemblers or self.assemblers or self.encoders)

    def __copy__(self) -> Self:
        # A copy may have other components.
        copied = super().__copy__()
        copied.__dict__.pop("running", None)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled in the stored form, so that the tasks of one worker share the loaded components.
        return load_send_pipeline, (self.model_dump(mode="json"),)

    @property
    def demotes(self) -> tuple[Property, ...]:
        """The properties that the assembler copies into the document."""
        return tuple(prop for each in self.assemblers for prop in (each.demotes if isinstance(each, Assembler) else ()))

    def problems(self) -> list[str]:
        """Describe everything that is wrong with this definition. The list is empty if it can be run."""
        return self._stage_problems()

    def run(self, message: Message) -> Message | None:
        """Return what is sent, with the same message id, or None if a component consumed the message. Raise
        PipelineFailure if a component fails."""
        return self.running.run(message) if self else message

    @cached_property
    def running(self) -> SendStages:
        """The pipeline, ready to run."""
        from postroom.pipelines.send.stages import SendStages

        return SendStages(self)

    def _get_max_components(self, stage: str) -> int:
        return 1 if stage == "assemble" else MAX_COMPONENTS

    def _component_problems(self, stage: str, component: object) -> Iterator[str]:
        return class_problems(component, _CLASSES[stage])


class XmlTransmit(Send):
    """A send pipeline that is one XML assembler, with the settings of ``components.XmlAssembler`` (RCV-07).

    pipelines.XmlTransmit(schemas=app.schemas("schemas"))
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(assemble=XmlAssembler(**settings))


_CLASSES: Mapping[str, tuple[type[Component], ...]] = {
    "pre_assemble": (PreAssembler, Validator),
    "assemble": (Assembler,),
    "encode": (Encoder,),
}

#: Without components: the message is sent unchanged.
PASS_THRU_TRANSMIT = Send()

_STORED: TypeAdapter[Send] = TypeAdapter(Send)


def load_send_pipeline(stored: Mapping[str, Any]) -> Send:
    """Parse a stored send pipeline."""
    return _load(json.dumps(stored, sort_keys=True))


@lru_cache(maxsize=64)
def _load(stored: str) -> Send:
    # Cached, so that components are loaded once for all messages of a port.
    return read_stored("send pipeline", _STORED, json.loads(stored))
