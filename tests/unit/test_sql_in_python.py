"""All SQL is in the package messagebox. SQL inside Python is a call of functions or a short statement on one table.
Anything else is a .sql file.

The modules that read or write tables of users are excepted: they build their statements from the columns of the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import postroom
from tests.support.parsed_modules import READS_MODULES, parse_module

pytestmark = READS_MODULES

SOURCES = Path(postroom.__file__).parent
MESSAGEBOX = Path("messagebox")
USERS_TABLES = {
    Path("adapters/postgres/receive.py"),
    Path("adapters/postgres/send.py"),
    Path("spark/sinks/jdbc.py"),
    Path("spark/sinks/postgres_table.py"),
}

_STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|MERGE INTO|CREATE|ALTER|DROP|TRUNCATE|COPY|LOCK|GRANT|REVOKE|CALL"
    r"|DO|SET|RESET|SHOW|LISTEN|UNLISTEN|NOTIFY|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|DECLARE|FETCH|VACUUM|ANALYZE)(\s|$)"
)
#: The call of a function as a part of a statement, or the name of a .sql file.
_PART = re.compile(r"\s*\w+\(\s*%[sb]|(queries|procedures)/")
_NOT_INLINE = re.compile(r"\b(JOIN|UNION|EXCEPT|INTERSECT|ON CONFLICT|WITH|CASE|GROUP BY|USING)\b|(?<!^)\bSELECT\b")
MAX_LENGTH = 240


def test_sql_inside_python_is_short_and_on_one_table() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {text}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES) not in USERS_TABLES
        for line, text in list_statements(path)
        if _NOT_INLINE.search(re.sub("'[^']*'", "''", text)) or len(text) > MAX_LENGTH
    ]
    assert found == []


def test_all_sql_is_in_the_package_messagebox() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {text}"
        for path in sorted(SOURCES.rglob("*.py"))
        if not is_excepted(path.relative_to(SOURCES))
        for line, text in list_statements(path)
    ]
    assert found == []


def is_excepted(path: Path) -> bool:
    return path.is_relative_to(MESSAGEBOX) or path in USERS_TABLES


@cache
def list_statements(path: Path) -> list[tuple[int, str]]:
    """Return the SQL texts of a module with their lines. A value that an f-string inserts is a question mark."""
    return list(_find_statements(path))


def _find_statements(path: Path) -> Iterator[tuple[int, str]]:
    tree = parse_module(path)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if _STATEMENT.match(text) or _PART.match(text):
            yield node.lineno, text.strip()
