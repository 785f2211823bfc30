"""Runs the disassembler of a user and puts its messages into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Message
from postroom.pipelines.components.component_calls import component_failure, run_component
from postroom.pipelines.components.contract import Disassembler, Suspend
from postroom.pipelines.components.stored_component import component_name
from postroom.pipelines.documents.disassembled_batch import (
    MAX_DOCUMENT_SIZE,
    BatchBuilder,
    BatchSize,
    DecodedInterchange,
    DisassembledBatch,
    oversize_failure,
)
from postroom.pipelines.documents.temporary_bodies import Spool
from postroom.processes.time_limit import TimedOut
from postroom.properties import Property, dotted_name, split_key
from postroom.system_properties import BTS, SUSPEND_QUEUE
from postroom.values import Value


def disassemble_messages(
    component: Any, message: Message, size: BatchSize, *, position: int
) -> Iterator[DisassembledBatch]:
    """Yield batches of the documents that ``component`` yields, which is a Disassembler or a function. ``position`` is
    its position in the pipeline. What it raises fails the interchange."""
    name = component_name(component)
    promotes: tuple[Property, ...] = getattr(component, "promotes", ())
    assert message.body is not None
    work = component.disassemble if isinstance(component, Disassembler) else component
    content_type: str = getattr(component, "content_type", "application/octet-stream")
    shared = DecodedInterchange.of(message, content_type=content_type, disassembler=position)
    large_documents = Spool()
    builder = BatchBuilder(promotes=promotes)
    for number, document in enumerate(_check_documents(name, run_component(name, work, message)), 1):
        if isinstance(document, Suspend):
            builder.add_failure(number, document.body, component_failure(name, document.reason))
        elif document.context.get(BTS.MessageDestination) == SUSPEND_QUEUE:
            failure = component_failure(name, "its BTS.MessageDestination is SuspendQueue")
            resumable = document.context.get(BTS.SuspendAsNonResumable) is not True
            builder.add_failure(number, _read_content(name, document), failure, resumable=resumable)
        else:
            offset = large_documents.size
            content = _read_content(name, document)
            if len(content) > FRAGMENT_SIZE:
                large_documents.write(content)
            values, message_type = _read_promoted(name, promotes, document)
            builder.add(number, content, values, offset=offset, message_type=message_type)
        if builder.is_full(size):
            yield replace(builder.build(), decoded=replace(shared, body=large_documents.body))
            builder = BatchBuilder(promotes=promotes)
    if len(builder):
        yield replace(builder.build(), decoded=replace(shared, body=large_documents.body))


def _check_documents(name: str, documents: Iterable[Any]) -> Iterator[Message | Suspend]:
    try:
        for document in documents:
            if not isinstance(document, Message | Suspend):
                raise TypeError(f"a disassembler yields messages, not {type(document).__name__}")
            yield document
    except (TimedOut, GeneratorExit, PipelineFailure):
        raise
    except BaseException as error:
        raise component_failure(name, error) from error


def _read_content(name: str, document: Message) -> bytes:
    if document.body is not None and document.body.body.size > MAX_DOCUMENT_SIZE:
        raise component_failure(name, oversize_failure(f"A document has {document.body.body.size:,} bytes", "document"))
    return document.data


def _read_promoted(
    name: str, promotes: tuple[Property, ...], document: Message
) -> tuple[list[Value | None], str | None]:
    promoted = dict(document.context.promoted)
    message_type = promoted.pop(BTS.MessageType.key, None)
    values = [promoted.pop(prop.key, None) for prop in promotes]
    if promoted:
        undeclared = ", ".join(sorted(dotted_name(*split_key(key)) for key in promoted))
        raise PipelineFailure(
            f"{name}: it promotes {undeclared}, which is not in its promotes.",
            hint="Add it to promotes of the component, apply the application again, and resume.",
        )
    return values, None if message_type is None else str(message_type)
