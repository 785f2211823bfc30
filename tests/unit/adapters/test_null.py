"""The adapter that does nothing, but reads all that it is given."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from postroom import adapters
from postroom.conformance.send_adapters import ChunkedBody, Destination, SendAdapterConformance, attempt
from postroom.errors import Unavailable
from postroom.message import Message, Part


@dataclass
class Nowhere:
    definition: adapters.SendDefinition = field(default_factory=adapters.Null)

    def read_received(self) -> list[bytes]:
        return []

    def break_down(self) -> None:
        pass

    def repair(self) -> None:
        pass


class TestNull(SendAdapterConformance):
    @pytest.fixture
    def destination(self) -> Destination:
        return Nowhere()

    def test_it_reads_every_part(self, adapter: adapters.SendAdapter) -> None:
        unreadable = Part(name="second", body=ChunkedBody((), failure=Unavailable("away")))
        with pytest.raises(Unavailable):
            adapter.send(Message.of(b"first", parts=[unreadable]), attempt())

    def test_it_takes_a_message_without_a_body(self, adapter: adapters.SendAdapter) -> None:
        adapter.send(Message.of(), attempt())
