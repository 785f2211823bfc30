"""What a user's disassembler yields, message by message, as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Message
from postroom.namespaces import dotted_name, split_key
from postroom.pipelines.components.contract import Disassembler, Suspend
from postroom.pipelines.documents.disassembled_batch import (
    MAX_DOCUMENT_SIZE,
    BatchSize,
    Decoded,
    Disassembled,
    Rows,
    too_large,
)
from postroom.pipelines.documents.spool import Spool
from postroom.pipelines.running.component_calls import component_failure, run_component
from postroom.pipelines.shipping.stored_component import name_of
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.time_limit import TimedOut
from postroom.values import Value


def disassemble_messages(component: Any, message: Message, size: BatchSize, *, place: int) -> Iterator[Disassembled]:
    """The documents of ``component``, which is a Disassembler or a function, and the one at this place of the pipeline.
    What it raises fails the interchange."""
    name = name_of(component)
    promotes: tuple[Property, ...] = getattr(component, "promotes", ())
    assert message.body is not None
    work = component.disassemble if isinstance(component, Disassembler) else component
    content_type: str = getattr(component, "content_type", "application/octet-stream")
    shared = Decoded.of(message, content_type=content_type, disassembler=place)
    kept = Spool()
    rows = Rows(promotes=promotes)
    for number, document in enumerate(_documents(name, run_component(name, work, message)), 1):
        if isinstance(document, Suspend):
            rows.fail(number, document.body, component_failure(name, document.reason))
        else:
            offset = kept.size
            content = _content(name, document)
            if len(content) > FRAGMENT_SIZE:
                kept.write(content)
            values, message_type = _promoted(name, promotes, document)
            rows.add(number, content, values, offset=offset, message_type=message_type)
        if rows.fills(size):
            yield replace(rows.finish(), decoded=replace(shared, body=kept.body))
            rows = Rows(promotes=promotes)
    if len(rows):
        yield replace(rows.finish(), decoded=replace(shared, body=kept.body))


def _documents(name: str, answer: Iterable[Any]) -> Iterator[Message | Suspend]:
    try:
        for document in answer:
            if not isinstance(document, Message | Suspend):
                raise TypeError(f"a disassembler yields messages, not {type(document).__name__}")
            yield document
    except (TimedOut, GeneratorExit, PipelineFailure):
        raise
    except BaseException as error:
        raise component_failure(name, error) from error


def _content(name: str, document: Message) -> bytes:
    if document.body is not None and document.body.body.size > MAX_DOCUMENT_SIZE:
        raise component_failure(name, too_large(f"A document has {document.body.body.size:,} bytes", "document"))
    return document.data


def _promoted(name: str, promotes: tuple[Property, ...], document: Message) -> tuple[list[Value | None], str | None]:
    promoted = dict(document.context.promoted)
    message_type = promoted.pop(BTS.MessageType.key, None)
    values = [promoted.pop(prop.key, None) for prop in promotes]
    if promoted:
        undeclared = ", ".join(sorted(dotted_name(*split_key(key)) for key in promoted))
        raise PipelineFailure(
            f"{name}: it promotes {undeclared}, which is not in its promotes.",
            hint="Add that to promotes of the component, apply the application, and resume.",
        )
    return values, None if message_type is None else str(message_type)
