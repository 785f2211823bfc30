"""Sends messages by writing files: whole and on disk, or not there at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from postroom.adapters.contract import Attempt, body_of
from postroom.adapters.file.definition import File
from postroom.adapters.file.folder import make_folder, opened_folder, remove_left_over, same_content, temporary_name
from postroom.adapters.file.names import file_name, is_unique
from postroom.clock import Clock
from postroom.errors import DeliveryFailure
from postroom.message import Message, Part

_LEFT_OVER_AFTER = timedelta(days=1)
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_HINTS = {
    errno.ENOSPC: "Free some space on that disk.",
    errno.EDQUOT: "Free some space in that quota.",
    errno.EACCES: "Let the account that the host runs as write into the folder.",
    errno.EPERM: "Let the account that the host runs as write into the folder.",
    errno.EROFS: "Mount the file system for writing.",
    errno.EEXIST: "Take the file away, put %MessageID% into the port's name=, or use mode='overwrite'.",
    errno.ENOTDIR: "Take away the file that stands where a folder should be.",
}


class FileSender:
    """Writes the body under a hidden name, syncs it, gives it its own name in one step, and syncs the folder.

    A repeat after a crash finds its own file (the name carries the message's id, and the group that this copy comes
    through, and the content is the same) and counts as sent. A file of that name that is not provably this message's is
    kept, and the attempt fails, unless the port's mode is ``overwrite``.
    """

    # Syncs are not shared between threads: the file system's journal already joins those that come together
    # (measured on ext4 with 1 to 20 threads, no difference).

    def __init__(self, definition: File, *, home: Path, clock: Clock) -> None:
        self._definition = definition
        self._folder = definition.folder(home)
        self._clock = clock

    def open(self) -> None:
        with suppress(OSError):
            make_folder(self._folder)
            remove_left_over(self._folder, before=self._clock() - _LEFT_OVER_AFTER)

    def send(self, message: Message, attempt: Attempt) -> None:
        body = body_of(message)
        name = file_name(self._definition.name, message, self._clock(), attempt.group)
        try:
            # Opened for this one file only: a consumer may move the folder away; the next file belongs into a new one.
            with opened_folder(self._folder) as folder:
                with temporary_name(folder) as temporary:
                    _write(folder, temporary, body)
                    self._give_name(folder, temporary, name)
                os.fsync(folder)
        except OSError as error:
            raise DeliveryFailure(
                f"The file {name!r} could not be written into {self._folder}.",
                why=f"{error.strerror or error}.",
                hint=_HINTS.get(error.errno or 0, ""),
            ) from error

    def close(self) -> None:
        pass

    def _give_name(self, folder: int, temporary: str, name: str) -> None:
        if self._definition.mode == "overwrite":
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        try:
            # A rename would silently replace what is there; a link never does.
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            if not (is_unique(self._definition.name) and same_content(folder, temporary, name)):
                raise
        except OSError as error:
            # Some network file systems have no hard links. A name that no other message can get is safe all the same.
            if error.errno not in _NO_HARD_LINKS or not is_unique(self._definition.name):
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
                f"Part {part.name!r} gave {file.tell()} bytes, but should have {part.body.size}.",
                hint="Its content was changed or cut short while it was read.",
            )
        os.fsync(descriptor)
