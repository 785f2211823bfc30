"""The maps and pipelines of an orchestration, with the files of the application's folder that they need.

They are stored in the definition of the orchestration, as those of a port are. So a host runs what was applied,
whatever the files contain now, and every version of an orchestration has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from postroom.errors import PipelineFailure
from postroom.maps import Map
from postroom.maps.port_maps import NO_MAPS, PortMaps, load_maps
from postroom.message import Body, Context, Message
from postroom.pipelines import Receive, ReceivePipeline, Send, load_pipeline
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.system_properties import ENGINE_PROPERTIES

if TYPE_CHECKING:
    from postroom.maps.running import RunningMaps

#: A pipeline that an orchestration can run.
AnyPipeline = ReceivePipeline | Send

#: The same, as a field of a stored definition.
StoredAnyPipeline = Annotated[AnyPipeline, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class Components:
    """Maps and pipelines in the order in which they are declared, packed for other machines."""

    maps: PortMaps = NO_MAPS
    pipelines: tuple[AnyPipeline, ...] = ()

    @classmethod
    def pack(cls, maps: Sequence[Map], pipelines: Sequence[AnyPipeline], folder: Path) -> Components:
        """Return them with the files that they need. Raise DefinitionError if one cannot be shipped."""
        packed = [one.pack(folder) if isinstance(one, Receive | Send) else one for one in pipelines]
        return cls(maps=PortMaps.pack(maps, folder), pipelines=tuple(packed))

    @classmethod
    def read_files(cls, maps: Sequence[Map], pipelines: Sequence[AnyPipeline], folder: Path) -> Components:
        """Return them as tests run them: functions are called as they are, and files are read from the folder. Raise
        DefinitionError if a file is missing."""
        completed = [one.read_files(folder) if isinstance(one, Receive | Send) else one for one in pipelines]
        return cls(maps=PortMaps.read_files(maps, folder), pipelines=tuple(completed))

    @classmethod
    def from_stored(cls, definition: Mapping[str, Any]) -> Components:
        """Parse what a stored definition of an orchestration has."""
        pipelines = [
            load_send_pipeline(one) if one["kind"] == "send" else load_pipeline(one)
            for one in definition.get("pipelines", ())
        ]
        return cls(maps=load_maps(definition.get("maps", {})), pipelines=tuple(pipelines))

    @cached_property
    def _running_maps(self) -> tuple[RunningMaps, ...]:
        # pyarrow is needed to run maps, not to declare them.
        from postroom.maps.running import RunningMaps

        return tuple(RunningMaps([one]) for one in self.maps.load())

    def transform(self, number: int, message: Message) -> Message:
        """Run the map with this number. Raise MapFailure if it fails."""
        return self._running_maps[number].create_message(message)

    def receive(self, number: int, body: Body, context: Context) -> Iterator[Message]:
        """Yield the documents that the pipeline with this number reads. Raise the failure of a bad document."""
        from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
        from postroom.pipelines.documents.message_batch import MessageBatch

        pipeline = self.pipelines[number]
        assert not isinstance(pipeline, Send)
        interchange = DecodedInterchange(body=body, context=context, content_type=pipeline.content_type)
        for batch in pipeline.disassemble(body, context=context):
            if batch.failures:
                raise batch.failures[0].failure
            for document in MessageBatch(batch.messages, batch.decoded or interchange):
                yield replace(document, context=_demote_engine_properties(document.context))

    def send(self, number: int, message: Message) -> Message | None:
        """Run the send pipeline with this number."""
        pipeline = self.pipelines[number]
        assert isinstance(pipeline, Send)
        return pipeline.run(message)


def _demote_engine_properties(context: Context) -> Context:
    """Return the context without promoted properties that an orchestration cannot promote."""
    promoted, written = dict(context.promoted), dict(context.written)
    for key in ENGINE_PROPERTIES.intersection(promoted):
        written[key] = promoted.pop(key)
    return Context(promoted, written, context.predicates)


def get_body(message: Message) -> Body:
    """Return the body of a message. Raise PipelineFailure if it has none."""
    if message.body is None:
        raise PipelineFailure("The message has no body.", hint="A receive pipeline reads the body part of a message.")
    return message.body.body
