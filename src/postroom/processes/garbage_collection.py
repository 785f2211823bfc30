"""Collect garbage less often, and not what stays in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The number of new objects that start a collection inside the block. Python's own number is 700.
DELAYED_THRESHOLD = 100_000


@contextmanager
def delay_garbage_collection() -> Iterator[None]:
    """Collect garbage of the whole process only after DELAYED_THRESHOLD new objects. Otherwise the collector visits the
    objects of this block several times, and everything else in the process.

    The collector is not switched off, because the block may wait for PostgreSQL while other threads make cycles. If
    several threads are in such a block, it ends for all of them with that of the first one. This costs time only."""
    threshold, *others = gc.get_threshold()
    if not 0 < threshold < DELAYED_THRESHOLD:  # 0 switches the collector off
        yield
        return
    gc.set_threshold(DELAYED_THRESHOLD, *others)
    try:
        yield
    finally:
        gc.set_threshold(threshold, *others)


def freeze_objects() -> None:
    """Exclude all objects that exist from garbage collection, except those that were frozen before and are garbage now.
    Spark collects garbage after every task. To visit every module and subscription is ten times the work of a small
    task."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def reduce_garbage_collection() -> None:
    """Exclude what is loaded now, which stays in memory, from garbage collection, and collect after 20,000 new objects
    instead of 700. Messages and instances are no cycles, so they are freed without it. Older objects are collected
    after 180,000 new ones, about as often as by default: the cycles of 100,000 instances took 50 MB otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 2, 2)
