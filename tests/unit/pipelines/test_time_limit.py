"""Formats and components that take too long are abandoned, and their interchange fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import JsonLines, Xml
from postroom.pipelines import definition as definitions
from postroom.pipelines.xml.promotion import compile_xml_promotion
from tests.unit.pipelines.conftest import Receive as Run

LINES = b'{"region": "EU"}\n' * 5_000


def test_a_format_that_does_not_return_is_abandoned(receive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def for_ever(*_: object) -> Iterator[object]:
        released.wait(60)
        yield None

    with monkeypatch.context() as patched:
        patched.setattr(JsonLines, "_load_disassembler", lambda _: for_ever)
        patched.setattr(definitions, "FORMAT_SECONDS", 0.05)
        with pytest.raises(PipelineFailure, match=r"JsonLines: it did not return within 0\.05 seconds"):
            receive(JsonLines(), LINES)
    assert len(receive(JsonLines(), LINES).rows) == 5_000, "on another thread"
    released.set()


def test_a_large_interchange_is_read_in_batches_on_another_thread(receive: Run) -> None:
    assert receive(JsonLines(), LINES, batch_rows=1_000).batch_sizes == [1_000] * 5


def test_paths_are_compiled_for_each_thread() -> None:
    """A path is locked while it is evaluated. An abandoned thread would keep other threads waiting."""
    pipeline = Xml(split="/a/b")
    mine = compile_xml_promotion(pipeline.promotions, ())
    other: list[object] = []
    thread = threading.Thread(target=lambda: other.append(compile_xml_promotion(pipeline.promotions, ())))
    thread.start()
    thread.join()
    assert other != [mine]
    assert compile_xml_promotion(pipeline.promotions, ()) is mine


def test_a_module_whose_import_does_not_return_is_abandoned(receive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from postroom.pipelines import Receive, components
    from postroom.pipelines.receive import stages

    released = threading.Event()

    def for_ever(*_: object) -> object:
        return released.wait(60)

    monkeypatch.setattr(stages, "load_component", for_ever)
    pipeline = Receive(decode=[components.Gzip()], seconds=0.05)
    with pytest.raises(PipelineFailure, match="Gzip: it did not return"):
        list(pipeline.disassemble(Bytes(b"x")))
    released.set()
