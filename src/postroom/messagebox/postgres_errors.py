"""What the errors of PostgreSQL and of psycopg mean for Postroom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg

from postroom.errors import (
    ClaimLost,
    DatabaseError,
    DuplicateKey,
    LockTimeout,
    MessageBoxUnavailable,
    MissingReference,
    NotAllowed,
    NotFound,
    PostroomError,
    RoutingFailure,
    StaleRouting,
    StateError,
    StorageFailure,
    TransactionConflict,
)

_REFUSED_HINT = (
    "Use a --database URL with a login that may, or have an administrator grant it a role that may:"
    " postroom role grant ROLE LOGIN (docs/how-to/security.md says what administrators, operators and hosts may do)"
)
_AGAIN_HINT = "Try again; if it happens again, look into the log of PostgreSQL."

#: What the procedures of the MessageBox raise (docs/reference/tables.md).
_BY_SQLSTATE: Mapping[str, tuple[type[PostroomError], str]] = {
    "PR001": (StaleRouting, "The subscriptions changed."),
    "PR002": (RoutingFailure, "No host that subscribes may receive the message."),
    "PR404": (NotFound, "The MessageBox does not have what was named."),
    "PR409": (StateError, "The subscription was made by another transaction."),
    "PR410": (ClaimLost, "Another host instance has taken over the message."),
}
#: The first that fits; the classes of psycopg follow the classes of SQLSTATE.
_BY_TYPE: tuple[tuple[type[psycopg.Error], type[PostroomError], str, str], ...] = (
    (pg.DeadlockDetected, TransactionConflict, "Another transaction was in the way.", _AGAIN_HINT),
    (pg.SerializationFailure, TransactionConflict, "Another transaction was in the way.", _AGAIN_HINT),
    (pg.LockNotAvailable, LockTimeout, "Another session holds a lock that is needed.", _AGAIN_HINT),
    (psycopg.OperationalError, MessageBoxUnavailable, "The MessageBox could not do that now.", _AGAIN_HINT),
    (pg.InsufficientPrivilege, NotAllowed, "The login may not do that.", _REFUSED_HINT),
    (pg.UniqueViolation, DuplicateKey, "The MessageBox has a row with this key.", ""),
    (pg.ForeignKeyViolation, MissingReference, "The MessageBox does not have a row that is referred to.", ""),
    (psycopg.IntegrityError, StorageFailure, "The MessageBox does not accept a value.", ""),
    (psycopg.DataError, StorageFailure, "The MessageBox does not accept a value.", ""),
    (psycopg.Error, DatabaseError, "PostgreSQL refused a statement.", ""),
)


def translate_psycopg_error(error: psycopg.Error) -> PostroomError:
    """Return the error of Postroom that an error of PostgreSQL or of its driver stands for."""
    text = str(error).strip().partition("\n")[0]
    # The reason of a refusal may be in the detail: only owners create roles and schemas.
    detail = (error.diag.message_detail or error.diag.message_hint or "").strip()
    why = f"{text} ({detail})" if detail else text
    if (known := _BY_SQLSTATE.get(error.sqlstate or "")) is not None:
        kind, what = known
        return kind(what, why=why)
    return next(kind(what, why=why, hint=hint) for of, kind, what, hint in _BY_TYPE if isinstance(error, of))


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate what psycopg raises in the block; for calls that do not go through a ``Connection``."""
    try:
        yield
    except psycopg.Error as error:
        raise translate_psycopg_error(error) from error
