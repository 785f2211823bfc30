"""A stream of rows goes on with the checkpoint that it has begun with, or says why it cannot (ADR 0025)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from postroom import pipelines
from postroom.agent.identity import unit_for_partition
from postroom.errors import StateError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import connect
from postroom.operations.ports import receive_locations as locations
from postroom.spark.bulk.stream_memory import StreamMemory
from postroom.spark.login import Login
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location

PURGE = "SELECT purge_receipts('7 days', now() + interval '30 days')"


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    return add_bulk_location(box, None, format="kafka", schema=None, name="topic", pipeline=pipelines.Rows())


@pytest.fixture
def memory(box: Box, location: ReceiveLocation, tmp_path: Path) -> StreamMemory:
    return memory_in(box, location, tmp_path / "home")


def memory_in(box: Box, location: ReceiveLocation, home: Path) -> StreamMemory:
    return StreamMemory(
        login=Login(url=box.url, user=box.host().role_name), location=location, folder=home / str(location.location_id)
    )


def known(box: Box) -> uuid.UUID:
    found: uuid.UUID = box.one("SELECT checkpoint_id FROM streams")
    return found


def test_a_stream_goes_on_with_its_checkpoint(box: Box, memory: StreamMemory) -> None:
    memory.begin()
    # As Spark itself writes it, and finds it when the stream starts.
    assert json.loads((memory.checkpoint / "metadata").read_text()) == {"id": str(known(box))}
    before = known(box)
    memory.begin()
    assert known(box) == before


def test_a_checkpoint_that_is_not_there_is_missed(
    box: Box, location: ReceiveLocation, memory: StreamMemory, tmp_path: Path
) -> None:
    memory.begin()
    elsewhere = memory_in(box, location, tmp_path / "another home")
    with pytest.raises(StateError, match=r"its checkpoint is not in .*another home") as caught:
        elsewhere.begin()
    assert "postroom location reset-stream topic" in caught.value.hint
    assert not elsewhere.folder.exists()
    before = known(box)

    locations.reset_stream(box.connection, "topic")
    with pytest.raises(StateError, match="is restarted"):
        memory.begin_batch(0, 1)  # a process that is still at it
    elsewhere.begin()
    assert elsewhere.checkpoint_id == known(box) != before
    with pytest.raises(StateError, match="is not in"):
        memory.begin()


def test_a_restarted_stream_keeps_its_old_checkpoint(box: Box, memory: StreamMemory) -> None:
    memory.begin()
    before = known(box)
    locations.reset_stream(box.connection, "topic")
    memory.begin()
    assert memory.checkpoint_id == known(box) != before
    [kept] = memory.folder.parent.glob(f"{memory.folder.name}.*")
    assert str(before) in (kept / "checkpoint" / "metadata").read_text()


def test_only_a_started_stream_can_be_restarted(box: Box, location: ReceiveLocation) -> None:
    with pytest.raises(StateError, match="has no stream that was started"):
        locations.reset_stream(box.connection, "topic")


def test_a_checkpoint_that_nobody_has_written_down_is(box: Box, memory: StreamMemory) -> None:
    """From before streams were, or of a process that died in between."""
    memory.checkpoint.mkdir(parents=True)
    (memory.checkpoint / "metadata").write_text('{"id":"7e0ec1a5-7c6b-4c1b-9f0e-000000000001"}')
    memory.begin()
    assert str(known(box)) == "7e0ec1a5-7c6b-4c1b-9f0e-000000000001"
    (memory.checkpoint / "metadata").write_text("{")
    with pytest.raises(StateError, match="cannot be read"):
        memory.begin()


def test_a_batch_comes_again_as_it_was_begun(memory: StreamMemory) -> None:
    memory.begin()
    memory.begin_batch(0, 2)
    memory.begin_batch(0, 2)
    with pytest.raises(StateError, match="was begun in 2 partitions, and comes again in 3"):
        memory.begin_batch(0, 3)
    memory.begin_batch(1, 3)
    with pytest.raises(StateError, match="goes on with batch 0, and 1 was begun"):
        memory.begin_batch(0, 2)


def test_the_receipts_of_a_batch_stay_until_the_next_one_begins(box: Box, memory: StreamMemory) -> None:
    """However long the stream stands still in between."""
    memory.begin()
    memory.begin_batch(7, 2)
    units = [unit_for_partition(known(box), 7, partition) for partition in range(2)]
    box.connection.execute("INSERT INTO receipts (unit) SELECT unnest(%s)", (units,))
    assert box.one(PURGE) == 0
    memory.begin_batch(8, 0)
    assert box.one(PURGE) == 2


def test_a_location_that_is_deleted_is_forgotten(box: Box, memory: StreamMemory) -> None:
    memory.begin()
    memory.begin_batch(0, 2)
    box.connection.execute("DELETE FROM receive_locations")
    assert (box.count("streams"), box.count("stream_units")) == (0, 0)


def test_a_host_knows_nothing_of_the_streams_of_another(box: Box, location: ReceiveLocation) -> None:
    other = box.add_host("Other")
    with connect(box.url, user=other.role_name) as connection:
        said = connection.execute("SELECT * FROM begin_stream(%s, %s)", (location.location_id, uuid.uuid4()))
        assert said.fetchall() == []
    assert box.count("streams") == 0
