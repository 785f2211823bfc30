"""Tests that every receive adapter must pass. The test class of each adapter inherits them.

class TestFtp(ReceiveAdapterConformance):
    @pytest.fixture
    def source(self, ftp_server: FtpServer) -> Source: ...

They use a MessageBox of their own, in an embedded PostgreSQL.
"""

from __future__ import annotations

import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from postroom import adapters, connect, pipelines
from postroom.adapters import kinds
from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter
from postroom.agent.routing.table import RoutingTable
from postroom.application import Application
from postroom.client.client import Client
from postroom.errors import PostroomError
from postroom.messagebox.connection import connect as connect_messagebox
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.instances import count_suspended
from postroom.messagebox.migrate import migrate
from postroom.operations.deployment.apply import apply
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.polled_location import PolledLocation

#: The name of the application, of its receive port and of its receive location.
_NAME = "Conformance"
_FILTER = f"BTS.ReceivePortName == '{_NAME}'"
_MALFORMED = b"[no JSON"
#: No test ends the server.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class Source(Protocol):
    """The source of interchanges: a folder, a table or a server."""

    definition: adapters.ReceiveDefinition

    def put(self, content: bytes) -> None:
        """Add an interchange with this body."""
        ...

    def count(self) -> int:
        """Return the number of interchanges that are not cleaned up."""
        ...

    def break_down(self) -> None:
        """Make every poll fail until ``repair`` is called."""
        ...

    def repair(self) -> None: ...


class Receiving(Protocol):
    """Receives the interchanges of a source in a MessageBox, and can be killed at some steps."""

    steps: Sequence[str]

    def receive_all(self) -> None:
        """Receive everything that is at the source now."""
        ...

    def kill_at(self, step: str) -> None:
        """Receive until this step, and end there without cleaning up."""
        ...


class _Killed(BaseException):
    """Stands for the kill of the process at a step."""


