"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import postroom
from tests.support.approved import AssertApproved
from tests.support.public_api import describe_module

PUBLIC = ("postroom", "postroom.adapters", "postroom.pipelines", "postroom.pipelines.components", "postroom.maps")


def test_every_public_name_exists_and_others_are_attribute_errors() -> None:
    for name in postroom.__all__:
        assert getattr(postroom, name) is not None
    assert set(postroom.__all__) <= set(dir(postroom))
    with pytest.raises(AttributeError, match="nonsense"):
        postroom.nonsense  # noqa: B018


@pytest.mark.parametrize("name", PUBLIC)
def test_the_approved_names_and_signatures_are_current(name: str, assert_approved: AssertApproved) -> None:
    assert_approved(describe_module(import_module(name)), f"{name}.txt")


def test_importing_postroom_loads_no_large_library() -> None:
    libraries = ("pydantic", "urllib3", "pyarrow", "psycopg", "pyspark", "pandas", "numpy")
    script = f"import sys, postroom; print([m for m in {libraries} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_declaring_an_application_needs_neither_a_database_nor_spark() -> None:
    script = (
        "import sys; from postroom import Application, adapters, pipelines; Application('a').definition();"
        "print([m for m in ('urllib3', 'pyarrow', 'psycopg', 'pyspark', 'lxml') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
