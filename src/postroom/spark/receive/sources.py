"""The two sources of receive tasks: claimed files, and the inbox."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from postroom.adapters import File
from postroom.agent.idempotency import read_progress
from postroom.agent.receiving.interchange import Interchange
from postroom.message import Context, FileSlice
from postroom.messagebox import inbox
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.inbox import InboxRow, StoredInterchange
from postroom.spark.intake import file_claims
from postroom.spark.intake.file_claims import FileClaim, FileClaimState
from postroom.spark.intake.published_files import finish_files, is_unchanged
from postroom.system_properties import FILE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ClaimedFiles:
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
            self._delete_claims(connection, gone)
        return ready

    def _delete_claims(self, connection: Connection, gone: Sequence[FileClaim]) -> None:
        progress = read_progress(connection, [claim.interchange_id for claim in gone])
        done = [interchange_id for interchange_id, found in progress.items() if found.done]
        file_claims.delete_file_claims(connection, done)
        for claim in gone:
            if not progress[claim.interchange_id].done:
                problem = "was removed by another process before it was published."
                file_claims.store_problem(connection, claim, FileClaimState.MISSING, problem)
                _log.warning("%s: %s %s", self.location.name, claim.path, problem)

    def interchange(self, item: FileClaim) -> Interchange:
        return Interchange(
            interchange_id=item.interchange_id,
            body=FileSlice(path=item.path, length=item.size, inode=item.inode),
            context=Context().write(FILE.ReceivedFileName, str(self._folder / item.name)),
        )

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
        _log.error("%s: %s %s", self.location.name, item.name, problem)

    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int:
        return file_claims.record_attempt(connection, interchange_id)

    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None:
        file_claims.undo_attempt(connection, interchange_id)


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """The rows that adapters have stored in the inbox. A row is deleted after it was received."""

    location: ReceiveLocation
    login: Login

    def read(self, connection: Connection, rows: Sequence[InboxRow]) -> list[StoredInterchange]:
        return inbox.read_interchanges(
            connection, [row.interchange_id for row in rows], partial(self.login.connect, "inbox")
        )

    def interchange(self, item: StoredInterchange) -> Interchange:
        return Interchange(interchange_id=item.interchange_id, body=item.body, context=item.context)

    def describe(self, item: StoredInterchange) -> str:
        return f"interchange {item.interchange_id}"

    def is_unchanged(self, item: StoredInterchange) -> bool:
        return True

    def is_waiting(self, row: InboxRow) -> bool:
        return True

    def finish(self, connection: Connection, items: Sequence[StoredInterchange]) -> None:
        inbox.delete_interchanges(connection, [item.interchange_id for item in items])

    def give_back(self, connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> None:
        inbox.return_to_inbox(connection, interchange_ids)

    def quarantine(self, connection: Connection, item: StoredInterchange, error: Exception) -> None:
        problem = f"Interchange {item.interchange_id} could not be received: {type(error).__name__}: {error}"
        inbox.quarantine(connection, item.interchange_id, problem)

    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int:
        return inbox.record_attempt(connection, interchange_id)

    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None:
        inbox.undo_attempt(connection, interchange_id)
