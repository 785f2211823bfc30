"""The syntax trees of Python files, parsed once. Tests that read them are in one group, and so in one worker."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

READS_MODULES = pytest.mark.xdist_group("parsed modules")


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
