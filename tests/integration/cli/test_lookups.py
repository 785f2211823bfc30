"""`postroom lookup`: load entries from a file, list and show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.hosts import HostInstance
from postroom.messagebox.connection import connect
from tests.integration.cli.conftest import Run
from tests.integration.hosts.conftest import SETTINGS
from tests.support.contents import Contents
from tests.support.lookups import count_waiting, read_customer
from tests.support.waiting import wait_until

CRM = """
from postroom import Application, Property

Kind = Property("Crm.Kind", str)
Region = Property("Crm.Region", str)
CustomerId = Property("Crm.CustomerId", str, sensitive={sensitive})
app = Application("crm")
app.property(Kind, Region, CustomerId)
app.lookup("Customers", key=CustomerId, filter={filter})
"""


@pytest.fixture
def host(database: str, crm: Run, tmp_path: Path) -> Iterator[HostInstance]:
    with HostInstance(database, "Main", tmp_path, as_role=True, settings=SETTINGS) as instance:
        yield instance


@pytest.fixture
def crm(run: Run, tmp_path: Path) -> Run:
    apply_crm(run, tmp_path)
    return run


def apply_crm(run: Run, folder: Path, *, sensitive: bool = False, filter: str = "Kind == 'customer'") -> None:
    file = folder / "crm.py"
    file.write_text(CRM.format(sensitive=sensitive, filter=filter))
    assert run("apply", file).code == ExitCode.OK


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    return folder / name


def wait_until_applied(database: str) -> None:
    with connect(database) as connection:
        wait_until(lambda: count_waiting(connection) == 0)


def test_the_rows_of_a_csv_file_are_loaded_and_shown(
    crm: Run, database: str, host: HostInstance, tmp_path: Path
) -> None:
    file = write(tmp_path, "customers.csv", 'id,name\nC-17,Acme\nC-18,"Bolt, Inc."\n')
    assert crm("lookup", "load", "Customers", file, "--key", "id", "-o", "json").json["published"] == 2
    wait_until_applied(database)
    [listed] = crm("lookup", "list", "-o", "json").json
    assert (listed["name"], listed["key_property"], listed["entries"]) == ("Customers", "Crm.CustomerId", 2)
    shown = crm("lookup", "show", "Customers", "-o", "json").json
    assert [(entry["key"], entry["content_type"]) for entry in shown] == [
        ("C-17", "application/json"),
        ("C-18", "application/json"),
    ]
    assert "Acme" in crm("lookup", "show", "Customers", "C-17").out
    entry = crm("lookup", "show", "Customers", "C-18", "-o", "json").json
    assert entry["body"] == '{"id": "C-18", "name": "Bolt, Inc."}'
    missing = crm("lookup", "show", "Customers", "C-19")
    assert (missing.code, "no entry 'C-19'" in missing.err) == (ExitCode.NOT_FOUND, True)


def test_the_lines_of_a_json_file_are_loaded(crm: Run, database: str, host: HostInstance, tmp_path: Path) -> None:
    file = write(tmp_path, "customers.jsonl", '{"CustomerId": "C-17", "limits": [1, 2]}\n\n{"CustomerId": "C-18"}\n')
    assert crm("lookup", "load", "Customers", file).code == ExitCode.OK
    wait_until_applied(database)
    with connect(database) as connection:
        assert read_customer(connection, "C-17") == b'{"CustomerId": "C-17", "limits": [1, 2]}'


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        ("c.csv", "CustomerId,name\nC-1,a\nC-2\n,b\n", ["Line 3: It has 1 values", "Line 4: It has no key"]),
        ("c.csv", "id\nC-1\n", ["no key in 'CustomerId'. The columns are id."]),
        ("c.jsonl", '{"CustomerId": "C-1"}\n{\n[]\n', ["Line 2: It is not JSON", "Line 3: It is not a JSON object"]),
        ("c.jsonl", '{"CustomerId": 7}', ["Line 1: Crm.CustomerId"]),
        ("c.csv", "CustomerId\nC\udcff", ["cannot be read as csv"]),
    ],
)
def test_bad_rows_are_listed_and_nothing_is_published(
    crm: Run, database: str, tmp_path: Path, name: str, text: str, problems: list[str]
) -> None:
    loaded = crm("lookup", "load", "Customers", write(tmp_path, name, text))
    assert loaded.code == ExitCode.REFUSED
    assert [problem for problem in problems if problem not in loaded.err] == []
    with connect(database) as connection:
        assert Contents(connection).count("queued") == 0


def test_properties_that_the_filter_compares_otherwise_are_given(run: Run, database: str, tmp_path: Path) -> None:
    apply_crm(run, tmp_path, filter="(Kind == 'customer') & (Region != 'US')")
    file = write(tmp_path, "customers.csv", "CustomerId\nC-17\n")
    refused = run("lookup", "load", "Customers", file)
    assert "does not match the filter of the lookup" in refused.err
    assert run("lookup", "load", "Customers", file, "-p", "Crm.Region=EU").code == ExitCode.OK


def test_sensitive_keys_are_hidden(run: Run, database: str, tmp_path: Path) -> None:
    apply_crm(run, tmp_path, sensitive=True)
    file = write(tmp_path, "customers.csv", "CustomerId\nC-17\n")
    assert run("lookup", "load", "Customers", file).code == ExitCode.OK
    with HostInstance(database, "Main", tmp_path, as_role=True, settings=SETTINGS):
        wait_until_applied(database)
    assert "C-17" not in run("lookup", "show", "Customers", "-o", "json").out


def test_an_unknown_lookup_is_an_error_that_names_the_others(crm: Run, tmp_path: Path) -> None:
    shown = crm("lookup", "show", "Customer")
    assert shown.code == ExitCode.NOT_FOUND
    assert "Did you mean Customers?" in shown.err
    assert crm("lookup", "load", "Customer", write(tmp_path, "c.csv", "id\n")).code == ExitCode.NOT_FOUND
