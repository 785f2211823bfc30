"""Hints for unknown names and for failed connections."""

from __future__ import annotations

import pytest

from postroom.errors import suggest_names
from postroom.messagebox.connection import _suggest_fix

MANY = [f"Port{number:03d}" for number in range(100)]


@pytest.mark.parametrize(
    ("name", "names", "hint"),
    [
        ("europe", ["Europe", "Audit"], "Did you mean Europe?"),
        ("Nowhere", ["Europe", "Audit"], "The ports are: Audit, Europe."),
        ("Nowhere", [], "The ports are: none."),
        ("Nowhere", MANY, f"The ports are: {', '.join(MANY[:20])} and 80 more."),
    ],
)
def test_the_hint_has_the_nearest_name_or_the_first_names(name: str, names: list[str], hint: str) -> None:
    assert suggest_names(name, names, "The ports are") == hint


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ('FATAL:  password authentication failed for user "anna"', "Correct the login or its password"),
        ("fe_sendauth: no password supplied", "Correct the login or its password"),
        ('FATAL:  role "anna" does not exist', "Correct the login or its password"),
        ('FATAL:  database "nix" does not exist', "Correct the name of the database"),
        ("connection refused", "Check that PostgreSQL is running there"),
    ],
)
def test_the_hint_for_a_failed_connection_depends_on_the_reason(message: str, hint: str) -> None:
    assert hint in _suggest_fix(message)
