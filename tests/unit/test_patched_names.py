"""The names that tests replace exist. A renamed name would otherwise be found only when the test runs."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.parsed_modules import READS_MODULES, parse_module

pytestmark = READS_MODULES

TESTS = Path(__file__).parents[1]


def find_patched_names(module: ast.Module) -> Iterator[str]:
    """Yield the full names of Postroom that ``setattr`` and ``patch`` replace."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr") | ast.Name("patch"), args=[ast.Constant(str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Name(owner), ast.Constant(str(name)), *_]):
                if owner in imported:
                    yield f"{imported[owner]}.{name}"


def exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def test_the_patched_names_are_found() -> None:
    source = """
from postroom.agent import publish as publishing
monkeypatch.setattr("postroom.clock.now", 1)
monkeypatch.setattr(publishing, "lock_routing", 1)
with patch("postroom.clock.later", 1): ...
"""
    assert list(find_patched_names(ast.parse(source))) == [
        "postroom.clock.now",
        "postroom.agent.publish.lock_routing",
        "postroom.clock.later",
    ]
    assert not exists("postroom.clock.renamed")


def test_every_patched_name_exists() -> None:
    missing = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in find_patched_names(parse_module(path))
        if name.startswith("postroom.") and not exists(name)
    ]
    assert missing == []
