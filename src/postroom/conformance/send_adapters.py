"""Tests that every send adapter must pass. The test class of each adapter inherits them.

class TestFile(DeliveringAdapterConformance):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination: ...
"""

from __future__ import annotations

import pickle
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import pytest

from postroom import adapters
from postroom.adapters import kinds
from postroom.adapters.contract import BatchSendAdapter
from postroom.errors import DeliveryFailure, DeliveryRefused, PostroomError, Unavailable
from postroom.message import Message, Part


class Destination(Protocol):
    """The destination of the messages: a folder or a server."""

    definition: adapters.SendDefinition

    def read_received(self) -> list[bytes]:
        """Return the contents of all received messages, in any order."""
        ...

    def break_down(self) -> None:
        """Make every delivery fail until ``repair`` is called."""
        ...

    def repair(self) -> None: ...


@dataclass(frozen=True)
class ChunkedBody:
    """A body in chunks. Its announced size may be wrong, and reading it may fail."""

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
    """Building, opening and closing an adapter, and bodies that cannot be read.

    A subclass defines the fixture ``destination``."""

    @pytest.fixture
    def adapter(self, destination: Destination, tmp_path: Path) -> Iterator[adapters.SendAdapter]:
        adapter = adapters.build(destination.definition, tmp_path)
        adapter.open()
        yield adapter
        adapter.close()

    def test_its_definition_is_valid_and_can_be_stored_and_pickled(self, destination: Destination) -> None:
        definition = destination.definition
        assert definition.problems() == []
        assert kinds.load_send_adapter(definition.model_dump(mode="json")) == definition
        assert pickle.loads(pickle.dumps(definition)) == definition

    def test_it_can_be_closed_twice_and_without_an_open(self, destination: Destination, tmp_path: Path) -> None:
        adapter = adapters.build(destination.definition, tmp_path)
        adapter.close()
        adapter.open()
        adapter.close()
        adapter.close()

    def test_an_error_of_the_body_is_raised_and_the_adapter_still_works(self, adapter: adapters.SendAdapter) -> None:
        broken = ChunkedBody((b"half",), announced=8, failure=Unavailable("the MessageBox is unavailable"))
        with pytest.raises(Unavailable):
            adapter.send(Message.of(broken), attempt())
        adapter.send(Message.of(b"whole"), attempt())


class DeliveringAdapterConformance(SendAdapterConformance):
    """The messages that the destination receives."""

    @pytest.mark.parametrize("size", [0, 1, 1_000, 1 << 20])
    def test_the_body_is_delivered_unchanged(
        self, adapter: adapters.SendAdapter, destination: Destination, size: int
    ) -> None:
        content = random.Random(size).randbytes(size)
        adapter.send(Message.of(content), attempt())
        assert destination.read_received() == [content]

    def test_a_body_in_chunks_is_delivered_complete(
        self, adapter: adapters.SendAdapter, destination: Destination
    ) -> None:
        pieces = tuple(random.Random(n).randbytes(70_000) for n in range(40))
        adapter.send(Message.of(ChunkedBody((*pieces, b""))), attempt())
        assert destination.read_received() == [b"".join(pieces)]

    def test_only_the_body_part_is_sent(self, adapter: adapters.SendAdapter, destination: Destination) -> None:
        note = Part(name="note", body=ChunkedBody((b"not this",)))
        adapter.send(Message.of(b"this", parts=[note]), attempt())
        assert destination.read_received() == [b"this"]

    def test_a_message_without_a_body_is_a_permanent_failure(
        self, adapter: adapters.SendAdapter, destination: Destination
    ) -> None:
        with pytest.raises(DeliveryRefused):
            adapter.send(Message.of(), attempt())
        assert destination.read_received() == []

    def test_many_threads_can_send_at_once(self, adapter: adapters.SendAdapter, destination: Destination) -> None:
        contents = [f"{n}:".encode() * 1_000 for n in range(60)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda content: adapter.send(Message.of(content), attempt()), contents))
        assert sorted(destination.read_received()) == sorted(contents)

    def test_a_failure_is_transient_has_a_reason_and_ends_with_its_cause(
        self, adapter: adapters.SendAdapter, destination: Destination
    ) -> None:
        message = Message.of(b"retried")
        destination.break_down()
        with pytest.raises(DeliveryFailure) as caught:
            adapter.send(message, attempt())
        assert caught.value.transient
        assert caught.value.why
        destination.repair()
        adapter.send(message, attempt(2))
        assert destination.read_received() == [b"retried"]

    def test_an_adapter_can_be_opened_while_its_destination_is_down(
        self, destination: Destination, tmp_path: Path
    ) -> None:
        destination.break_down()
        adapter = adapters.build(destination.definition, tmp_path)
        adapter.open()
        destination.repair()
        adapter.send(Message.of(b"late"), attempt())
        adapter.close()
        assert destination.read_received() == [b"late"]

    @pytest.mark.parametrize(
        "body",
        [
            ChunkedBody((b"half",), announced=8, failure=Unavailable("the MessageBox is unavailable")),
            ChunkedBody((b"short",), announced=8),
            ChunkedBody((b"much ", b"too long"), announced=8),
        ],
        ids=["fails", "too short", "too long"],
    )
    def test_a_body_with_another_size_than_announced_is_not_delivered(
        self, adapter: adapters.SendAdapter, destination: Destination, body: ChunkedBody
    ) -> None:
        with pytest.raises(PostroomError) as caught:
            adapter.send(Message.of(body), attempt())
        assert caught.value.transient
        adapter.send(Message.of(b"whole"), attempt())
        assert destination.read_received() == [b"whole"]


