"""What every send adapter has to keep, whatever its protocol; a test class per adapter inherits it.

class TestFile(DeliveringAdapterConformance):
    @pytest.fixture
    def other_side(self, tmp_path: Path) -> OtherSide: ...
"""

from __future__ import annotations

import pickle
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from postroom import adapters
from postroom.adapters import kinds
from postroom.errors import DeliveryFailure, DeliveryRefused, PostroomError, Unavailable
from postroom.message import Message, Part


class OtherSide(Protocol):
    """Where the messages go, as the tests see it."""

    definition: adapters.PortAdapter

    def received(self) -> list[bytes]:
        """The content of everything that has arrived, in any order."""
        ...

    def break_down(self) -> None:
        """From now on nothing can be delivered."""
        ...

    def mend(self) -> None: ...


@dataclass(frozen=True)
class Pieces:
    """A body that arrives in pieces, and may announce another size than it has, or fail on the way."""

    pieces: tuple[bytes, ...]
    announced: int | None = None
    failure: PostroomError | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces)) if self.announced is None else self.announced

    def chunks(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.failure is not None:
            raise self.failure


def attempt(number: int = 1) -> adapters.Attempt:
    return adapters.Attempt(instance_id=uuid.uuid4(), number=number)


class SendAdapterConformance:
    """The life of an adapter, and what it does when the body cannot be read."""

    @pytest.fixture
    def other_side(self) -> OtherSide:
        raise NotImplementedError

    @pytest.fixture
    def adapter(self, other_side: OtherSide, tmp_path: Path) -> Iterator[adapters.SendAdapter]:
        adapter = adapters.build(other_side.definition, tmp_path)
        adapter.open()
        yield adapter
        adapter.close()

    def test_its_definition_is_good_and_survives_being_stored(self, other_side: OtherSide) -> None:
        definition = other_side.definition
        assert definition.problems() == []
        assert kinds.load_port_adapter(definition.model_dump(mode="json")) == definition
        assert pickle.loads(pickle.dumps(definition)) == definition

    def test_it_may_be_closed_twice_and_without_having_been_opened(self, other_side: OtherSide, tmp_path: Path) -> None:
        adapter = adapters.build(other_side.definition, tmp_path)
        adapter.close()
        adapter.open()
        adapter.close()
        adapter.close()

    def test_what_the_body_raises_passes_through_and_the_adapter_goes_on(self, adapter: adapters.SendAdapter) -> None:
        broken = Pieces((b"half",), announced=8, failure=Unavailable("the MessageBox is away"))
        with pytest.raises(Unavailable):
            adapter.send(Message.of(broken), attempt())
        adapter.send(Message.of(b"whole"), attempt())


class DeliveringAdapterConformance(SendAdapterConformance):
    """What arrives on the other side, and what does not."""

    @pytest.mark.parametrize("size", [0, 1, 1_000, 1 << 20])
    def test_the_body_arrives_as_it_is(self, adapter: adapters.SendAdapter, other_side: OtherSide, size: int) -> None:
        content = random.Random(size).randbytes(size)
        adapter.send(Message.of(content), attempt())
        assert other_side.received() == [content]

    def test_a_body_in_pieces_arrives_whole(self, adapter: adapters.SendAdapter, other_side: OtherSide) -> None:
        pieces = tuple(random.Random(n).randbytes(70_000) for n in range(40))
        adapter.send(Message.of(Pieces((*pieces, b""))), attempt())
        assert other_side.received() == [b"".join(pieces)]

    def test_only_the_body_part_is_sent(self, adapter: adapters.SendAdapter, other_side: OtherSide) -> None:
        note = Part(name="note", body=Pieces((b"not this",)))
        adapter.send(Message.of(b"this", parts=[note]), attempt())
        assert other_side.received() == [b"this"]

    def test_a_message_without_a_body_is_refused_for_good(
        self, adapter: adapters.SendAdapter, other_side: OtherSide
    ) -> None:
        with pytest.raises(DeliveryRefused):
            adapter.send(Message.of(), attempt())
        assert other_side.received() == []

    def test_many_threads_send_at_once(self, adapter: adapters.SendAdapter, other_side: OtherSide) -> None:
        contents = [f"{n}:".encode() * 1_000 for n in range(60)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda content: adapter.send(Message.of(content), attempt()), contents))
        assert sorted(other_side.received()) == sorted(contents)

    def test_a_failure_is_transient_says_why_and_is_over_when_its_cause_is(
        self, adapter: adapters.SendAdapter, other_side: OtherSide
    ) -> None:
        message = Message.of(b"stubborn")
        other_side.break_down()
        with pytest.raises(DeliveryFailure) as caught:
            adapter.send(message, attempt())
        assert caught.value.transient
        assert caught.value.why
        other_side.mend()
        adapter.send(message, attempt(2))
        assert other_side.received() == [b"stubborn"]

    def test_an_adapter_opens_although_the_other_side_is_away(self, other_side: OtherSide, tmp_path: Path) -> None:
        other_side.break_down()
        adapter = adapters.build(other_side.definition, tmp_path)
        adapter.open()
        other_side.mend()
        adapter.send(Message.of(b"late"), attempt())
        adapter.close()
        assert other_side.received() == [b"late"]

    @pytest.mark.parametrize(
        "body",
        [
            Pieces((b"half",), announced=8, failure=Unavailable("the MessageBox is away")),
            Pieces((b"short",), announced=8),
            Pieces((b"much ", b"too long"), announced=8),
        ],
        ids=["fails", "too short", "too long"],
    )
    def test_a_body_that_is_not_what_it_said_does_not_arrive(
        self, adapter: adapters.SendAdapter, other_side: OtherSide, body: Pieces
    ) -> None:
        with pytest.raises(PostroomError) as caught:
            adapter.send(Message.of(body), attempt())
        assert caught.value.transient
        adapter.send(Message.of(b"whole"), attempt())
        assert other_side.received() == [b"whole"]
