"""Validation by JSON Schema: valid and invalid documents, and references to other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import PipelineFailure
from postroom.pipelines import JsonLines, PassThrough, Receive, components, load_pipeline
from tests.unit.pipelines.conftest import Receive as Run

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["region"],
    "properties": {
        "region": {"type": "string", "pattern": "^(a+)+$|^[A-Z]+$"},
        "address": {"$ref": "parts/address.json#/definitions/address"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    },
}
ADDRESS: dict[str, Any] = {"definitions": {"address": {"type": "object", "required": ["city"]}}}


def write(folder: Path, order: Any = ORDER, address: Any = ADDRESS) -> None:
    (folder / "schemas" / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "schemas" / "order.json").write_text(order if isinstance(order, str) else json.dumps(order))
    (folder / "schemas" / "parts" / "address.json").write_text(json.dumps(address))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def packed(folder: Path, disassembler: Any = None, **settings: Any) -> Receive:
    validator = components.JsonSchema("schemas/order.json", **settings)
    pipeline = Receive(disassemble=[disassembler or JsonLines(message_type="order")], validate=[validator])
    assert pipeline.packing_problems(folder) == []
    stored = load_pipeline(pipeline.pack(folder).model_dump(mode="json"))
    assert isinstance(stored, Receive)
    return stored


def test_a_valid_document_passes_with_shipped_schemas(folder: Path, receive: Run) -> None:
    pipeline = packed(folder)
    assert sorted(pipeline.files.contents) == ["schemas/order.json", "schemas/parts/address.json"]
    assert receive(pipeline, b'{"region": "EU"}\n{"region": "EU", "address": {"city": "x"}}').numbers == [1, 2]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{}", '"region" is a required property'),
        (b'{"region": 5, "items": [{"count": "x"}]}', 'at items/0/count: "x" is not of type "integer"'),
        (b'{"region": "EU", "address": {}}', 'at address: "city" is a required property'),
    ],
)
def test_an_invalid_document_is_suspended_with_the_path_of_the_error(
    folder: Path, receive: Run, document: bytes, reason: str
) -> None:
    with pytest.raises(PipelineFailure) as failed:
        receive(packed(folder), b'{"region": "EU"}\n' + document)
    assert failed.value.what == "Document 2: JsonSchema: The document is not valid by its schema."
    assert reason in str(failed.value)
    received = receive(packed(folder, recoverable=True), b'{"region": "EU"}\n' + document)
    assert (received.numbers, [bad.number for bad in received.failures]) == ([1], [2])


def test_only_the_first_errors_are_reported_and_each_is_shortened(folder: Path, receive: Run) -> None:
    items = ", ".join(['{"count": "%s"}' % ("x" * 1_000)] * 10)
    with pytest.raises(PipelineFailure) as failed:
        receive(packed(folder), f'{{"region": "EU", "items": [{items}]}}'.encode())
    assert failed.value.why.endswith("; and more")
    assert len(failed.value.why) < 1_000


def test_messages_of_another_type_are_not_validated(folder: Path, receive: Run) -> None:
    assert receive(packed(folder, message_type="other"), b"{}").numbers == [1]


def test_formats_are_checked_on_request(tmp_path: Path, receive: Run) -> None:
    write(tmp_path, {"properties": {"day": {"format": "date"}}})
    assert receive(packed(tmp_path), b'{"day": "nope"}').numbers == [1]
    with pytest.raises(PipelineFailure, match="at day"):
        receive(packed(tmp_path, formats=True), b'{"day": "nope"}')


def test_a_pattern_does_not_backtrack_exponentially(folder: Path, receive: Run) -> None:
    """With backtracking the test would not end."""
    with pytest.raises(PipelineFailure, match="at region"):
        receive(packed(folder), b'{"region": "%b!"}' % (b"a" * 50_000))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"region": ', "ends early"),
        (b'{"region": "\xff"}', "not UTF-8|not JSON"),
        (b'{"a":' * 400 + b"1" + b"}" * 400, "levels|deeply"),
        (b'{"a":' * 100_000, "deeply|not JSON"),
        ('{"region": "EU"}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_an_unparsed_document_is_parsed_safely(folder: Path, receive: Run, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        receive(packed(folder, PassThrough()), document)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "schemas/order.json is not JSON."),
        ({"type": "nothing"}, "schemas/order.json is not a JSON Schema. at type: "),
        ({"$ref": "http://example.com/a.json"}, "http://example.com/a.json is not in the application's folder"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd is not in the application's folder"),
        ({"$ref": "none.json"}, "schemas/none.json is not in the application's folder"),
        ({"pattern": "("}, "regex"),
    ],
)
def test_the_problems_of_a_schema_are_reported_before_applying(tmp_path: Path, schema: Any, problem: str) -> None:
    write(tmp_path, schema)
    pipeline = Receive(validate=[components.JsonSchema("schemas/order.json")])
    assert problem in "\n".join(pipeline.packing_problems(tmp_path))


def test_a_schema_with_an_id_finds_relative_files(tmp_path: Path, receive: Run) -> None:
    write(tmp_path, {**ORDER, "$id": "https://example.com/schemas/order.json"})
    with pytest.raises(PipelineFailure, match="at address"):
        receive(packed(tmp_path), b'{"region": "EU", "address": {}}')


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    pipeline = Receive(validate=[components.JsonSchema("none.json")])
    assert "the file 'none.json' cannot be read" in pipeline.packing_problems(tmp_path)[0]
