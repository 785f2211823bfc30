"""Documents of very many nodes are refused before they become a tree."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.pipelines import Json, Receive, Xml, XmlReceive, components, node_limit
from postroom.pipelines.node_limit import JSON_MARKS, MAX_NODES, XML_MARKS, refuse_many_nodes
from postroom.schemas import Schemas
from tests.unit.pipelines.conftest import Receive as Run


@pytest.mark.parametrize(
    ("document", "marks"),
    [
        (b"<r>" + b"<a/>" * MAX_NODES + b"</r>", XML_MARKS),
        (b"<r>" + b'<a b="">' * (MAX_NODES // 2) + b"</r>", XML_MARKS),
        (b"[" + b"[]," * (MAX_NODES // 2) + b"1]", JSON_MARKS),
    ],
    ids=["tags", "attributes", "lists"],
)
def test_many_small_nodes_are_counted_without_memory(document: bytes, marks: tuple[bytes, ...]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PipelineFailure, match="nodes, more than a pipeline reads into"):
            refuse_many_nodes(document, marks)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_long_text_is_one_node() -> None:
    refuse_many_nodes(b"<r>" + b"x" * (2 * MAX_NODES) + b"</r>", XML_MARKS)


def test_whatever_makes_a_tree_looks_first(receive: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text("{}")
    validated = Receive(disassemble=[Json()], validate=[components.JsonSchema("any.json")]).packed(tmp_path)
    monkeypatch.setattr(node_limit, "MAX_NODES", 10)
    tags = b"<r>" + b"<a/>" * 10 + b"</r>"
    for pipeline in (Xml(), XmlReceive(schemas=Schemas(), allow_unrecognized=True)):
        with pytest.raises(PipelineFailure, match="nodes"):
            receive(pipeline, tags)
    with pytest.raises(PipelineFailure, match="nodes"):
        receive(validated, b"[" + b"[]," * 10 + b"1]")
