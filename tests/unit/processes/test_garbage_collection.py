"""Garbage is collected less often during work that makes many objects, and as before after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from postroom.processes.garbage_collection import DELAYED_THRESHOLD, delay_garbage_collection


@pytest.fixture(autouse=True)
def restored_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_block_restores_the_thresholds_also_if_it_fails() -> None:
    gc.set_threshold(800, 9, 8)
    with delay_garbage_collection():
        assert gc.get_threshold() == (DELAYED_THRESHOLD, 9, 8)
    assert gc.get_threshold() == (800, 9, 8)
    with pytest.raises(UnicodeDecodeError), delay_garbage_collection():
        b"\xff".decode()
    assert gc.get_threshold() == (800, 9, 8)


@pytest.mark.parametrize("chosen", [0, DELAYED_THRESHOLD + 1])
def test_a_collector_that_runs_less_often_or_never_is_not_changed(chosen: int) -> None:
    gc.set_threshold(chosen, 9, 8)
    with delay_garbage_collection():
        assert gc.get_threshold() == (chosen, 9, 8)
    assert gc.get_threshold() == (chosen, 9, 8)


def test_blocks_of_two_threads_restore_the_thresholds_in_any_order() -> None:
    gc.set_threshold(800, 9, 8)
    first, second = delay_garbage_collection(), delay_garbage_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (800, 9, 8), "threads that publish all the time do not switch the collector off"
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (800, 9, 8)
