"""Limits on time: a format, too, is given up; its thread is of no use any more, and all others are used again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from weakref import WeakSet

import pytest

from postroom.errors import PipelineFailure, Unavailable
from postroom.message import Bytes
from postroom.pipelines import JsonLines, Xml, definitions, formats
from postroom.pipelines.watch import Watch, left_behind
from postroom.pipelines.xml.promotion import xml_promotion
from postroom.spark import poison_messages
from tests.support.waiting import wait_until
from tests.unit.pipelines.conftest import Receive as Run

LINES = b'{"region": "EU"}\n' * 5_000


def test_a_format_that_does_not_return_is_given_up(receive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def for_ever(*_: object) -> Iterator[object]:
        released.wait(60)
        yield None

    with monkeypatch.context() as patched:
        patched.setattr(formats, "disassemble", for_ever)
        patched.setattr(definitions, "FORMAT_SECONDS", 0.05)
        with pytest.raises(PipelineFailure, match=r"JsonLines: it did not return within 0\.05 seconds"):
            receive(JsonLines(), LINES)
    assert len(receive(JsonLines(), LINES).rows) == 5_000, "on another thread"
    released.set()


def test_an_interchange_in_several_batches_runs_on_one_thread_and_the_next_one_too(receive: Run) -> None:
    watch = Watch(60)
    seen: set[int] = set()

    def steps() -> Iterator[int]:
        for number in range(3):
            seen.add(threading.get_ident())
            yield number

    for _ in range(3):
        assert list(watch.over(steps)) == [0, 1, 2]
    assert len(seen) == 1
    assert threading.get_ident() not in seen
    assert receive(JsonLines(), LINES, batch_rows=1_000).batch_sizes == [1_000] * 5


def test_what_was_begun_and_is_not_asked_for_is_closed_on_its_thread() -> None:
    closed: list[int] = []

    def steps() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(threading.get_ident())

    watch = Watch(60)
    begun = watch.over(steps)
    assert next(begun) == 0
    begun.close()  # type: ignore[attr-defined]
    assert list(watch.over(lambda: iter([1]))) == [1]
    assert len(closed) == 1
    assert closed != [threading.get_ident()]


def test_paths_are_compiled_for_each_thread() -> None:
    """A path that is at work is locked; a thread that was left behind in one would keep the others waiting."""
    pipeline = Xml(split="/a/b")
    mine = xml_promotion(pipeline.promotions, ())
    other: list[object] = []
    thread = threading.Thread(target=lambda: other.append(xml_promotion(pipeline.promotions, ())))
    thread.start()
    thread.join()
    assert other != [mine]
    assert xml_promotion(pipeline.promotions, ()) is mine


def test_a_module_that_is_imported_for_ever_is_given_up(receive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from postroom.pipelines import Receive, component_stages, components

    released = threading.Event()

    def for_ever(*_: object) -> object:
        return released.wait(60)

    monkeypatch.setattr(component_stages, "load_component", for_ever)
    pipeline = Receive(decode=[components.Gzip()], seconds=0.05)
    with pytest.raises(PipelineFailure, match="Gzip: it did not return"):
        list(pipeline.disassemble(Bytes(b"x")))
    released.set()


def test_threads_that_were_given_up_are_counted_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    own: WeakSet[threading.Thread] = WeakSet()  # those of other tests may be about to end
    monkeypatch.setattr("postroom.pipelines.watch._given_up", lambda: own)
    released = threading.Event()
    watch = Watch(0.05)

    def steps() -> Iterator[bool]:
        yield watch.call("Stuck", lambda: released.wait(60))

    with pytest.raises(PipelineFailure, match="Stuck"):
        list(watch.over(steps))
    assert left_behind() == 1
    released.set()
    wait_until(lambda: left_behind() == 0, what="the end of the thread")


def test_a_worker_with_too_many_of_them_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_messages, "left_behind", lambda: poison_messages.MAX_LEAKED_THREADS)
    poison_messages.fail_if_threads_leaked()
    monkeypatch.setattr(poison_messages, "left_behind", lambda: poison_messages.MAX_LEAKED_THREADS + 1)
    with pytest.raises(Unavailable, match="9 abandoned threads"):
        poison_messages.fail_if_threads_leaked()
