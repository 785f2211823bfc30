"""Streaming lane: from claimed files of JSON lines to committed queue rows on local[2], against COPY by two writers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.copies import RecordedTransaction, copy_with_two_writers, record
from bench.messagebox import MeasuredBox, json_lines, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.agent.streaming.interchange import Interchange
from postroom.files.safe_files import get_inode
from postroom.message import Bytes
from postroom.messagebox.connection import Login
from postroom.messagebox.intake import file_claims
from postroom.spark.receive.stream import start_stream
from tests.support.spark_session import open_session

_FILES, _LINES = 8, 10_000
_MESSAGES = _FILES * _LINES
_PATIENCE_SECONDS = 300.0


def measure() -> Result:
    """Return messages/s of the stream over messages/s of the bare COPY."""
    return measure_against_copy(group="A", bar=0.7)


def measure_against_copy(*, group: str, bar: float) -> Result:
    contents = [b"\n".join(json_lines(_LINES, seed=seed)) for seed in range(_FILES)]
    with measured_box() as box:
        recorded = record(box, [Interchange(interchange_id=uuid.uuid4(), body=Bytes(content)) for content in contents])
        with open_session(box.home, master="local[2]") as session:
            login = Login(url=box.url, user=box.host.role_name)
            query = start_stream(session, box.location, login=login, home=box.home)
            try:
                pairs = measure_alternately(lambda: stream(box, contents, _MESSAGES), lambda: _copy(box, recorded))
            finally:
                query.stop()
    ratio, spread = compute_ratio(pairs)
    ours, bare = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name="streaming lane: JSON lines of 1 KB on local[2], 1,000 subscriptions, 2.5 matches a message,"
        " against COPY of the same rows by two writers",
        group=group,
        measured=ratio,
        bar=bar,
        spread=spread,
        detail=f"{ours:,.0f} against {bare:,.0f} messages/s",
    )


def stream(box: MeasuredBox, contents: Sequence[bytes], messages: int) -> float:
    """Return messages/s, from the claim of the files until every message is committed in its queues."""
    settled = write_claims(box, contents)
    started = time.perf_counter()
    file_claims.number_claims(box.connection, settled)
    while box.one("SELECT count(*) FROM receipts WHERE (outcome->>'done')::boolean") != len(contents):
        if time.perf_counter() - started > _PATIENCE_SECONDS:
            raise TimeoutError("the stream did not publish the files in time")
        time.sleep(0.03)  # polling slows down the measured processes
    elapsed = time.perf_counter() - started
    assert box.one("SELECT count(*) FROM spool") == messages
    while box.one("SELECT count(*) FROM file_claims"):
        time.sleep(0.01)
    box.empty()
    return messages / elapsed


def write_claims(box: MeasuredBox, contents: Sequence[bytes]) -> list[file_claims.SettledFile]:
    """Write files and their file claims, which are not numbered yet."""
    folder = box.home / "in" / ".postroom"
    folder.mkdir(exist_ok=True)
    files: list[tuple[uuid.UUID, str, Path]] = []
    for number, content in enumerate(contents):
        interchange_id = uuid.uuid4()
        path = folder / str(interchange_id)
        path.write_bytes(content)
        files.append((interchange_id, f"{number}.jsonl", path))
    file_claims.insert_file_claims(box.connection, box.location.location_id, files)
    return [
        file_claims.SettledFile(
            interchange_id=one, size=status.st_size, modified_ns=status.st_mtime_ns, inode=get_inode(status)
        )
        for one, status in ((one, path.stat()) for one, _, path in files)
    ]


def _copy(box: MeasuredBox, recorded: list[RecordedTransaction]) -> float:
    elapsed = seconds(lambda: copy_with_two_writers(box, recorded))
    assert box.one("SELECT count(*) FROM spool") == _MESSAGES
    box.empty()
    return _MESSAGES / elapsed
