"""Files of a sink: each batch a directory that is there as a whole or not at all, once.

    out/lake/batch=000000000017-3c1c…/region=EU/part-….parquet
    out/lake/_postroom/log/000000000017-3c1c….json             the batches in the order of their numbers
    out/lake/_postroom/staging/                                what is being written; readers look past it

On the machine's own file system a batch is written beside its place and renamed into it: a second attempt finds it
there. Elsewhere (s3a://, hdfs://) a directory cannot be renamed in one step, so that each attempt writes a directory of
its own, and the log says which of them counts.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from postroom.clock import system_clock
from postroom.errors import ClaimLost
from postroom.messagebox.streams.sink_batches import SinkBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

PRIVATE = "_postroom"
#: In a directory that stands in the place of a batch which was given up.
_GIVEN_UP = "_given_up_by_"
_A_DAY = 86_400.0


class FileTarget(Protocol):
    """Where the batches of one sink go."""

    def is_there(self, batch: SinkBatch) -> bool:
        """Has an attempt been successful, whether or not that is known to the MessageBox?"""
        ...

    def staging(self, batch: SinkBatch) -> str:
        """Where this attempt writes. Nothing is there that readers would see."""
        ...

    def publish(self, batch: SinkBatch) -> None:
        """What this attempt has written counts from now on; or that of an earlier one still does."""
        ...

    def give_up(self, batch: SinkBatch) -> bool:
        """No attempt so far can publish it from now on, not even one that was taken for dead; False if one has."""
        ...

    def discard(self, batch: SinkBatch) -> None:
        """The batch is given up: what attempts at it have written goes."""
        ...


def name_of(batch: SinkBatch) -> str:
    """By number, so that names sort, and by id: numbers begin anew in another MessageBox."""
    return f"{batch.number:012d}-{batch.batch_id.hex}"


def log_entry(batch: SinkBatch, directory: str) -> bytes:
    """What the log says of a batch. The same at every attempt that could have written it."""
    entry = {"batch": name_of(batch), "number": batch.number, "directory": directory}
    return (json.dumps(entry) + "\n").encode()


class LocalTarget:
    """A folder on a file system that renames directories in one step."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def is_there(self, batch: SinkBatch) -> bool:
        final = self._final(batch)
        # An empty one is none: every batch is at least one file.
        return final.is_dir() and any(final.iterdir()) and _given_up_by(final) is None

    def staging(self, batch: SinkBatch) -> str:
        return str(self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}")

    def publish(self, batch: SinkBatch) -> None:
        final = self._final(batch)
        if not self.is_there(batch):
            written = Path(self.staging(batch))
            _sync(written)
            self._make_room(batch)
            # Fails if a late attempt was there first: a directory with something in it is never replaced.
            written.rename(final)
        _sync_folder(self._folder)
        self._log(batch, final.name)
        self.discard(batch)
        self._forget_what_was_given_up()

    def give_up(self, batch: SinkBatch) -> bool:
        """Its place is taken by a directory that readers look past, onto which no attempt can be renamed."""
        final = self._final(batch)
        try:
            (self._private("given_up") / final.name).touch()
            stone = self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}-given-up"
            stone.mkdir(exist_ok=True)
            (stone / f"{_GIVEN_UP}{batch.attempt:06d}").touch()
            _sync(stone)
            with suppress(OSError):  # something is there: a batch, or what an earlier attempt has left on giving up
                stone.rename(final)
            if _given_up_by(final) is not None:
                (final / f"{_GIVEN_UP}{batch.attempt:06d}").touch()
        except OSError as error:
            _log.warning("the place of batch %d cannot be taken: %s", batch.number, error)
        return not self.is_there(batch)

    def discard(self, batch: SinkBatch) -> None:
        for left_over in self._private("staging").glob(f"{batch.batch_id.hex}-*"):
            shutil.rmtree(left_over, ignore_errors=True)

    def _make_room(self, batch: SinkBatch) -> None:
        """Whoever gave the batch up and died before that counted has left its place taken; not for a later attempt."""
        final = self._final(batch)
        given_up_by = _given_up_by(final)
        if given_up_by is None:
            return
        if given_up_by >= batch.attempt:
            raise ClaimLost(f"Batch {batch.number} was given up by another process.")
        final.rename(self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}-room")

    def _forget_what_was_given_up(self) -> None:
        """After a day nobody is left who could have been late."""
        for entry in self._private("given_up").iterdir():
            if system_clock().timestamp() - entry.stat().st_mtime < _A_DAY:
                continue
            final = self._folder / entry.name
            if _given_up_by(final) is not None:
                gone = self._private("staging") / f"{entry.name}-gone"
                final.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            entry.unlink(missing_ok=True)

    def _final(self, batch: SinkBatch) -> Path:
        return self._folder / f"batch={name_of(batch)}"

    def _private(self, name: str) -> Path:
        folder = self._folder / PRIVATE / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _log(self, batch: SinkBatch, directory: str) -> None:
        entry = self._private("log") / f"{name_of(batch)}.json"
        unfinished = entry.with_name(f".{entry.name}-{batch.attempt}")
        with unfinished.open("wb") as file:
            file.write(log_entry(batch, directory))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(entry)
        _sync_folder(entry.parent)


