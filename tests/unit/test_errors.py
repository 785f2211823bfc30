"""The failure model: what caused an error, and whether a retry can help."""

from __future__ import annotations

import errno

import pytest

from postroom.errors import (
    ClaimLost,
    DatabaseError,
    DefinitionError,
    DefinitionRefused,
    DeliveryFailure,
    Fault,
    MessageFailure,
    NotAllowed,
    PipelineFailure,
    PostroomError,
    Problem,
    StateError,
    StorageFailure,
    Unavailable,
    format_count,
    is_environment_error,
)


def find_subclasses(kind: type[PostroomError]) -> list[type[PostroomError]]:
    return [kind, *(each for direct in kind.__subclasses__() for each in find_subclasses(direct))]


def test_unavailable_errors_are_transient_environment_errors() -> None:
    for kind in find_subclasses(Unavailable):
        assert kind.transient
        assert is_environment_error(kind("x"))


def test_a_failure_of_a_message_is_permanent_unless_a_send_port_can_retry_it() -> None:
    assert [kind for kind in find_subclasses(MessageFailure) if kind.transient] == [DeliveryFailure]
    assert [kind for kind in find_subclasses(MessageFailure) if kind.fault is Fault.ENVIRONMENT] == [DeliveryFailure]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        NotAllowed("x"),
        ClaimLost("x"),
        DatabaseError("x"),
    ],
    ids=repr,
)
def test_an_environment_error_is_recognised(error: Exception) -> None:
    assert is_environment_error(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "No such file or directory"),
        ValueError("x"),
        RecursionError(),
        PipelineFailure("x"),
        StorageFailure("x"),
        DefinitionError("x"),
    ],
    ids=repr,
)
def test_another_error_is_no_environment_error(error: Exception) -> None:
    assert not is_environment_error(error)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "no records"), (1, "one record"), (2, "2 records"), (1_200, "1,200 records")]
)
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert format_count(number, "record") == text


def test_problems_are_in_the_order_of_files_and_lines() -> None:
    problems = [Problem("d"), Problem("c", "b.py", 2), Problem("b", "a.py", 10), Problem("a", "a.py", 9)]
    assert [problem.text for problem in DefinitionRefused("x", problems).problems] == ["a", "b", "c", "d"]


def test_the_representation_of_an_error_has_its_reason() -> None:
    error = StateError("The step pay has failed.", why="ValueError: no route", hint="Resume it.")
    assert repr(error) == "StateError('The step pay has failed. ValueError: no route')"
