"""Tests name what a MessageBox contains (`tests/support/contents`), and not its tables.

A change of the schema then changes one module. The tests of the SQL objects themselves are excepted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import postroom
from tests.support.parsed_modules import READS_MODULES, parse_module

pytestmark = READS_MODULES

TESTS = Path(__file__).parents[1]
SCHEMA = Path(postroom.__file__).parent / "messagebox" / "schema"
#: Folders whose tests are about tables and procedures, and the vocabulary itself.
EXCEPTED = ("support", "plans", "integration/messagebox", "unit")

_CREATED = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (?:management|messagebox)\.(\w+)")
_TABLES = {name for file in SCHEMA.glob("*.sql") for name in _CREATED.findall(file.read_text())}
_NAMES = "|".join(sorted(_TABLES, key=len, reverse=True))
_NAMED = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|COPY|ON|TRUNCATE)\s+(?:ONLY\s+)?(?:(?:management|messagebox)\.)?"
    rf"(?:{_NAMES}|default_q\w*)\b|\b(?:management|messagebox)\.(?:{_NAMES})\b"
)


def list_tests() -> list[Path]:
    return [
        path
        for path in sorted(TESTS.rglob("*.py"))
        if not any(path.is_relative_to(TESTS / folder) for folder in EXCEPTED)
    ]


def find_tables(module: ast.Module) -> Iterator[str]:
    """Return the SQL of a module that names tables."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = _NAMED.search(node.value)
            if found:
                yield f"line {node.lineno}: {found[0]}"


def test_the_tables_of_the_schema_are_found() -> None:
    assert {"spool", "work_queue", "send_ports", "message_properties", "instances"} <= _TABLES
    assert list(find_tables(ast.parse("a.execute('SELECT 1 FROM spool')"))) == ["line 1: FROM spool"]
    assert list(find_tables(ast.parse("a.execute(f'LOCK TABLE messagebox.parts IN {mode} MODE')"))) == [
        "line 1: TABLE messagebox.parts"
    ]
    assert list(find_tables(ast.parse("a.execute('SELECT resume_instances(%s) FROM generate_series(1, 2)')"))) == []


def test_no_test_names_a_table() -> None:
    found = {str(path.relative_to(TESTS)): list(find_tables(parse_module(path))) for path in list_tests()}
    assert {path: tables for path, tables in found.items() if tables} == {}
