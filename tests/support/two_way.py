"""Two-way ports for tests: a send adapter that answers, and ports and locations with responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postroom import pipelines
from postroom.adapters import Attempt, SendDefinition
from postroom.adapters.contract import ReceivedResponse
from postroom.message import Bytes, Context, Message
from postroom.pipelines import ReceivePipeline
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.system_properties import HTTP
from tests.support.box import Box
from tests.support.recording_adapter import RecordingAdapter


class AnsweringAdapter(RecordingAdapter):
    """A recording adapter whose receiver answers each message with ``answer``, by default with the message itself."""

    def __init__(self, answer: Callable[[bytes], bytes] = lambda body: body) -> None:
        super().__init__()
        self.answer = answer
        #: The context of the answers.
        self.context = Context().write(HTTP.ResponseStatusCode, 200)

    def build(self, definition: SendDefinition, home: Path) -> AnsweringAdapter:
        return self

    def solicit(self, message: Message, attempt: Attempt) -> ReceivedResponse:
        self.send(message, attempt)
        return ReceivedResponse(
            body=Bytes(self.answer(self.sent[-1].body if message.body is None else message.body.data)),
            context=self.context,
        )


def make_two_way(box: Box, port: str, pipeline: ReceivePipeline | None = None) -> None:
    """Make a send port a solicit-response port."""
    definition = pipeline or pipelines.PassThrough()
    box.set_ports(port, two_way=True, receive_pipeline=definition.model_dump(mode="json"))


def make_location_two_way(box: Box, location: ReceiveLocation) -> ReceiveLocation:
    """Make a receive location one of a request-response receive port."""
    box.connection.execute(
        "UPDATE receive_ports SET definition = definition || '{\"two_way\": true}' WHERE id = %s", (location.port_id,)
    )
    return next(found for found in read_receive_locations(box.connection) if found.name == location.name)