class HadoopTarget:
    """A place that Hadoop's file systems reach. What counts is what the log says."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        self._session = session
        self._uri = uri

    def is_there(self, batch: SinkBatch) -> bool:
        path, system = self._open(self._entry(batch))
        if not system.exists(path):
            return False
        # One that a crash cut short does not count: its last character is missing. A store that encrypts or pads what
        # it is given tells another length; there it has to be read.
        if system.getFileStatus(path).getLen() == len(self._line(batch)):
            return True
        return _is_whole(self._read(path, system), batch)

    def staging(self, batch: SinkBatch) -> str:
        return f"{self._uri}/{self._directory(batch)}"

    def publish(self, batch: SinkBatch) -> None:
        if self.is_there(batch):
            return
        self._enter(batch)
        self._remove(batch, range(1, batch.attempt))

    def give_up(self, batch: SinkBatch) -> bool:
        # A late attempt could still be entered, in the moment before the MessageBox knows.
        return not self.is_there(batch)

    def discard(self, batch: SinkBatch) -> None:
        self._remove(batch, range(1, batch.attempt + 1))

    def _enter(self, batch: SinkBatch) -> None:
        path, system = self._open(self._entry(batch))
        # Without overwriting, unless it was cut short: of two attempts at once only one can be entered.
        stream = system.create(path, bool(system.exists(path)))
        try:
            stream.write(bytearray(self._line(batch)))
        finally:
            stream.close()

    def _read(self, path: Any, system: Any) -> bytes:
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes())
        except Py4JJavaError as error:
            name = "org.apache.hadoop.fs.ChecksumException"
            if not is_instance_of(self._session._sc._gateway, error.java_exception, name):
                raise
            return b""  # the end of it is missing
        finally:
            stream.close()

    def _remove(self, batch: SinkBatch, attempts: range) -> None:
        """What lost attempts have written; nobody counts it, but it takes room."""
        for attempt in attempts:
            path, system = self._open(f"{self._uri}/{self._directory(replace(batch, attempt=attempt))}")
            system.delete(path, True)

    def _line(self, batch: SinkBatch) -> bytes:
        return log_entry(batch, self._directory(batch))

    def _directory(self, batch: SinkBatch) -> str:
        # Of one length whatever the attempt.
        return f"batch={name_of(batch)}-{batch.attempt:06d}"

    def _entry(self, batch: SinkBatch) -> str:
        return f"{self._uri}/{PRIVATE}/log/{name_of(batch)}.json"

    def _open(self, uri: str) -> tuple[Any, Any]:
        jvm: Any = self._session._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri)
        return path, path.getFileSystem(self._session._jsc.hadoopConfiguration())


def _is_whole(entry: bytes, batch: SinkBatch) -> bool:
    """Whether this is what the log says of the batch, by whichever attempt, to its last character."""
    try:
        said = json.loads(entry)
        return entry.endswith(b"\n") and bool(said["batch"] == name_of(batch))
    except (ValueError, TypeError, KeyError):
        return False


def _given_up_by(final: Path) -> int | None:
    """The last attempt that gave the batch up whose place this is."""
    return max((int(one.name.removeprefix(_GIVEN_UP)) for one in final.glob(f"{_GIVEN_UP}*")), default=None)


def _sync(folder: Path) -> None:
    """To the disk, files before the directories that name them."""
    for entry in folder.iterdir():
        if entry.is_dir():
            _sync(entry)
        else:
            with entry.open("rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
