"""Failures that are not a message's: the disk is full, there is no memory, something cannot be reached.

The same message may pass in a minute. So these are never the reason of a suspension: the work fails, and is done again.
"""

from __future__ import annotations

import errno
import os

from postroom.errors import PostroomError

_OF_THE_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
)

#: As the system says it, also to Java, and through logs.
_IN_WORDS = tuple(os.strerror(code) for code in sorted(_OF_THE_MACHINE))


def is_of_the_world(error: BaseException) -> bool:
    """Whether an error says nothing about the message that was being worked on."""
    if isinstance(error, OSError):
        return error.errno in _OF_THE_MACHINE
    return isinstance(error, MemoryError) or (isinstance(error, PostroomError) and error.transient)


def tells_of_the_world(reason: str) -> bool:
    """The same for an error of which only its account is left."""
    return reason.startswith(MemoryError.__name__) or any(words in reason for words in _IN_WORDS)
