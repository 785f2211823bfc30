"""Host instances are killed, frozen and cut off while programs publish, callers wait and an ordered port sends.

`make chaos` runs the same for longer, with another seed each time.
"""

from __future__ import annotations

from tests.support.delivery_chaos.run import run
from tests.support.folders import open_folder


def test_every_message_is_delivered_in_order_and_every_caller_is_told() -> None:
    with open_folder(in_memory=True) as folder:
        assert run(folder, seed=2, seconds=120) == []
