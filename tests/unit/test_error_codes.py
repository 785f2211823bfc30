"""docs/reference/errors.md lists exactly the existing error codes."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from postroom.cli.exit_codes import exit_code
from postroom.errors import (
    CorrelationFailure,
    DefinitionRefused,
    KeyReused,
    MessageFailure,
    PostroomError,
    PublishFailed,
)
from postroom.operations.instances.queries import ERROR_CODES
from tests.support.approved import AssertApproved
from tests.support.parsed_modules import READS_MODULES, parse_module

pytestmark = READS_MODULES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "postroom"
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")

DOCUMENTED_ERRORS = re.findall(r"^\| `([A-Z_]+)` \| (\w+) \| (\d+) \| (\w+) \| (yes|no) \|", PAGE, re.MULTILINE)
DOCUMENTED = set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))


@cache
def find_error_classes() -> dict[str, str]:
    """Return the codes of all error classes, with module and class name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(parse_module(path)):
            if isinstance(node, ast.ClassDef):
                for code in _own_code(node):
                    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                    found[code] = f"{module}:{node.name}"
    return found


def _own_code(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name("code")], value=ast.Constant(str(code)))
                | ast.AnnAssign(target=ast.Name("code"), value=ast.Constant(str(code)))
            ):
                yield code


@cache
def find_instance_codes() -> set[str]:
    """Return the codes that are stored without an error class: arguments in Python, constants in SQL."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        found |= set(re.findall(r'\b(?:error_)?code="([A-Z_]+)"', path.read_text(encoding="utf-8")))
    for path in SOURCE.rglob("procedures/**/*.sql"):
        found |= set(re.findall(r"'([A-Z][A-Z_]{3,})'", path.read_text(encoding="utf-8")))
    return found - {"NACK"}  # the type of an acknowledgement


def test_every_code_is_documented() -> None:
    assert (set(find_error_classes()) | find_instance_codes()) - DOCUMENTED == set()


def test_every_documented_code_is_in_the_source() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql"))
    assert [code for code in DOCUMENTED if f'"{code}"' not in text and f"'{code}'" not in text] == []


@pytest.mark.parametrize(("code", "name", "exits_with", "fault", "retry"), DOCUMENTED_ERRORS)
def test_the_documented_columns_are_correct(code: str, name: str, exits_with: str, fault: str, retry: str) -> None:
    error_type = _class(find_error_classes()[code])
    assert error_type.__name__ == name
    error: PostroomError
    if issubclass(error_type, PublishFailed):
        error = error_type([])
    elif issubclass(error_type, DefinitionRefused):
        error = error_type("x", [])
    elif issubclass(error_type, KeyReused | CorrelationFailure):
        error = error_type()
    else:
        error = error_type("x")
    assert error.code == code
    assert exit_code(error) == int(exits_with)
    assert error.fault.value == fault
    assert error.transient is (retry == "yes")


def test_every_code_of_an_instance_can_be_used_in_queries() -> None:
    """`instance list --error MESSAGE_GONE` does not depend on the imported modules."""
    raised = {
        code
        for code, name in find_error_classes().items()
        if issubclass(_class(name), MessageFailure) and _class(name) is not MessageFailure
    }
    assert (raised | find_instance_codes()) - ERROR_CODES == set()
    assert ERROR_CODES <= DOCUMENTED


def _class(name: str) -> type[PostroomError]:
    module, _, class_name = name.partition(":")
    found: type[PostroomError] = getattr(importlib.import_module(module), class_name)
    return found


def test_every_code_belongs_to_one_type() -> None:
    assert len(DOCUMENTED_ERRORS) == len({code for code, *_ in DOCUMENTED_ERRORS}) == len(find_error_classes())


def test_the_approved_errors_are_current(assert_approved: AssertApproved) -> None:
    """Programs and retries depend on type, base type, code, fault and transience."""
    rows = sorted(
        f"{found.__name__}({found.__bases__[0].__name__}) {code} {found.fault.value}"
        f"{' transient' if found.transient else ''}"
        for code, found in ((code, _class(name)) for code, name in find_error_classes().items())
    )
    without_type = sorted(find_instance_codes() - set(find_error_classes()))
    text = "\n".join(["# types", *rows, "", "# codes of instances without a type of their own", *without_type])
    assert_approved(text + "\n", "errors.txt")
