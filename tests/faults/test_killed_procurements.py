"""Hosts are killed and frozen while they run orchestrations. Every instance ends, and every message is published once.

`make chaos` runs the same with a thousand instances, with another seed each time.
"""

from __future__ import annotations

from tests.support.folders import open_folder
from tests.support.procurement_chaos.run import run


def test_every_instance_ends_once_and_every_late_offer_has_a_timeout() -> None:
    with open_folder(in_memory=True) as folder:
        assert run(folder, seed=1, seconds=6, orders=40) == []
