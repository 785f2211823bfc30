"""A stream of rows continues with its recorded checkpoint, or fails with the reason (ADR 0025)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from postroom import pipelines
from postroom.agent.idempotency import unit_for_partition
from postroom.errors import StateError
from postroom.messagebox.connection import Login, connect
from postroom.operations.ports import receive_locations as locations
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.bulk.row_stream import StreamCheckpoint
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location

PURGE = "SELECT purge_receipts('7 days', now() + interval '30 days')"


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    return add_bulk_location(box, None, format="kafka", schema=None, name="topic", pipeline=pipelines.Rows())


@pytest.fixture
def checkpoint(box: Box, location: ReceiveLocation, tmp_path: Path) -> StreamCheckpoint:
    return make_checkpoint(box, location, tmp_path / "home")


def make_checkpoint(box: Box, location: ReceiveLocation, home: Path) -> StreamCheckpoint:
    return StreamCheckpoint(
        login=Login(url=box.url, user=box.host().role_name), location=location, folder=home / str(location.location_id)
    )


def read_checkpoint_id(box: Box) -> uuid.UUID:
    [checkpoint_id] = box.checkpoint_ids()
    return checkpoint_id


def test_a_stream_continues_with_its_checkpoint(box: Box, checkpoint: StreamCheckpoint) -> None:
    checkpoint.start()
    # The format that Spark writes, and reads when the stream starts.
    assert json.loads((checkpoint.checkpoint / "metadata").read_text()) == {"id": str(read_checkpoint_id(box))}
    before = read_checkpoint_id(box)
    checkpoint.start()
    assert read_checkpoint_id(box) == before


def test_a_stream_with_a_missing_checkpoint_does_not_start(
    box: Box, location: ReceiveLocation, checkpoint: StreamCheckpoint, tmp_path: Path
) -> None:
    checkpoint.start()
    other_checkpoint = make_checkpoint(box, location, tmp_path / "another home")
    with pytest.raises(StateError, match=r"checkpoint of .* is not in .*another home") as caught:
        other_checkpoint.start()
    assert "postroom location reset-stream topic" in caught.value.hint
    assert not other_checkpoint.folder.exists()
    before = read_checkpoint_id(box)

    locations.reset_stream(box.connection, "topic")
    with pytest.raises(StateError, match="is being reset"):
        checkpoint.start_batch(0, 1)  # a process that still runs
    other_checkpoint.start()
    assert other_checkpoint.checkpoint_id == read_checkpoint_id(box) != before
    with pytest.raises(StateError, match="is not in"):
        checkpoint.start()


def test_a_restarted_stream_keeps_its_old_checkpoint(box: Box, checkpoint: StreamCheckpoint) -> None:
    checkpoint.start()
    before = read_checkpoint_id(box)
    locations.reset_stream(box.connection, "topic")
    checkpoint.start()
    assert checkpoint.checkpoint_id == read_checkpoint_id(box) != before
    [old_folder] = checkpoint.folder.parent.glob(f"{checkpoint.folder.name}.*")
    assert str(before) in (old_folder / "checkpoint" / "metadata").read_text()


def test_only_a_started_stream_can_be_restarted(box: Box, location: ReceiveLocation) -> None:
    with pytest.raises(StateError, match="has no stream that was started"):
        locations.reset_stream(box.connection, "topic")


def test_an_unrecorded_checkpoint_is_recorded(box: Box, checkpoint: StreamCheckpoint) -> None:
    """The process died before it recorded the checkpoint."""
    checkpoint.checkpoint.mkdir(parents=True)
    (checkpoint.checkpoint / "metadata").write_text('{"id":"7e0ec1a5-7c6b-4c1b-9f0e-000000000001"}')
    checkpoint.start()
    assert str(read_checkpoint_id(box)) == "7e0ec1a5-7c6b-4c1b-9f0e-000000000001"
    (checkpoint.checkpoint / "metadata").write_text("{")
    with pytest.raises(StateError, match="cannot be read"):
        checkpoint.start()


def test_a_repeated_batch_must_have_the_same_partitions(checkpoint: StreamCheckpoint) -> None:
    checkpoint.start()
    checkpoint.start_batch(0, 2)
    checkpoint.start_batch(0, 2)
    with pytest.raises(StateError, match="was started with 2 partitions, and is repeated with 3"):
        checkpoint.start_batch(0, 3)
    checkpoint.start_batch(1, 3)
    with pytest.raises(StateError, match="continues with batch 0, but batch 1 was started"):
        checkpoint.start_batch(0, 2)


def test_the_receipts_of_a_batch_are_kept_until_the_next_batch_starts(box: Box, checkpoint: StreamCheckpoint) -> None:
    """The stream may pause for a long time between two batches."""
    checkpoint.start()
    checkpoint.start_batch(7, 2)
    units = [unit_for_partition(read_checkpoint_id(box), 7, partition) for partition in range(2)]
    for unit in units:
        box.add_receipt(unit)
    assert box.one(PURGE) == 0
    checkpoint.start_batch(8, 0)
    assert box.one(PURGE) == 2


def test_deleting_a_location_deletes_its_stream(box: Box, checkpoint: StreamCheckpoint) -> None:
    checkpoint.start()
    checkpoint.start_batch(0, 2)
    box.delete_all("receive locations")
    assert (box.count("streams"), box.count("stream units")) == (0, 0)


def test_a_host_cannot_start_the_stream_of_another_host(box: Box, location: ReceiveLocation) -> None:
    other = box.add_host("Other")
    with connect(box.url, user=other.role_name) as connection:
        rows = connection.execute("SELECT * FROM start_stream(%s, %s)", (location.location_id, uuid.uuid4()))
        assert rows.fetchall() == []
    assert box.count("streams") == 0
