"""Tests that share a Spark session run in one worker."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("kept together")
def test_a_group_stays_in_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 appends the group to the id of a test, which pytest 9.2 no longer reads."""
    is_distributed_by_group = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@kept together") == is_distributed_by_group