class BatchAdapterConformance(DeliveringAdapterConformance):
    """Batches of messages. Each message has its own result."""

    @pytest.fixture
    def batches(self, adapter: adapters.SendAdapter) -> BatchSendAdapter:
        return cast(BatchSendAdapter, adapter)

    def test_a_batch_is_delivered_complete(self, batches: BatchSendAdapter, destination: Destination) -> None:
        contents = [str(number).encode() for number in range(destination.definition.max_batch)]
        results = batches.send_batch([(Message.of(content), attempt()) for content in contents])
        assert list(results) == [None] * len(contents)
        assert sorted(destination.read_received()) == sorted(contents)

    def test_a_message_that_fails_does_not_fail_the_others_of_its_batch(
        self, batches: BatchSendAdapter, destination: Destination
    ) -> None:
        """SND-07."""
        unreadable = ChunkedBody((b"half",), announced=8, failure=Unavailable("the MessageBox is unavailable"))
        batch = [Message.of(b"first"), Message.of(), Message.of(unreadable), Message.of(b"last")]
        results = batches.send_batch([(message, attempt()) for message in batch])
        assert [type(result) for result in results] == [type(None), DeliveryRefused, Unavailable, type(None)]
        assert sorted(destination.read_received()) == [b"first", b"last"]

    def test_no_message_counts_as_sent_if_the_destination_is_down(
        self, batches: BatchSendAdapter, destination: Destination
    ) -> None:
        """SND-08: the batch fails with an exception, or each of its messages has an error."""
        batch = [(Message.of(b"one"), attempt()), (Message.of(b"two"), attempt())]
        destination.break_down()
        try:
            results = batches.send_batch(batch)
        except DeliveryFailure:
            results = []
        assert not any(result is None for result in results)
        destination.repair()
        assert list(batches.send_batch(batch)) == [None, None]
        assert sorted(destination.read_received()) == [b"one", b"two"]

    def test_a_repeated_batch_is_delivered_once_or_recognisable(
        self, batches: BatchSendAdapter, destination: Destination
    ) -> None:
        batch = [(Message.of(b"one"), attempt()), (Message.of(b"two"), attempt())]
        assert list(batches.send_batch(batch)) == [None, None]
        assert list(batches.send_batch(batch)) == [None, None]
        assert set(destination.read_received()) == {b"one", b"two"}
