"""Host instances are killed, frozen and cut off while programs publish, callers wait and an ordered port sends.

`make chaos` runs the same for longer, with another seed each time.
"""

from __future__ import annotations

import pytest

from tests.support.delivery_chaos.processes import has_failed_to_start
from tests.support.delivery_chaos.run import run
from tests.support.folders import open_folder


def test_every_message_is_delivered_in_order_and_every_caller_is_answered() -> None:
    with open_folder(in_memory=True) as folder:
        assert run(folder, seed=791, seconds=15) == []


@pytest.mark.parametrize(
    ("output", "is_expected"),
    [
        ("Host Main is running.\nError: The MessageBox cannot be reached.", True),
        ("Host Main is running.\nError: The MessageBox is not available at the moment.", True),
        ("host instance 1 of Main has started\nError: The MessageBox is not available at the moment.", False),
        ("Host Main is running.\nTraceback (most recent call last):", False),
    ],
)
def test_a_host_may_end_by_itself_only_while_it_starts(output: str, is_expected: bool) -> None:
    assert has_failed_to_start(output) == is_expected
