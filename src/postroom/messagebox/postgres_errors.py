"""Translates errors of PostgreSQL and psycopg to errors of Postroom."""

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
    StaleRouting,
    StateError,
    StorageFailure,
    TransactionConflict,
)

_NOT_ALLOWED_HINT = (
    "Use a --database URL with a login that has the right, or ask an administrator to grant a role:"
    " postroom role grant ROLE LOGIN (docs/how-to/security.md lists the rights of each role)"
)
_RETRY_HINT = "Try again. If it happens again, read the log of PostgreSQL."

#: The errors of the MessageBox's procedures (docs/reference/tables.md).
_BY_SQLSTATE: Mapping[str, tuple[type[PostroomError], str]] = {
    "PR001": (StaleRouting, "The subscriptions changed."),
    "PR404": (NotFound, "The MessageBox has no such object."),
    "PR409": (StateError, "The state of the object does not allow this."),
    "PR410": (ClaimLost, "Another host instance has taken over the message."),
}
#: The first matching type applies. The types of psycopg correspond to the classes of SQLSTATE.
_BY_TYPE: tuple[tuple[type[psycopg.Error], type[PostroomError], str, str], ...] = (
    (pg.DeadlockDetected, TransactionConflict, "The transaction conflicts with another transaction.", _RETRY_HINT),
    (pg.SerializationFailure, TransactionConflict, "The transaction conflicts with another transaction.", _RETRY_HINT),
    (pg.LockNotAvailable, LockTimeout, "Another session has locked what this statement needs.", _RETRY_HINT),
    (pg.IdleInTransactionSessionTimeout, MessageBoxUnavailable, "The session was ended.", _RETRY_HINT),
    (psycopg.OperationalError, MessageBoxUnavailable, "The MessageBox is not available at the moment.", _RETRY_HINT),
    (pg.InsufficientPrivilege, NotAllowed, "The login may not do this.", _NOT_ALLOWED_HINT),
    (pg.UniqueViolation, DuplicateKey, "The MessageBox has a row with this key.", ""),
    (pg.ForeignKeyViolation, MissingReference, "The MessageBox does not have a row that is referred to.", ""),
    (psycopg.IntegrityError, StorageFailure, "The MessageBox does not accept a value.", ""),
    (psycopg.DataError, StorageFailure, "The MessageBox does not accept a value.", ""),
    (psycopg.Error, DatabaseError, "PostgreSQL rejected a statement.", ""),
)


def translate_psycopg_error(error: psycopg.Error) -> PostroomError:
    """Return the error of Postroom for an error of PostgreSQL or psycopg."""
    text = str(error).strip().partition("\n")[0]
    # The reason of a missing right may be in the detail: only owners create roles and schemas.
    detail = (error.diag.message_detail or error.diag.message_hint or "").strip()
    why = f"{text} ({detail})" if detail else text
    if (known := _BY_SQLSTATE.get(error.sqlstate or "")) is not None:
        kind, what = known
        return kind(what, why=why)
    return next(kind(what, why=why, hint=hint) for foreign, kind, what, hint in _BY_TYPE if isinstance(error, foreign))


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of psycopg in the block, for calls that do not use a ``Connection``."""
    try:
        yield
    except psycopg.Error as error:
        raise translate_psycopg_error(error) from error
