"""The exit codes of `postroom`."""

from __future__ import annotations

from enum import IntEnum

from postroom.errors import (
    ChangesNotTaken,
    DatabaseError,
    DefinitionError,
    NotFound,
    PostroomError,
    StateError,
    Unavailable,
)


class ExitCode(IntEnum):
    """The exit codes are the same for every command.

    ===  ===========  ==================================================================================
      0  OK           the command succeeded
      1  FAILED       the command failed; standard error shows why
      2  USAGE        the command line is invalid
      3  REFUSED      a definition or a value is wrong; nothing was changed
      4  NOT_FOUND    nothing has this name or id
      5  STATE        the current state does not allow this
      6  UNAVAILABLE  the MessageBox, Java or Spark cannot be reached now; a retry may help
      7  NOT_TAKEN    the changes are deployed, but a running process has not taken them yet
     70  BUG          an unexpected error; report it with the text on standard error
    130  INTERRUPTED  Ctrl-C ended the command; a command that runs until Ctrl-C ends with 0
    ===  ===========  ==================================================================================
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    STATE = 5
    UNAVAILABLE = 6
    NOT_TAKEN = 7
    BUG = 70
    INTERRUPTED = 130


def exit_code(error: PostroomError) -> ExitCode:
    """Return the exit code for an error, by its type."""
    for kind, code in _BY_TYPE:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


#: The first type that matches decides.
_BY_TYPE: tuple[tuple[type[PostroomError], ExitCode], ...] = (
    (NotFound, ExitCode.NOT_FOUND),
    (DefinitionError, ExitCode.REFUSED),
    (StateError, ExitCode.STATE),
    (ChangesNotTaken, ExitCode.NOT_TAKEN),
    (Unavailable, ExitCode.UNAVAILABLE),
    (DatabaseError, ExitCode.BUG),
)
