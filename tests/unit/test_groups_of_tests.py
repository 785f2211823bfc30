"""Tests that share a Spark session run in one worker; each worker would start its own otherwise."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("kept together")
def test_a_group_stays_in_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 writes a group behind a test's id, where pytest 9.2 no longer looks for it."""
    shared_out_by_groups = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@kept together") == shared_out_by_groups
