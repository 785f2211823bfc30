"""The documentation of the MessageBox is correct, and the examples that need one run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from postroom.application.loading.load import load
from postroom.messagebox.connection import Connection, connect
from postroom.operations.deployment.apply import apply
from tests.support.contents import Contents
from tests.support.pages import ROOT, blocks, pages

TABLES = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "orders" / "app.py"


@pytest.fixture
def deployed(database: str, tmp_path: Path) -> str:
    """Return a MessageBox in which the example application is deployed."""
    with connect(database) as connection:
        apply(connection, load(EXAMPLE), home=tmp_path)
    return database


def _find_documented(pattern: str) -> set[str]:
    return set(re.findall(rf"^\| `({pattern})`", TABLES, re.MULTILINE))


def _replace_host(names: set[str]) -> set[str]:
    """Replace the name of the example's one host by a placeholder."""
    return {re.sub(r"(?<=_)main$|(?<=\.)main(?=_)", "<host>", name) for name in names}


def test_the_documentation_lists_exactly_the_existing_tables(deployed: str) -> None:
    with connect(deployed) as connection:
        existing = _read_names(
            connection,
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname IN ('messagebox', 'management') AND c.relkind IN ('r', 'p', 'v', 'S')"
            # Sequences of identity columns are not part of the interface.
            "   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i' AND relkind = 'S')",
        )
    assert _find_documented(r"(?:messagebox|management)\.[a-z0-9_<>]+") == _replace_host(existing)


def test_the_documentation_lists_exactly_the_existing_functions(deployed: str) -> None:
    with connect(deployed) as connection:
        existing = _read_names(
            connection,
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname IN ('messagebox', 'management')",
        )
    assert _find_documented(r"[a-z][a-z0-9_<>]*") == _replace_host(existing)


def test_the_documentation_lists_the_functions_that_hosts_may_call(deployed: str) -> None:
    with connect(deployed) as connection:
        granted = _read_names(
            connection,
            "SELECT p.proname FROM pg_proc p, pg_roles r WHERE p.pronamespace = 'messagebox'::regnamespace"
            f"   AND r.rolname = 'postroom_{Contents(connection).read_id()}_hosts'"
            "   AND has_function_privilege(r.oid, p.oid, 'EXECUTE')",
        )
    documented = set(re.findall(r"^\| `([a-z_]+)` \|[^|]*\| hosts \|", TABLES, re.MULTILINE))
    _, _, jobs = TABLES.partition("in BizTalk Server | what it does |")
    documented |= set(re.findall(r"^\| `([a-z_]+)` \|", jobs.partition("\n\n")[0], re.MULTILINE))
    assert documented == granted


def test_the_documentation_lists_every_error_state(deployed: str) -> None:
    folder = ROOT / "src" / "postroom" / "messagebox" / "procedures"
    raised = {code for path in folder.rglob("*.sql") for code in re.findall(r"ERRCODE = '(PR\d+)'", path.read_text())}
    assert _find_documented(r"PR\d+") == raised


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if any(block.words == ("messagebox",) for block in blocks(page, "python"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_python_examples_run(page: Path, deployed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example application is deployed in the MessageBox that the page connects to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_DATABASE", deployed)
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(page, "python"):
        exec(compile(block.text, str(block), "exec"), names)


@pytest.mark.parametrize(
    "page", [page for page in pages() if blocks(page, "sql")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_sql_examples_run(page: Path, deployed: str) -> None:
    with connect(deployed) as connection:
        for block in blocks(page, "sql"):
            with connection.transaction(force_rollback=True):
                connection.execute(block.text.encode())


def _read_names(connection: Connection, query: str) -> set[str]:
    return {name for (name,) in connection.execute(query.encode())}
