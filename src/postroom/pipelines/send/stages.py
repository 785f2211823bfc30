"""Runs the stages of a send pipeline: pre-assemble, assemble, encode (SND-01).

Every call of a component has a time limit, and runs on a worker thread. Components are loaded once per thread, because
one object must not process two messages at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from postroom.errors import PipelineFailure
from postroom.message import Bytes, Message, Part
from postroom.pipelines.components.contract import CONSUMED, Assembler, Encoder, PreAssembler, Validator, get_body
from postroom.pipelines.components.stored_component import (
    component_failure,
    component_name,
    load_component,
    run_component,
)
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.send.definition import Send
from postroom.processes.time_limit import TimeLimit
from postroom.temporary_bodies import SpooledSlice, spool

#: The name of a component, and the function that it is called by.
_Step = tuple[str, Callable[[Message], Any]]


class SendStages:
    """The loaded components of a send pipeline. It is safe for threads."""

    def __init__(self, pipeline: Send) -> None:
        self._pipeline = pipeline
        self._loaded = threading.local()

    def run(self, message: Message) -> Message | None:
        """Return the message after all stages, or None if a component consumed it."""
        # The content is read in this thread, which has the claim and notices if the claim is lost.
        read = replace(message, parts=tuple(map(_read_part, message.parts)))
        time_limit = TimeLimit(self._pipeline.seconds)
        [result] = time_limit.iterate(lambda: iter((self._run_stages(read, time_limit),)))
        return result

    def _run_stages(self, message: Message, time_limit: TimeLimit) -> Message | None:
        message_id = message.message_id
        for name, work in self._load_steps(time_limit):
            result = time_limit.call(name, partial(run_component, name, work, message))
            if result is None:
                return None
            try:
                changed = result if isinstance(result, Message) else message.with_body(result)
            except Exception as error:
                raise component_failure(name, error) from error
            # The id stays the same, because components use it and every attempt must have the same result.
            message = replace(changed, message_id=message_id)
        return message

    def _load_steps(self, time_limit: TimeLimit) -> tuple[_Step, ...]:
        steps: tuple[_Step, ...] | None = getattr(self._loaded, "steps", None)
        if steps is None:
            steps = self._loaded.steps = tuple(self._load(time_limit))
        return steps

    def _load(self, time_limit: TimeLimit) -> Iterator[_Step]:
        for declared in (each for stage in self._pipeline.stages.values() for each in stage):
            name = component_name(declared)
            # The import of a user's module may not return, so it has a time limit too.
            yield name, _get_work(time_limit.call(name, partial(load_component, declared, self._pipeline.files)))


def _get_work(component: Any) -> Callable[[Message], Any]:
    match component:
        case PreAssembler():
            return component.prepare
        case Assembler():
            return component.assemble
        case Encoder():
            return component.encode
        case Validator():
            return partial(_validate, component)
        case _:
            return component  # type: ignore[no-any-return]


def _validate(validator: Validator, message: Message) -> Message | None:
    """Return the message if the validator accepts it."""
    if not validator.validates_batches():
        return None if validator.validate_message(message) is CONSUMED else message
    get_body(message)
    for reason in validator.validate_batch(MessageBatch.of(message)).values():
        raise PipelineFailure(reason, hint="Correct the message and resume.") if isinstance(reason, str) else reason
    return message


def _read_part(part: Part) -> Part:
    return part if isinstance(part.body, Bytes | SpooledSlice) else replace(part, body=spool(part.body.chunks()))
