"""The fast decoder, the exact decoder and Python's own JSON decoder give the same result."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import Json, JsonLines
from postroom.pipelines.json.disassembler import JsonPromotion
from postroom.properties import Property

PROPERTIES = {
    Property("T.Text", str): "a",
    Property("T.Int", int): "b",
    Property("T.Decimal", Decimal): "c",
    Property("T.Float", float): "d",
    Property("T.Bool", bool): "e",
    Property("T.Datetime", datetime): "f",
    Property("T.Inner", int): "g.h",
    Property("T.Deep", Decimal): "g.i.j",
}
PROMOTION = JsonPromotion(Json(promote=PROPERTIES).promotions)
PROMOTION_OF_NOTHING = JsonPromotion(Json().promotions)

numbers = st.one_of(
    st.integers(-10, 10),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
)
texts = st.one_of(
    st.text(max_size=4),
    st.text(min_size=255, max_size=258),
    st.sampled_from(["1", "1.50", "1_0", "NaN", "true", "2026-01-31T12:00:00Z", "2026-01-31 12:00", "\0"]),
    st.datetimes().map(datetime.isoformat),
    st.decimals().map(str),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
inner = st.fixed_dictionaries({}, optional={"j": scalars})
documents = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys("abcdef", scalars),
        "g": st.fixed_dictionaries({}, optional={"h": scalars, "i": inner}),
        "x": values,
    },
)


def written(value: Any) -> str:
    """Write JSON that keeps the digits of a Decimal."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{written(key)}: {written(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def answers(document: bytes) -> tuple[Any, Any]:
    try:
        exact: Any = list(PROMOTION.values(document))
    except PipelineFailure as failure:
        exact = str(failure)
    columns, failures = PROMOTION.read([document])
    fast = str(failures[0]) if failures else [column[0].as_py() for column in columns]
    return exact, fast


@given(documents)
@example({"c": Decimal("-12345678901234567890123456789012345678")})
@example({"c": Decimal("0E+100")})
@example({"b": Decimal("3.0"), "d": Decimal("-0.0")})
def test_the_fast_and_the_exact_decoder_agree(document: dict[str, Any]) -> None:
    exact, fast = answers(written(document).encode("utf-8", "surrogatepass"))
    assert exact == fast
    assert repr(exact) == repr(fast) or isinstance(exact, list)


@given(st.lists(documents, max_size=8))
def test_documents_are_read_together_as_they_are_alone(batch: list[dict[str, Any]]) -> None:
    encoded = [written(document).encode() for document in batch]
    columns, failures = PROMOTION.read(encoded)
    alone = [answers(document)[0] for document in encoded]
    assert {i: str(failure) for i, failure in failures.items()} == {
        i: answer for i, answer in enumerate(alone) if isinstance(answer, str)
    }
    good = [answer for answer in alone if not isinstance(answer, str)]
    assert [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)] == good


@given(values, st.integers(0, 200), st.sampled_from([b"", b",", b'"', b"]", b"\\", b"\xff", b"0", b"{", b"\x01"]))
def test_accepted_documents_are_valid_json(value: Any, position: int, noise: bytes) -> None:
    """A randomly damaged document is accepted only if Python accepts it too."""
    intact = written({"x": value}).encode()
    position = min(position, len(intact))
    document = intact[:position] + noise + intact[position:]
    try:
        json.loads(document.decode(), parse_constant=_refuse, parse_int=str)
        is_json = True
    except ValueError:
        is_json = False
    assert (PROMOTION_OF_NOTHING.read([document])[1] == {}) == is_json
    assert is_json or PROMOTION.read([document])[1]


def _refuse(constant: str) -> None:
    raise ValueError(constant)


line_texts = st.lists(
    st.one_of(
        values.map(lambda value: written(value).encode()),
        st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line and b"\r" not in line),
    ),
    max_size=20,
)


@given(
    line_texts,
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_every_line_is_yielded_once_and_unchanged(
    lines: list[bytes], end: bytes, has_last_end: bool, batch_rows: int, batch_bytes: int
) -> None:
    while lines and lines[0].startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        lines = lines[1:]
    interchange = end.join(lines) + (end if has_last_end else b"")
    came: dict[int, bytes] = {}
    pipeline = JsonLines(promote=PROPERTIES)
    for batch in pipeline.disassemble(Bytes(interchange), batch_rows=batch_rows, batch_bytes=batch_bytes):
        came.update(zip(batch.messages["number"].to_pylist(), batch.messages["body"].to_pylist(), strict=True))
        came.update({bad.number: bad.body for bad in batch.failures})
    documents = [line for line in lines if line.strip()]
    assert [came[number] for number in sorted(came)] == documents
    assert sorted(came) == list(range(1, len(documents) + 1))
