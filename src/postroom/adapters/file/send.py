"""Sends messages by writing files, atomically and durably."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from postroom.adapters.contract import Attempt, BatchSendAdapter, Outgoing, get_body
from postroom.adapters.file.definition import File
from postroom.adapters.file.names import format_file_name, is_unique
from postroom.clock import Clock
from postroom.errors import DeliveryFailure
from postroom.files.safe_files import (
    NO_HARD_LINKS,
    has_same_content,
    make_folder,
    open_folder,
    remove_leftovers,
    use_temporary_name,
)
from postroom.message import Message, Part

_HINTS = {
    errno.ENOSPC: "Free some space on that disk.",
    errno.EDQUOT: "Free some space in that quota.",
    errno.EACCES: "Let the account that the host runs as write into the folder.",
    errno.EPERM: "Let the account that the host runs as write into the folder.",
    errno.EROFS: "Mount the file system for writing.",
    errno.EEXIST: "Remove the file, add %MessageID% to the port's name=, or use mode='overwrite'.",
    errno.ENOTDIR: "Remove the file that has the name of the folder.",
}


class FileSender(BatchSendAdapter):
    """Writes the body under a hidden name, syncs it, renames it atomically, and syncs the folder once for each batch.

    A repeated attempt after a crash finds its own file and succeeds: the name contains the message id and the group of
    the copy, and the content is the same. Any other file with the name is kept and the attempt fails, unless the port's
    mode is ``overwrite``.
    """

    # Threads do not share their syncs: the journal of the file system already merges concurrent syncs (measured on ext4
    # with 1 to 20 threads, no difference).

    def __init__(self, definition: File, *, home: Path, clock: Clock) -> None:
        self._definition = definition
        self._folder = definition.folder(home)
        self._clock = clock

    def open(self) -> None:
        with suppress(OSError):
            make_folder(self._folder)
            remove_leftovers(self._folder, now=self._clock())

    def send_batch(self, batch: Sequence[Outgoing]) -> list[Exception | None]:
        """Write one file for each message, and sync the folder once."""
        try:
            # Opened again for each batch: if a consumer moves the folder away, the next files go to a new folder.
            with open_folder(self._folder) as folder:
                errors = [self._send_file(folder, message, attempt) for message, attempt in batch]
                os.fsync(folder)
        except OSError as error:
            raise self._describe_error(error, "The files" if len(batch) > 1 else "The file") from error
        return errors

    def _send_file(self, folder: int, message: Message, attempt: Attempt) -> Exception | None:
        """Write the file of a message. Its name is on disk after the folder is synced."""
        name = ""
        try:
            body = get_body(message)
            name = format_file_name(self._definition.name, message, self._clock(), attempt.group)
            with use_temporary_name(folder) as temporary:
                _write(folder, temporary, body)
                self._rename(folder, temporary, name)
        except OSError as error:
            failure = self._describe_error(error, f"The file {name!r}")
            failure.__cause__ = error
            return failure
        except Exception as error:
            return error
        return None

    def _describe_error(self, error: OSError, what: str) -> DeliveryFailure:
        return DeliveryFailure(
            f"{what} could not be written into {self._folder}.",
            why=f"{error.strerror or error}.",
            hint=_HINTS.get(error.errno or 0, ""),
        )

    def _rename(self, folder: int, temporary: str, name: str) -> None:
        if self._definition.mode == "overwrite":
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        try:
            # A rename would silently replace an existing file. A link never does.
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            if not (is_unique(self._definition.name) and has_same_content(folder, temporary, name)):
                raise
        except OSError as error:
            # Some network file systems have no hard links. A rename is safe if no other message can get the name.
            if error.errno not in NO_HARD_LINKS or not is_unique(self._definition.name):
                raise
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write(folder: int, temporary: str, part: Part) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in part.body.chunks():
            file.write(chunk)
        file.flush()
        if file.tell() != part.body.size:
            raise DeliveryFailure(
                f"Part {part.name!r} has {file.tell()} bytes, but its size is {part.body.size}.",
                hint="Its content changed or was truncated while it was read.",
            )
        os.fsync(descriptor)