class _KilledAdapter:
    """An adapter whose process ends at a step of its first batch."""

    def __init__(self, adapter: ReceiveAdapter, step: str) -> None:
        self._adapter = adapter
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def poll(self, limit: int) -> Sequence[Incoming]:
        batch = self._adapter.poll(limit)
        if self._step == "after a poll":
            raise _Killed
        return batch

    def clean_up(self, committed: Sequence[Committed]) -> None:
        if self._step == "before a clean-up":
            raise _Killed
        if self._step == "halfway through a clean-up":
            self._adapter.clean_up(committed[: len(committed) // 2])
            raise _Killed
        self._adapter.clean_up(committed)
        if self._step == "after a clean-up":
            raise _Killed


class PolledReceiving:
    """Receives as a host does, one batch after the other."""

    steps: Sequence[str] = ("after a poll", "before a clean-up", "halfway through a clean-up", "after a clean-up")

    def __init__(self, location: ReceiveLocation, url: str, home: Path) -> None:
        self._open = partial(
            PolledLocation, location, connect=partial(connect_messagebox, url), home=home, routing=RoutingTable()
        )

    def receive_all(self) -> None:
        polled = self._open()
        try:
            # A batch that only has to be cleaned up is followed by a pause, too.
            pauses = 0
            while pauses < 2:
                pauses += polled.step() > 0.0
        finally:
            polled.close()

    def kill_at(self, step: str) -> None:
        polled = self._open()
        adapter = polled.adapter
        polled.adapter = cast(ReceiveAdapter, _KilledAdapter(adapter, step))
        try:
            with pytest.raises(_Killed):
                polled.step()
        finally:
            # The kernel closes the connections of a killed process.
            polled.close()


class ReceivingConformance:
    """What senders can rely on: nothing is lost, and nothing is published twice.

    A subclass defines the fixture ``source``."""

    @pytest.fixture(scope="class")
    @classmethod
    def messagebox(cls) -> Iterator[str]:
        """Yield the URL of a MessageBox for the tests of this class."""
        folder = Path(tempfile.mkdtemp(prefix="postroom-"))
        server = EmbeddedServer(folder / "postgres", settings=_NOT_DURABLE)
        try:
            server.start()
            migrate(server.url())
            yield server.url()
        finally:
            server.destroy()
            shutil.rmtree(folder, ignore_errors=True)

    @pytest.fixture
    def location(self, source: Source, messagebox: str, tmp_path: Path) -> ReceiveLocation:
        """Deploy a receive location for the source."""
        app = Application(_NAME)
        app.receive_port(_NAME).location(_NAME, source.definition, pipeline=pipelines.Json())
        with connect_messagebox(messagebox) as connection:
            apply(connection, app.definition(), home=tmp_path)
            [location] = read_receive_locations(connection)
        return location

    @pytest.fixture
    def receiving(self, location: ReceiveLocation, messagebox: str, tmp_path: Path) -> Receiving:
        return PolledReceiving(location, messagebox, tmp_path)

    @pytest.fixture
    def published_messages(self, location: ReceiveLocation, messagebox: str) -> Iterator[Published]:
        with connect(messagebox) as client:
            published_messages = Published(client, messagebox)
            yield published_messages
            published_messages.close()

    def test_every_interchange_is_published_once_and_removed_from_its_source(
        self, source: Source, receiving: Receiving, published_messages: Published
    ) -> None:
        contents = [b'{"number": %d}' % number for number in range(12)]
        for content in contents:
            source.put(content)
        receiving.receive_all()
        assert sorted(published_messages.read()) == sorted(contents)
        assert source.count() == 0
        receiving.receive_all()
        assert published_messages.read() == []

    def test_interchanges_with_the_same_content_are_all_published(
        self, source: Source, receiving: Receiving, published_messages: Published
    ) -> None:
        source.put(b'{"number": 1}')
        source.put(b'{"number": 1}')
        receiving.receive_all()
        assert published_messages.read() == [b'{"number": 1}'] * 2
        source.put(b'{"number": 1}')
        receiving.receive_all()
        assert published_messages.read() == [b'{"number": 1}']

    def test_a_malformed_interchange_is_suspended_with_its_content_and_does_not_stop_the_others(
        self, source: Source, receiving: Receiving, published_messages: Published
    ) -> None:
        for content in (b'{"number": 1}', _MALFORMED, b'{"number": 2}'):
            source.put(content)
        suspended = published_messages.count_suspended()
        receiving.receive_all()
        assert sorted(published_messages.read()) == [b'{"number": 1}', b'{"number": 2}']
        assert published_messages.count_suspended() == suspended + 1
        assert source.count() == 0

    def test_after_a_kill_at_any_step_nothing_is_lost_or_published_twice(
        self, source: Source, receiving: Receiving, published_messages: Published
    ) -> None:
        contents = [b'{"number": %d}' % number for number in range(3)]
        for step in receiving.steps:
            for content in contents:
                source.put(content)
            receiving.kill_at(step)
            receiving.receive_all()
            assert sorted(published_messages.read()) == contents, step
            assert source.count() == 0, step


class ReceiveAdapterConformance(ReceivingConformance):
    """The contract of a receive adapter."""

    @pytest.fixture
    def make_adapter(self, source: Source, tmp_path: Path) -> Callable[[], ReceiveAdapter]:
        return partial(source.definition.make_receiver, tmp_path)

    @pytest.fixture
    def adapter(self, make_adapter: Callable[[], ReceiveAdapter]) -> Iterator[ReceiveAdapter]:
        adapter = make_adapter()
        adapter.open()
        yield adapter
        adapter.close()

    def test_its_definition_is_valid_and_can_be_stored_and_pickled(self, source: Source) -> None:
        definition = source.definition
        assert [*definition.problems(), *definition.receive_problems()] == []
        assert kinds.load_receive_adapter(definition.model_dump(mode="json")) == definition
        assert pickle.loads(pickle.dumps(definition)) == definition

    def test_it_can_be_closed_twice_and_without_an_open(self, make_adapter: Callable[[], ReceiveAdapter]) -> None:
        adapter = make_adapter()
        adapter.close()
        adapter.open()
        adapter.close()
        adapter.close()

    @pytest.mark.parametrize("size", [0, 1, 1_000, 1 << 20])
    def test_the_body_is_received_unchanged(self, source: Source, adapter: ReceiveAdapter, size: int) -> None:
        content = random.Random(size).randbytes(size)
        source.put(content)
        [incoming] = adapter.poll(10)
        assert b"".join(incoming.body.chunks()) == content
        assert incoming.body.size == size

    def test_a_poll_without_interchanges_returns_none(self, adapter: ReceiveAdapter) -> None:
        assert list(adapter.poll(10)) == []

    def test_a_poll_returns_no_more_than_its_limit(self, source: Source, adapter: ReceiveAdapter) -> None:
        for number in range(5):
            source.put(b"%d" % number)
        received: list[bytes] = []
        while batch := adapter.poll(2):
            assert len(batch) <= 2
            received += [b"".join(incoming.body.chunks()) for incoming in batch]
            adapter.clean_up([Committed(incoming=incoming) for incoming in batch])
        assert sorted(received) == [b"0", b"1", b"2", b"3", b"4"]

    def test_interchanges_that_are_released_come_again_with_the_same_keys(
        self, source: Source, adapter: ReceiveAdapter
    ) -> None:
        source.put(b"one")
        source.put(b"two")
        first = adapter.poll(10)
        adapter.release(first)
        assert source.count() == 2
        again = adapter.poll(10)
        assert [incoming.key for incoming in again] == [incoming.key for incoming in first]
        assert len({incoming.key for incoming in first}) == 2

    def test_another_process_gets_what_was_not_cleaned_up_with_the_same_keys(
        self, source: Source, make_adapter: Callable[[], ReceiveAdapter]
    ) -> None:
        source.put(b"one")
        source.put(b"two")
        first = make_adapter()
        first.open()
        before = [incoming.key for incoming in first.poll(10)]
        first.close()
        second = make_adapter()
        second.open()
        batch = second.poll(10)
        assert [incoming.key for incoming in batch] == before
        second.clean_up([Committed(incoming=incoming, suspended=True) for incoming in batch])
        second.close()
        assert source.count() == 0

    def test_only_what_was_committed_is_cleaned_up(self, source: Source, adapter: ReceiveAdapter) -> None:
        source.put(b"one")
        source.put(b"two")
        first, second = adapter.poll(10)
        adapter.release([first])
        adapter.clean_up([Committed(incoming=second)])
        assert source.count() == 1
        assert [incoming.key for incoming in adapter.poll(10)] == [first.key]

    def test_an_equal_interchange_that_comes_later_has_another_key(
        self, source: Source, adapter: ReceiveAdapter
    ) -> None:
        source.put(b"same")
        [first] = adapter.poll(10)
        adapter.clean_up([Committed(incoming=first)])
        source.put(b"same")
        [second] = adapter.poll(10)
        assert second.key != first.key

    def test_a_source_that_is_down_is_an_error_with_a_reason_and_the_adapter_works_afterwards(
        self, source: Source, make_adapter: Callable[[], ReceiveAdapter]
    ) -> None:
        source.put(b"one")
        source.break_down()
        adapter = make_adapter()
        adapter.open()
        with pytest.raises((PostroomError, OSError)) as caught:
            adapter.poll(10)
        assert str(caught.value)
        source.repair()
        batch = adapter.poll(10)
        assert [b"".join(incoming.body.chunks()) for incoming in batch] == [b"one"]
        adapter.clean_up([Committed(incoming=incoming) for incoming in batch])
        adapter.close()


class Published:
    """The messages that the receive location has published, and the suspended interchanges."""

    def __init__(self, client: Client, url: str) -> None:
        self._url = url
        self._subscription = client.subscribe(_NAME, _FILTER)
        self.read()

    def read(self) -> list[bytes]:
        """Return the bodies of the messages since the last call."""
        bodies = []
        while (received := self._subscription.receive(timeout=0.0)) is not None:
            assert received.message.body is not None
            bodies.append(b"".join(received.message.body.body.chunks()))
            received.complete()
        return bodies

    def count_suspended(self) -> int:
        """Return the number of suspended interchanges."""
        with connect_messagebox(self._url) as connection:
            return sum(one.count for one in count_suspended(connection).values())

    def close(self) -> None:
        self._subscription.close()
