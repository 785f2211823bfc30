from __future__ import annotations

import pytest

from postroom import adapters
from postroom.secrets import credentials
from postroom.secrets.credentials import PasswordCheck, is_password_hash, key_hash, password_hash


def test_each_hash_of_a_password_is_different_and_verifies_it() -> None:
    first, second = password_hash("correct horse"), password_hash("correct horse")
    assert first != second
    assert is_password_hash(first)
    check = PasswordCheck()
    assert check.verify(first, "correct horse")
    assert check.verify(second, "correct horse")
    assert not check.verify(first, "correct horse ")
    assert not check.verify(None, "correct horse")


def test_a_verified_password_is_not_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    check, stored = PasswordCheck(), password_hash("correct horse")
    assert check.verify(stored, "correct horse")

    def fail(*_: object) -> bytes:
        raise AssertionError("derived again")

    monkeypatch.setattr(credentials, "_derive", fail)
    assert check.verify(stored, "correct horse")
    with pytest.raises(AssertionError, match="derived again"):
        check.verify(stored, "wrong")


def test_credentials_that_are_not_hashed_are_refused_and_not_shown() -> None:
    adapter = adapters.HttpReceive("/a", port=80, api_keys={"plain key": "Contoso"}, users={"ann": "plain password"})
    problems = adapter.problems()
    assert problems == [
        "api_keys: the entry of 'Contoso' is not the hash of a key; write components.key_hash(key).",
        "users: the entry of 'ann' is not the hash of a password; write adapters.password_hash(password).",
    ]


def test_parties_and_users_need_names() -> None:
    stored = password_hash("correct horse")
    adapter = adapters.HttpReceive("/a", port=80, api_keys={key_hash("key"): " "}, users={"a:b": stored, "": stored})
    assert adapter.problems() == [
        "api_keys: a party has no name.",
        "users: 'a:b' is not a user name; it is empty or contains a colon.",
        "users: '' is not a user name; it is empty or contains a colon.",
    ]
