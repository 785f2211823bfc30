"""Encoders: each is the inverse of a decoder."""

from __future__ import annotations

import base64
import gzip
import io
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Body, FileSlice, Message, Part
from postroom.pipelines import Receive, Send, components
from postroom.temporary_bodies import SpooledSlice
from tests.support.round_trip import receive, send

BINARY = [
    (components.GzipEncoder(), components.Gzip()),
    (components.GzipEncoder(level=0), components.Gzip()),
    (components.ZipEncoder(entry="in/order.xml"), components.Zip(entry="*.xml")),
    (components.Base64Encoder(), components.Base64()),
    (components.Base64Encoder(line_length=0), components.Base64()),
    (components.Base64Encoder(line_length=4), components.Base64()),
]


@pytest.mark.parametrize(("encoder", "decoder"), BINARY)
@given(content=st.binary(max_size=500))
def test_an_encoded_body_is_decoded_to_the_same_bytes(
    encoder: components.Encoder, decoder: components.Decoder, content: bytes
) -> None:
    sent = send(Send(encode=[encoder]), Message.of(content))
    assert receive(Receive(decode=[decoder]), sent) == [content]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32-be", "utf-7"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200).filter(lambda text: text[:1] != "\ufeff"))
def test_text_is_converted_to_an_encoding_and_back(encoding: str, text: str) -> None:
    sent = send(Send(encode=[components.CharsetEncoder(encoding)]), Message.of(text.encode(), content_type="text/xml"))
    assert sent.body is not None
    assert (sent.body.content_type, sent.body.charset) == ("text/xml", encoding)
    assert receive(Receive(decode=[components.Charset(encoding)]), sent) == [text.encode()]


def test_all_encoders_of_a_pipeline_are_undone_in_reverse_order() -> None:
    text = "Straße, €".encode()
    encode = [components.CharsetEncoder("cp1252"), components.GzipEncoder(), components.Base64Encoder()]
    decode = [components.Base64(), components.Gzip(), components.Charset("cp1252")]
    sent = send(Send(encode=encode), Message.of(text))
    assert gzip.decompress(base64.b64decode(sent.data)) == "Straße, €".encode("cp1252")
    assert receive(Receive(decode=decode), sent) == [text]


def test_text_is_converted_from_the_charset_of_its_part() -> None:
    message = Message(parts=(Part(body=Message.of("Ä".encode("cp1252")).parts[0].body, charset="cp1252"),))
    assert send(Send(encode=[components.CharsetEncoder("utf-16-be")]), message).data == "Ä".encode("utf-16-be")


@pytest.mark.parametrize(
    ("encoder", "message", "reason"),
    [
        (components.CharsetEncoder("ascii"), Message.of("a€".encode()), "has the character U\\+20AC"),
        (components.CharsetEncoder("ascii"), Message.of(b"a\xff"), "The content is not utf-8"),
        (components.GzipEncoder(), Message(), "GzipEncoder: The message has no body"),
    ],
)
def test_content_that_cannot_be_encoded_is_a_failure_with_its_reason(
    encoder: components.Encoder, message: Message, reason: str
) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        Send(encode=[encoder]).run(message)


def test_a_repeated_delivery_has_the_same_content() -> None:
    for encoder, _ in BINARY:
        message = Message.of(b"order")
        assert send(Send(encode=[encoder]), message).data == send(Send(encode=[encoder]), message).data


def test_other_programs_read_the_archive() -> None:
    sent = send(Send(encode=[components.ZipEncoder(entry="order.json", level=9)]), Message.of(b"{}" * 1000))
    with zipfile.ZipFile(io.BytesIO(sent.data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["order.json"]
        assert archive.getinfo("order.json").compress_size < 100


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        (components.GzipEncoder(level=10), "level is 10, but must be between 0 and 9."),
        (components.ZipEncoder(entry="/etc/x"), "entry is '/etc/x', but must be the name of a file in the archive."),
        (components.ZipEncoder(entry="a/../b"), "entry is 'a/../b', which is not a plain path in the archive."),
        (
            components.Base64Encoder(line_length=77),
            "line_length is 77, but must be a multiple of 4, or 0 for one line.",
        ),
        (components.CharsetEncoder("base64"), "'base64' is not a known text encoding."),
    ],
)
def test_wrong_settings_are_problems(encoder: components.Encoder, problem: str) -> None:
    assert encoder.problems() == [problem]


@pytest.mark.parametrize(
    "encoder",
    [
        components.GzipEncoder(level=1),
        components.ZipEncoder(level=1),
        components.Base64Encoder(),
        components.CharsetEncoder("utf-16"),
    ],
)
def test_a_large_body_is_encoded_in_constant_memory(encoder: components.Encoder, tmp_path: Path) -> None:
    path = tmp_path / "large"
    piece = bytes(range(128)) * 8192
    with path.open("wb") as file:
        for _ in range(32):
            file.write(piece)
    body: Body = FileSlice(path=path, length=32 * len(piece))
    tracemalloc.start()
    try:
        sent = send(Send(encode=[encoder]), Message.of(body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sent.body is not None
    if not isinstance(encoder, components.GzipEncoder | components.ZipEncoder):
        assert isinstance(sent.body.body, SpooledSlice)
    assert peak < 16 << 20
