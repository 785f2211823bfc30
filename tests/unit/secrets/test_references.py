"""References to secrets: what they return, which literals they replace, and how missing ones are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom import secret
from postroom.adapters.url_logins import has_password
from postroom.errors import Fault, SecretUnavailable
from postroom.secrets.references import Secret, find_secrets, find_unavailable, is_secret_name


def test_a_variable_and_a_file_are_read_at_each_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_TEST_SECRET", "one")
    file = tmp_path / "secret"
    file.write_text("two\r\n")
    assert secret(env="POSTROOM_TEST_SECRET").read() == "one"
    assert secret(file=file, prefix="Bearer ").read() == "Bearer two"
    file.write_text("three")
    assert secret(file=file).read() == "three"


def test_a_missing_secret_is_a_transient_fault_of_the_environment(tmp_path: Path) -> None:
    fifo, large, binary, empty = (tmp_path / name for name in ("fifo", "large", "binary", "empty"))
    os.mkfifo(fifo)
    large.write_bytes(b"x" * 70_000)
    binary.write_bytes(b"\xff")
    empty.touch()
    missing = [secret(env="POSTROOM_TEST_ABSENT")]
    missing += [secret(file=path) for path in (tmp_path / "absent", tmp_path, fifo, large, binary, empty)]
    for reference in missing:
        with pytest.raises(SecretUnavailable) as error:
            reference.read()
        assert error.value.fault is Fault.ENVIRONMENT
        assert error.value.can_retry
    assert len(find_unavailable(missing * 2)) == len(missing)


def test_a_reference_is_found_in_a_stored_definition() -> None:
    reference = secret(env="POSTROOM_TEST_ABSENT")
    stored = {"adapter": {"options": {"password": reference.model_dump(mode="json")}}, "decode": [{"name": "Zip"}]}
    assert list(find_secrets(stored)) == [reference]
    assert Secret(**reference.model_dump()) == reference


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "X-API-Key",
        "X-Auth-Token",
        "password",
        "sslpassword",
        "kafka.sasl.jaas.config",
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "kafka.ssl.truststore.password",
        "fs.azure.account.key",
    ],
)
def test_names_of_secrets_need_references(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["X-Source", "key", "primaryKey", "kafka.ssl.keystore.location", "passwordFile", "keyColumn", "tokenizer", "user"],
)
def test_other_names_accept_literals(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://etl@db/x", False),
        ("postgresql://etl:p@db/x", True),
        ("postgresql://db/x?user=etl&password=p", True),
        ("jdbc:sqlserver://db:1433;user=etl;encrypt=true", False),
        ("jdbc:sqlserver://db:1433;user=etl;Password=p", True),
        ("jdbc:oracle:thin:scott/tiger@db:1521:x", True),
        ("jdbc:oracle:thin:@//db:1521/x", False),
        ("jdbc:mysql://db:3306/x", False),
    ],
)
def test_a_password_in_the_url_of_a_database_is_recognised(url: str, expected: bool) -> None:
    assert has_password(url) is expected
