"""Splitting an array of JSON documents returns their bytes unchanged, in every notation."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.message import Bytes
from postroom.pipelines import Json
from postroom.properties import Property
from postroom.temporary_bodies import slice_body

Region = Property("X.Region", str)
SPACES = st.sampled_from(["", " ", "\n", "\r\n\t", "  "])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
REGIONS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8) | st.none()
OBJECTS = st.builds(
    lambda others, region: {**others, "region": region},
    st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
    REGIONS,
)
KEYS = st.sampled_from(["orders", "a b", "é", "x.y", "$a"])


@st.composite
def write_json(draw: st.DrawFn, value: Any) -> str:
    """Write a value in one of the notations of JSON."""
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 2])),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " :\t")])),
    )
    # Fail here if hypothesis draws a lone surrogate, which has no UTF-8.
    text.encode()
    return text


@st.composite
def envelopes(draw: st.DrawFn) -> tuple[str, bytes, list[bytes], list[str | None]]:
    """Draw a split path and an interchange, with the documents in it and their regions."""
    objects = draw(st.lists(OBJECTS, max_size=5))
    documents = [draw(write_json(document)) for document in objects]
    around = [draw(SPACES) for _ in range(2)]
    text = "[" + ",".join(f"{draw(SPACES)}{document}{draw(SPACES)}" for document in documents) + draw(SPACES) + "]"
    keys = draw(st.lists(KEYS, max_size=2))
    for key in reversed(keys):
        before, after = ({name: draw(VALUES) for name in draw(st.sets(st.sampled_from("pq")))} for _ in range(2))
        members = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in before.items()]
        members.append(f"{json.dumps(key, ensure_ascii=draw(st.booleans()))}{draw(SPACES)}:{draw(SPACES)}{text}")
        members += [f"{json.dumps('z' + name)}:{json.dumps(value)}" for name, value in after.items()]
        text = "{" + ",".join(members) + "}"
    split = ".".join(key.replace(".", "\\.") for key in keys) or "$"
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    content = mark + (around[0] + text + around[1]).encode()
    return split, content, [document.encode() for document in documents], [document["region"] for document in objects]


@settings(deadline=None, max_examples=200)
@given(envelopes(), st.integers(0, 40), st.integers(1, 3), st.sampled_from([0, 1_000_000]))
def test_splitting_returns_the_documents_byte_for_byte(
    drawn: tuple[str, bytes, list[bytes], list[str | None]], fragment: int, rows: int, at_once: int
) -> None:
    split, content, documents, regions = drawn
    pipeline = Json(promote={Region: "region"}, split=split)
    assert pipeline.problems() == []
    with (
        patch("postroom.pipelines.json.split.MAX_COMMAS_AT_ONCE", at_once),
        patch("postroom.pipelines.json.disassembler.FRAGMENT_SIZE", fragment),
        patch("postroom.pipelines.documents.disassembled_batch.FRAGMENT_SIZE", fragment),
    ):
        batches = list(pipeline.disassemble(Bytes(content), batch_rows=rows))
    found = [row for batch in batches for row in batch.messages.to_pylist()]
    assert [row["number"] for row in found] == list(range(1, len(documents) + 1))
    assert [row[Region.key] for row in found] == regions
    assert [(row["body"] is None) for row in found] == [len(document) > fragment for document in documents]
    for row, document in zip(found, documents, strict=True):
        body = row["body"]
        if body is None:
            body = b"".join(slice_body(Bytes(content), row["offset"], row["length"]).chunks())
        assert body == document
