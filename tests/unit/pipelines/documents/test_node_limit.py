"""Documents with too many nodes are rejected before they are parsed."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.pipelines import Json, Receive, Xml, XmlReceive, components
from postroom.pipelines.documents import node_limit
from postroom.pipelines.documents.node_limit import JSON_MARKS, MAX_NODES, XML_MARKS, check_node_count
from postroom.schemas import Schemas
from tests.unit.pipelines.conftest import Receive as Run


@pytest.mark.parametrize(
    ("document", "marks"),
    [
        (b"<r>" + b"<a/>" * MAX_NODES + b"</r>", XML_MARKS),
        (b"<r>" + b"<a/>x" * (MAX_NODES // 2) + b"</r>", XML_MARKS),
        (b"<r>" + b"<a b = 'x'/>" * (MAX_NODES // 3) + b"</r>", XML_MARKS),
        (b"[" + b"[]," * MAX_NODES + b"1]", JSON_MARKS),
    ],
    ids=["tags", "texts", "attributes", "lists"],
)
def test_many_small_nodes_are_counted_without_memory(document: bytes, marks: dict[bytes, int]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PipelineFailure, match="nodes, which is more than a pipeline can read"):
            check_node_count(document, marks)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_long_text_is_one_node() -> None:
    check_node_count(b"<r>" + b"x" * (2 * MAX_NODES) + b"</r>", XML_MARKS)


def test_an_element_with_a_text_counts_as_two_nodes() -> None:
    check_node_count(b"<r>" + b"<a>x</a>" * (MAX_NODES // 2 - 1) + b"</r>", XML_MARKS)


#: Run in a process of its own, because libxml2 does not allocate its memory with Python.
MEASURE = r"""
import re
from pathlib import Path

from postroom.message import Bytes
from postroom.pipelines import XmlReceive
from postroom.schemas import Schema, Schemas

schemas = (Schema(message_type="env", envelope=True, body="/env"), Schema(message_type="d"))
pipeline = XmlReceive(schemas=Schemas(schemas=schemas))


def memory(document):
    [batch] = pipeline.disassemble(Bytes(b"<env>" * 15 + document + b"</env>" * 15))
    assert batch.messages.num_rows == 1
    # Not ru_maxrss, which starts with the memory of the parent process.
    [peak] = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak) << 10


before = memory(b"<d/>")
print((memory(b"<d>" + b"<a/>x" * 60_000 + b"</d>") - before) // 120_000)
"""


def test_an_opened_envelope_takes_two_trees_at_any_depth() -> None:
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=300)
    bytes_a_node = int(run.stdout)
    assert 100 < bytes_a_node < 350


def test_every_parser_checks_the_node_count_first(
    receive: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "any.json").write_text("{}")
    validated = Receive(disassemble=[Json()], validate=[components.JsonSchema("any.json")]).pack(tmp_path)
    monkeypatch.setattr(node_limit, "MAX_NODES", 10)
    tags = b"<r>" + b"<a/>" * 10 + b"</r>"
    for pipeline in (Xml(), XmlReceive(schemas=Schemas(), allow_unrecognized=True)):
        with pytest.raises(PipelineFailure, match="nodes"):
            receive(pipeline, tags)
    with pytest.raises(PipelineFailure, match="nodes"):
        receive(validated, b"[" + b"[]," * 10 + b"1]")
