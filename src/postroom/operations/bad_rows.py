"""Save the bad rows of a file as a file, and resume them with the lines of the corrected file.

saved = save_bad_rows(connection, instance_id, Path("bad.csv"))
resumed = resume_bad_rows(connection, Path("bad.csv"))

A second file, ``bad.csv.instances``, contains the instance and a digest of each line. So a line is resumed as the row
that it was saved from, even if other rows have been resumed, terminated or suspended since.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.agent.streaming.suspended_context import SuspendedForm
from postroom.errors import StateError, format_count
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import Instance, get_instance
from postroom.messagebox.storage.spool import get_message, read_suspended_rows
from postroom.operations.instances.changes import resume_with_bodies
from postroom.pipelines import Rows
from postroom.pipelines.documents.disassembled_batch import Form
from postroom.pipelines.rows.document import is_corrected_as_line
from postroom.ports.receive_locations import read_receive_locations
from postroom.spark.bulk.task import SPLIT_START
from postroom.system_properties import BTS, FILE

_BATCH_SIZE = 500
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class SavedRows:
    """The bad rows that were saved, and the file that they come from."""

    rows: int
    source: str


@dataclass(frozen=True, kw_only=True)
class ResumedRows:
    """What became of the lines of a corrected file."""

    resumed: int = 0
    unchanged: int = 0
    """Lines that are empty or as they were saved. Their rows stay suspended."""
    not_suspended: int = 0
    """Rows that were resumed or terminated since they were saved."""


@dataclass(frozen=True, kw_only=True)
class _BadRow:
    instance_id: uuid.UUID
    position: tuple[int, int]
    line: bytes


def save_bad_rows(connection: Connection, instance_id: uuid.UUID, target: Path) -> SavedRows:
    """Write all suspended rows of a file to ``target``, one per line, in order and with the header of the file.

    ``instance_id`` is one of these rows. Raise StateError if its rows are not lines, or if ``target`` exists."""
    instance = get_instance(connection, instance_id)
    context = get_message(connection, instance.message_id).context
    source = str(context.get(FILE.ReceivedFileName, ""))
    rows = sorted(_read_rows(connection, context.get(BTS.InterchangeID)), key=lambda row: row.position)
    header = _check_lines(connection, instance, rows)
    manifest = {
        "source": source,
        "header": header is not None,
        "rows": [{"instance_id": str(row.instance_id), "digest": _digest(row.line)} for row in rows],
    }
    lines = [*([] if header is None else [header]), *(row.line for row in rows)]
    _write_new(_manifest_path(target), json.dumps(manifest, indent=1).encode())
    _write_new(target, b"".join(line + b"\n" for line in lines))
    return SavedRows(rows=len(rows), source=source)


def resume_bad_rows(connection: Connection, corrected: Path) -> ResumedRows:
    """Resume the rows whose lines were changed in a file that ``save_bad_rows`` has written.

    The rows are resumed in transactions of some hundred. After an interruption, run it again: a row that was resumed is
    not suspended any more. A row that is still bad is suspended again."""
    manifest = _read_manifest(corrected)
    lines = _read_lines(corrected)[1 if manifest["header"] else 0 :]
    if len(lines) != len(manifest["rows"]):
        raise StateError(
            f"{corrected} has {format_count(len(lines), 'row')}, but {len(manifest['rows']):,} were saved.",
            why="Each line belongs to the row that it was saved from.",
            hint="Keep the lines in order. To leave a row suspended, keep its line as it is, or leave it empty.",
        )
    changed = {
        uuid.UUID(row["instance_id"]): line
        for row, line in zip(manifest["rows"], lines, strict=True)
        if line.strip() and _digest(line) != row["digest"]
    }
    ids = list(changed)
    resumed = 0
    for start in range(0, len(ids), _BATCH_SIZE):
        batch = {instance_id: changed[instance_id] for instance_id in ids[start : start + _BATCH_SIZE]}
        resumed += resume_with_bodies(connection, batch)
    return ResumedRows(resumed=resumed, unchanged=len(lines) - len(ids), not_suspended=len(ids) - resumed)


def _read_rows(connection: Connection, interchange_id: object) -> Iterator[_BadRow]:
    """Yield the rows of a file that could not be read, and that can be resumed."""
    for row in read_suspended_rows(connection, interchange_id):
        context = row.context
        if context.get(SuspendedForm) == Form.RECEIVED.value and context.get(SPLIT_START) is not None:
            position = int(str(context[SPLIT_START])), int(str(context[BTS.InterchangeSequenceNumber]))
            yield _BadRow(instance_id=row.instance_id, position=position, line=row.body)


def _check_lines(connection: Connection, instance: Instance, rows: list[_BadRow]) -> bytes | None:
    """Return the header of the file, or None if it has none. Raise StateError if the rows cannot be saved as lines."""
    if instance.instance_id not in [row.instance_id for row in rows]:
        raise StateError(
            f"Instance {instance.instance_id} is not a bad row of a bulk file that can be resumed.",
            hint="See 'postroom instance show'.",
        )
    locations = {location.location_id: location for location in read_receive_locations(connection)}
    location = locations.get(instance.service_id) if instance.service_id else None
    pipeline = None if location is None else location.pipeline
    if not isinstance(pipeline, Rows) or pipeline.source is None or not is_corrected_as_line(pipeline):
        raise StateError(
            "The rows of this file are not corrected as lines.", hint="Correct and resume each instance alone."
        )
    several = [row for row in rows if b"\n" in row.line or b"\r" in row.line]
    if several:
        raise StateError(
            f"The file has {format_count(len(several), 'bad row')} with line ends.",
            hint=f"Correct and resume each instance alone, first {several[0].instance_id}.",
        )
    if not pipeline.source.has_header:
        return None
    return pipeline.source.separator.join(pipeline.source.types).encode(pipeline.source.encoding)


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def _manifest_path(rows: Path) -> Path:
    return rows.with_name(f"{rows.name}.instances")


def _write_new(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise StateError(f"{path} already exists.", hint="Remove it, or choose another file.") from None
    except OSError as error:
        raise StateError(f"{path} cannot be written.", why=f"{error.strerror}.", hint="Choose another file.") from None


def _read_manifest(corrected: Path) -> dict[str, Any]:
    path = _manifest_path(corrected)
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path} cannot be read.",
            why=str(error),
            hint="Both files of 'postroom instance save-rows' are needed. Keep their names.",
        ) from None
    return manifest


def _read_lines(corrected: Path) -> list[bytes]:
    """Return the lines without their ends. An editor may have added a byte order mark, or changed the line ends."""
    lines = corrected.read_bytes().removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
    return [line.removesuffix(b"\r") for line in lines]
