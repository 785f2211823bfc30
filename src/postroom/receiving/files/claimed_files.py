"""The claimed files of a receive location, as a source of receive tasks.

After its messages are committed a file is removed or archived. A file that was written to after it was published is not
removed. It is moved to the folder ``kept``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from postroom.adapters import File
from postroom.agent.streaming.interchange import Interchange
from postroom.files.safe_files import sync_folder
from postroom.message import Context, FileSlice
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.file_pause import lock_files_in_transaction
from postroom.messagebox.storage.receipts import read_progress
from postroom.messagebox.streams import file_claims
from postroom.messagebox.streams.file_claims import FileClaim, FileClaimState
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.archiving import add_to_archive, remove_marker
from postroom.receiving.files.watched_folder import FileStatus
from postroom.receiving.task import ReceiveSource
from postroom.system_properties import FILE

_log = logging.getLogger(__name__)

#: The folder next to the private folders of the locations, for files that were written to after they were published.
KEPT_FOLDER = "kept"


@dataclass(frozen=True, kw_only=True)
class ClaimedFiles(ReceiveSource[FileClaim, FileClaim]):
    """The files that a location has claimed. A file is removed or archived after it was received."""

    location: ReceiveLocation
    home: Path

    @cached_property
    def _folder(self) -> Path:
        return self._file.folder(self.home)

    @cached_property
    def _archive(self) -> Path | None:
        return self._file.archive_folder(self.home)

    @property
    def _file(self) -> File:
        assert isinstance(self.location.adapter, File)
        return self.location.adapter

    def read(self, connection: Connection, rows: Sequence[FileClaim]) -> list[FileClaim]:
        """Return the claims whose files have not changed. A file that was written to since has to settle again."""
        ready: list[FileClaim] = []
        changed: list[uuid.UUID] = []
        gone: list[FileClaim] = []
        for claim in rows:
            try:
                if is_unchanged(claim):
                    ready.append(claim)
                else:
                    changed.append(claim.interchange_id)
            except FileNotFoundError:
                gone.append(claim)
        if changed:
            self.give_back(connection, changed)
        if gone:
            self._handle_missing_files(connection, gone)
        return ready

    def _handle_missing_files(self, connection: Connection, gone: Sequence[FileClaim]) -> None:
        """Delete the claims of published files. Store the problem of a file that is missing before it was published."""
        progress = read_progress(connection, [claim.interchange_id for claim in gone])
        done = [interchange_id for interchange_id, found in progress.items() if found.done]
        file_claims.delete_file_claims(connection, done)
        for claim in gone:
            if not progress[claim.interchange_id].done:
                problem = "was removed by another process before it was published."
                file_claims.store_problem(connection, claim, FileClaimState.MISSING, problem)
                _log.warning("%s: %s %s", self.location.name, claim.path, problem, extra=claim.log_ids)

    def interchange(self, item: FileClaim) -> Interchange:
        return Interchange(
            interchange_id=item.interchange_id,
            body=FileSlice(path=item.path, length=item.size, inode=item.inode),
            context=Context().write(FILE.ReceivedFileName, str(self._folder / item.name)),
        )

    def get_arrival(self, item: FileClaim) -> float:
        return item.modified_ns / 1e9

    def describe(self, item: FileClaim) -> str:
        return item.name

    def is_unchanged(self, item: FileClaim) -> bool:
        try:
            return is_unchanged(item)
        except FileNotFoundError:
            return True  # it cannot be suspended either, and its claim is kept with the problem

    def is_waiting(self, row: FileClaim) -> bool:
        return row.path.exists()

    def finish(self, connection: Connection, items: Sequence[FileClaim]) -> None:
        for problem in finish_files(connection, items, self._archive):
            _log.warning("%s", problem)

    def give_back(self, connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> None:
        """Have files settle again, so that they are received later. In an ordered location all claimed files have to
        settle again, so that they stay after these."""
        if self.location.adapter.is_ordered:
            file_claims.reset_all_claims(connection, self.location.location_id)
        else:
            file_claims.reset_claims(connection, interchange_ids)

    def quarantine(self, connection: Connection, item: FileClaim, error: Exception) -> None:
        if self.location.adapter.is_ordered:
            raise error  # no other file may overtake it: the stream is restarted and receives it again
        problem = file_claims.format_problem(item, f"{type(error).__name__}: {error}")
        file_claims.store_problem(connection, item, FileClaimState.FAILED, problem)
        _log.error("%s: %s %s", self.location.name, item.name, problem, extra=item.log_ids)

    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int:
        return file_claims.record_attempt(connection, interchange_id)

    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None:
        file_claims.undo_attempt(connection, interchange_id)


def finish_files(connection: Connection, published: Sequence[FileClaim], archive: Path | None) -> list[str]:
    """Remove or archive published files and delete their claims. Return the problems. The claims of files with a
    problem stay.

    This can be repeated after a crash at any point, because a missing file has been finished before. While a backup
    copies the files, the claims are only marked as published. The next scan of the location finishes them.
    """
    with connection.transaction():
        if lock_files_in_transaction(connection):
            return _finish(connection, published, archive)
        file_claims.mark_published(connection, [claim.interchange_id for claim in published])
        return []


def _finish(connection: Connection, published: Sequence[FileClaim], archive: Path | None) -> list[str]:
    done, problems = [], []
    for claim in published:
        try:
            kept = _remove_or_keep(claim, archive)
        except OSError as error:
            problem = f"{claim.path} is published but cannot be removed: {error.strerror or error}."
            file_claims.store_problem(connection, claim, FileClaimState.PUBLISHED, problem)
            problems.append(problem)
            continue
        if kept is None:
            done.append(claim.interchange_id)
        else:
            problem = f"{claim.name} was written to after it was published. The changed file is kept as {kept}."
            file_claims.store_problem(connection, replace(claim, path=kept), FileClaimState.PUBLISHED, problem)
            problems.append(problem)
    if done:
        file_claims.delete_file_claims(connection, done)
    return problems


def is_unchanged(claim: FileClaim) -> bool:
    """Return True if the file has not changed since it was claimed. Raise FileNotFoundError if it is gone."""
    status = FileStatus.from_stat(claim.path.lstat())
    return (
        status.is_regular
        and (status.size, status.modified_ns) == (claim.size, claim.modified_ns)
        and claim.inode in (None, status.inode)
    )


def _remove_or_keep(claim: FileClaim, archive: Path | None) -> Path | None:
    """Remove or archive a file. If it has changed, move it and return its new path."""
    try:
        if not is_unchanged(claim):
            return _keep(claim)
        if archive is None:
            claim.path.unlink()
            return None
        copied = add_to_archive(claim, archive)
        kept = None
        if is_unchanged(claim):
            claim.path.unlink()
        else:
            kept = _keep(claim)  # the copy may lack what was written during the copy
        if copied:
            # A crash of the machine must not restore the original without the marker: it would be archived again.
            sync_folder(claim.path.parent)
            remove_marker(claim, archive)
        return kept
    except FileNotFoundError:
        # It was finished before a crash, or by another attempt of the same task.
        if claim.path.exists():
            raise
        if archive is not None:
            remove_marker(claim, archive)
    return None


def _keep(claim: FileClaim) -> Path:
    folder = claim.path.parent.parent / KEPT_FOLDER
    folder.mkdir(0o700, exist_ok=True)
    kept = folder / claim.path.name
    claim.path.rename(kept)
    return kept
