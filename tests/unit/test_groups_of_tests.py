"""Tests that share a Spark session or a fixture of their module run in one worker."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def shared() -> str:
    return "created once"


@pytest.mark.xdist_group("kept together")
def test_a_group_stays_in_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 appends the group to the id of a test, which pytest 9.2 no longer reads."""
    assert request.node.nodeid.endswith("@kept together") == is_distributed_by_group(request.config)


@pytest.mark.usefixtures("shared")
def test_tests_with_a_fixture_of_their_module_are_a_group(request: pytest.FixtureRequest) -> None:
    name = "@unit/test_groups_of_tests.py"
    assert request.node.nodeid.endswith(name) == is_distributed_by_group(request.config)


def is_distributed_by_group(config: pytest.Config) -> bool:
    return getattr(config.option, "loadgroup", False)
