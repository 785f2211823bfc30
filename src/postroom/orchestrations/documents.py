"""What an orchestration does with documents: map them, read them, build them.

It runs the maps and pipelines that it declares. They run as steps do: the journal stores what they returned, and a
replay does not run them again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from postroom.errors import MapFailure, PipelineFailure, StateError
from postroom.maps import Map
from postroom.message import Body, Bytes, Context, Message
from postroom.orchestrations.argument_digests import digest_call
from postroom.orchestrations.components import get_body
from postroom.orchestrations.execution import Execution, get_execution, operation
from postroom.pipelines import ReceivePipeline, Send
from postroom.system_properties import BTS


@operation
async def transform(message: Message, map: Map) -> Message:
    """Return the result of a map as a new message. The orchestration declares the map in ``maps``.

    The new message promotes what the map promotes. The properties of the original can be read, but are not promoted.
    Raise MapFailure if the message has another type than the source of the map, or if the map fails."""
    execution = get_execution()
    number = _find(execution, "maps", map, map.name)
    found = message.context.get(BTS.MessageType)
    if found is not None and found != map.source:
        raise MapFailure(
            f"{map.name}: the message has the type {found!r}.",
            why=f"The source of the map is {map.source!r}.",
            hint="Use a map for this type, or transform another message.",
        )
    components = execution.orchestration.components
    [result] = await _run(f"transform {map.name}", lambda: [components.transform(number, message)], message)
    return result


@operation
async def build_message(body: bytes | Body, pipeline: ReceivePipeline) -> Message:
    """Return a new message with this document, as if it was received: the pipeline sets its message type, promotes its
    properties and writes its distinguished fields. The orchestration declares the pipeline in ``pipelines``.

    Raise PipelineFailure if the pipeline cannot read it, or reads more than one document."""
    execution = get_execution()
    number = _find(execution, "pipelines", pipeline, type(pipeline).__name__)
    components, content = execution.orchestration.components, Bytes(body) if isinstance(body, bytes) else body

    def read() -> list[Message]:
        documents = list(islice(components.receive(number, content, Context()), 2))
        if len(documents) != 1:
            count = "more than one document" if documents else "no document"
            raise PipelineFailure(
                f"The pipeline {type(pipeline).__name__} finds {count} in the body of the new message.",
                hint="Build one message for each document, or use execute_receive_pipeline().",
            )
        return documents

    [built] = await _run(f"build_message {type(pipeline).__name__}", read)
    return built


@operation
async def execute_receive_pipeline(message: Message, pipeline: ReceivePipeline) -> list[Message]:
    """Run a receive pipeline on the body of a message, and return its documents. The orchestration declares the
    pipeline in ``pipelines``.

    Each document promotes what the pipeline promotes. The properties of the message can be read, but are not promoted.
    Raise PipelineFailure if one of the documents is bad, also if the pipeline is recoverable."""
    execution = get_execution()
    name = type(pipeline).__name__
    number = _find(execution, "pipelines", pipeline, name)
    components, context = execution.orchestration.components, message.context.demote_all()
    return await _run(
        f"receive pipeline {name}", lambda: components.receive(number, get_body(message), context), message
    )


@operation
async def execute_send_pipeline(message: Message, pipeline: Send) -> Message | None:
    """Run a send pipeline on a message, and return the assembled message, or None if a component has consumed it. The
    orchestration declares the pipeline in ``pipelines``.

    Raise PipelineFailure if a component fails."""
    execution = get_execution()
    name = type(pipeline).__name__
    number = _find(execution, "pipelines", pipeline, name)
    components = execution.orchestration.components

    def assemble() -> list[Message]:
        assembled = components.send(number, message)
        return [] if assembled is None else [assembled]

    return next(iter(await _run(f"send pipeline {name}", assemble, message)), None)


def _find(execution: Execution, argument: str, used: object, name: str) -> int:
    """Return the number of a map or pipeline among those that the orchestration declares."""
    declared: Sequence[object] = getattr(execution.orchestration, argument)
    for number, one in enumerate(declared):
        if one is used:
            return number
    raise StateError(
        f"The orchestration {execution.orchestration.name!r} does not declare {name}, so it was not shipped with it.",
        hint=f"Add it to {argument}: @app.orchestration(..., {argument}=[...]).",
    )


async def _run(name: str, work: Callable[[], Iterable[Message]], *arguments: Message) -> list[Message]:
    """Run a map or a pipeline, once. The new messages have ids that are derived from the journal."""
    execution = get_execution()
    limit = execution.orchestration.journal_limits.size
    max_size = limit * 3 // 4  # the journal has bytes as base64

    def call(key: uuid.UUID) -> list[Message]:
        results: list[Message] = []
        size = 0
        for result in work():
            size += sum(part.body.size for part in result.parts)
            if size > max_size:
                raise PipelineFailure(
                    f"{name}: the result has more than {max_size:,} bytes.",
                    why=f"The journal of the instance stores it, and can have {limit:,} characters.",
                    hint="Process large messages at ports, or raise journal_limits.",
                )
            results.append(replace(result, message_id=uuid.uuid5(key, f"document {len(results)}")))
        return results

    digest = digest_call(_run, (name, *arguments))
    found: Any = await execution.run_step(name, call, None, digest=digest, is_pure=True)
    messages: list[Message] = found
    return messages
