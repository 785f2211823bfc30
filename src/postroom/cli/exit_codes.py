"""What the exit code of `postroom` says."""

from __future__ import annotations

from enum import IntEnum

from postroom.errors import DatabaseError, DefinitionError, NotFound, PostroomError, StateError, Unavailable


class ExitCode(IntEnum):
    """The same for every command, so that scripts can tell what to do next.

    ===  ===========  ==================================================================================
      0  OK           it is done
      1  FAILED       it was tried and failed; what failed is on standard error
      2  USAGE        the command line could not be understood
      3  REFUSED      a definition or a value is wrong; nothing was changed
      4  NOT_FOUND    there is nothing of that name or id
      5  STATE        the thing is there, but its present state does not allow this
      6  UNAVAILABLE  the MessageBox, Java or Spark cannot be reached now; trying again may help
     70  BUG          something that should not happen; standard error has what a report of it needs
    130  INTERRUPTED  Ctrl-C
    ===  ===========  ==================================================================================
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    STATE = 5
    UNAVAILABLE = 6
    BUG = 70
    INTERRUPTED = 130


def exit_code(error: PostroomError) -> ExitCode:
    """The code for an error: by its type, the most particular one first."""
    for kind, code in _BY_TYPE:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


_BY_TYPE: tuple[tuple[type[PostroomError], ExitCode], ...] = (
    (NotFound, ExitCode.NOT_FOUND),
    (DefinitionError, ExitCode.REFUSED),
    (StateError, ExitCode.STATE),
    (Unavailable, ExitCode.UNAVAILABLE),
    (DatabaseError, ExitCode.BUG),
)
