"""The receive adapter of a watched folder."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from postroom.adapters.contract import Committed, Incoming
from postroom.message import Context, FileSlice
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.messagebox.storage.receipts import read_progress
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.claimed_files import finish_files, is_unchanged
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter, Scan
from postroom.receiving.task import NumberedIncoming
from postroom.system_properties import FILE

_log = logging.getLogger(__name__)


class FileReceiveAdapter(NumberedReceiveAdapter):
    """Receives the files that ``claimer`` has claimed. A file is removed or archived after it was received."""

    def __init__(
        self,
        connection: Connection,
        location: ReceiveLocation,
        home: Path,
        *,
        claimer: FileClaimer | None = None,
        share: Sequence[uuid.UUID] | None = None,
    ) -> None:
        """``claimer`` is None for a receiver that only has a share."""
        super().__init__(connection, location, share=share)
        self._claimer = claimer
        folder = location.watched_folder
        assert folder is not None, "only locations over folders receive files"
        self._folder = folder.folder(home)
        self._archive = folder.archive_folder(home)

    def scan(self) -> Scan:
        assert self._claimer is not None
        return self._claimer.scan()

    def next_scan_in(self, longest: timedelta) -> timedelta:
        assert self._claimer is not None
        return self._claimer.next_scan_in(longest)

    def read(self, interchange_ids: Sequence[uuid.UUID]) -> list[Incoming]:
        """Return the files that have not changed. A file that was written to since has to settle again."""
        ready: list[FileClaim] = []
        changed: list[uuid.UUID] = []
        gone: list[FileClaim] = []
        for claim in file_claims.read_claims(self._connection, interchange_ids):
            try:
                if is_unchanged(claim):
                    ready.append(claim)
                else:
                    changed.append(claim.interchange_id)
            except FileNotFoundError:
                gone.append(claim)
        if changed:
            self._reset(changed)
        if gone:
            self._handle_missing_files(gone)
        return [self.to_incoming(claim) for claim in ready]

    def to_incoming(self, claim: FileClaim) -> NumberedIncoming:
        """Return the interchange of a claimed file."""
        return NumberedIncoming(
            key=claim.path.name,
            body=FileSlice(path=claim.path, length=claim.size, inode=claim.inode),
            context=Context().write(FILE.ReceivedFileName, str(self._folder / claim.name)),
            token=claim,
            name=claim.name,
            arrived_at=datetime.fromtimestamp(claim.modified_ns / 1e9, UTC),
            interchange_id=claim.interchange_id,
        )

    def _handle_missing_files(self, gone: Sequence[FileClaim]) -> None:
        """Delete the claims of published files. Store the problem of a file that is missing before it was published."""
        progress = read_progress(self._connection, [claim.interchange_id for claim in gone])
        done = [interchange_id for interchange_id, found in progress.items() if found.done]
        file_claims.delete_file_claims(self._connection, done)
        for claim in gone:
            if not progress[claim.interchange_id].done:
                problem = "was removed by another process before it was published."
                self._store_problem(claim, FileClaimState.MISSING, problem)

    def clean_up(self, committed: Sequence[Committed]) -> None:
        for problem in finish_files(self._connection, [one.incoming.token for one in committed], self._archive):
            _log.warning("%s", problem)

    def release(self, batch: Sequence[Incoming]) -> None:
        """Have files settle again, so that they are received later."""
        self._reset([incoming.token.interchange_id for incoming in batch])

    def quarantine(self, incoming: Incoming, error: Exception) -> None:
        claim: FileClaim = incoming.token
        if self._location.adapter.is_ordered:
            raise error  # no other file may overtake it: the stream is restarted and receives it again
        if not claim.path.exists() or is_unchanged(claim):
            problem = file_claims.format_problem(claim, f"{type(error).__name__}: {error}")
            self._store_problem(claim, FileClaimState.FAILED, problem)
        else:
            self._reset([claim.interchange_id])

    def close(self) -> None:
        if self._claimer is not None:
            self._claimer.release()

    def _reset(self, interchange_ids: Sequence[uuid.UUID]) -> None:
        """Have files settle again. In an ordered location all claimed files have to settle again, so that they stay
        after these."""
        if self._location.adapter.is_ordered:
            file_claims.reset_all_claims(self._connection, self._location.location_id)
        else:
            file_claims.reset_claims(self._connection, interchange_ids)

    def _store_problem(self, claim: FileClaim, state: FileClaimState, problem: str) -> None:
        file_claims.store_problem(self._connection, claim, state, problem)
        _log.warning("%s: %s %s", self._location.name, claim.name, problem, extra=claim.log_ids)
