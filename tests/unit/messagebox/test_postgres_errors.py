"""Every error of PostgreSQL and of psycopg becomes one of Postroom's, by its SQLSTATE or its class."""

from __future__ import annotations

import psycopg
import pytest
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
from postroom.messagebox.postgres_errors import translate_errors, translate_psycopg_error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (psycopg.OperationalError, MessageBoxUnavailable),
        (pg.AdminShutdown, MessageBoxUnavailable),
        (pg.DiskFull, MessageBoxUnavailable),
        (pg.QueryCanceled, MessageBoxUnavailable),
        (pg.DeadlockDetected, TransactionConflict),
        (pg.SerializationFailure, TransactionConflict),
        (pg.LockNotAvailable, LockTimeout),
        (pg.InsufficientPrivilege, NotAllowed),
        (pg.UniqueViolation, DuplicateKey),
        (pg.ForeignKeyViolation, MissingReference),
        (pg.CheckViolation, StorageFailure),
        (pg.NumericValueOutOfRange, StorageFailure),
        (psycopg.DataError, StorageFailure),
        (pg.UndefinedTable, DatabaseError),
        (pg.ReadOnlySqlTransaction, DatabaseError),
        (psycopg.InterfaceError, DatabaseError),
    ],
)
def test_the_class_of_an_error_selects_its_translation(
    raised: type[psycopg.Error], expected: type[PostroomError]
) -> None:
    error = translate_psycopg_error(raised("the first line\nthe second line"))
    assert type(error) is expected
    assert error.why == "the first line"


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("PR001", StaleRouting),
        ("PR404", NotFound),
        ("PR409", StateError),
        ("PR410", ClaimLost),
    ],
)
def test_the_sqlstates_of_the_messagebox_are_translated(sqlstate: str, expected: type[PostroomError]) -> None:
    raised = psycopg.DatabaseError("refused")
    raised.sqlstate = sqlstate
    error = translate_psycopg_error(raised)
    assert type(error) is expected
    assert error.why == "refused"


def test_a_block_translates_what_it_raises() -> None:
    with pytest.raises(MessageBoxUnavailable) as raised, translate_errors():
        raise psycopg.OperationalError("the server closed the connection")
    assert isinstance(raised.value.__cause__, psycopg.OperationalError)
