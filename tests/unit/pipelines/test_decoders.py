"""Our decoders: what they make of good content, and of content that is broken or meant to do harm."""

from __future__ import annotations

import base64
import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.message import Body, Bytes, FileSlice, Message
from postroom.pipelines import Receive, components
from postroom.pipelines.spooled import IN_MEMORY, SpooledSlice, cut, spool

TEXT = b"region;total\nEU;1\n" * 1000


def decode(decoder: components.Decoder, content: bytes | Body) -> bytes:
    body = Bytes(content) if isinstance(content, bytes) else content
    [batch] = Receive(decode=[decoder]).disassemble(body)
    assert batch.decoded is not None
    return b"".join(batch.decoded.body.chunks())


def archive(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return written.getvalue()


GOOD: list[tuple[components.Decoder, bytes, bytes]] = [
    (components.Gzip(), gzip.compress(TEXT), TEXT),
    (components.Gzip(), gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
    (components.Gzip(), gzip.compress(TEXT) + b"\0" * 10, TEXT),
    (components.Gzip(), gzip.compress(b""), b""),
    (components.Zip(), archive({"orders.csv": TEXT}), TEXT),
    (components.Zip(entry="*.csv"), archive({"readme.txt": b"", "orders.csv": TEXT}), TEXT),
    (components.Base64(), base64.encodebytes(TEXT), TEXT),
    (components.Base64(), b"", b""),
    (components.Charset("windows-1252"), b"Z\xfcrich \x80", "Zürich €".encode()),
    (components.Charset("utf-16"), "Zürich".encode("utf-16"), "Zürich".encode()),
    (components.Charset("utf-8"), b"\xef\xbb\xbfZ", b"Z"),
]


@pytest.mark.parametrize(("decoder", "content", "decoded"), GOOD)
def test_content_is_decoded(decoder: components.Decoder, content: bytes, decoded: bytes) -> None:
    assert decode(decoder, content) == decoded


BAD: list[tuple[components.Decoder, bytes, str]] = [
    (components.Gzip(), b"", "Gzip: The content is empty"),
    (components.Gzip(), b"plain text", "Gzip: The content is not gzip, or damaged"),
    (components.Gzip(), gzip.compress(TEXT)[:-9], "Gzip: The gzip content is cut short"),
    (components.Gzip(), gzip.compress(TEXT)[:20] + b"\xff" * 40, "Gzip: The content is not gzip, or damaged"),
    (components.Gzip(), gzip.compress(TEXT) + b"junk", "Gzip: The content is not gzip, or damaged"),
    (components.Gzip(), gzip.compress(bytes(32 << 20)), "Gzip: The content grows to more than 200 times"),
    (components.Gzip(max_size=1000), gzip.compress(TEXT), "Gzip: The decoded content has more than 1,000 bytes"),
    (components.Zip(), b"plain text", "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"a": TEXT})[:-30], "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"a": bytes(32 << 20)}), "Zip: The content grows to more than 200 times"),
    (components.Zip(), archive({"a": b"", "b": b""}), "Zip: The archive has 2 files like"),
    (components.Zip(), archive({}), "Zip: The archive has no files like"),
    (components.Zip(max_entries=1), archive({"a": b"", "b": b""}), "Zip: The archive has 2 files"),
    (components.Base64(), b"not base64!", "Base64: The content is not base64"),
    (components.Base64(), b"QUJD=QUJD", "Base64: The content is not base64"),
    (components.Base64(), b"QUJDR", "Base64: The content is not base64"),
    (components.Charset("utf-8"), b"Z\xfcrich", "Charset: The content is not utf-8"),
    (components.Charset("utf-16-le"), b"abc", "Charset: The content is not utf-16-le"),
]


@pytest.mark.parametrize(("decoder", "content", "reason"), BAD)
def test_bad_content_is_a_failure_with_its_reason(decoder: components.Decoder, content: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        decode(decoder, content)


#: An archive with one file that is encrypted in the traditional way; the password is "sesame".
def encrypted() -> bytes:
    plain = archive({"a.txt": b"x"})
    # Marked as encrypted in both headers: without the password nobody gets as far as the content.
    marked = bytearray(plain)
    marked[6] |= 1
    marked[plain.index(b"PK\x01\x02") + 8] |= 1
    return bytes(marked)


@pytest.mark.parametrize(
    ("decoder", "reason"),
    [
        (components.Zip(), "the pipeline has no password"),
        (components.Zip(password="POSTROOM_TEST_ABSENT"), "the pipeline has no password"),
        (components.Zip(password="POSTROOM_TEST_WRONG"), "Zip: "),
    ],
)
def test_an_encrypted_archive_needs_the_right_password(
    monkeypatch: pytest.MonkeyPatch, decoder: components.Decoder, reason: str
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_WRONG", "wrong")
    with pytest.raises(PipelineFailure, match=reason):
        decode(decoder, encrypted())


def test_a_large_body_is_decoded_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.gz"
    size = 64 << 20
    with gzip.open(path, "wb", compresslevel=1) as file:
        piece = bytes(range(256)) * 4096
        for _ in range(size // len(piece)):
            file.write(piece)
    message = Message.of(FileSlice(path=path, length=path.stat().st_size))
    tracemalloc.start()
    try:
        body = components.Gzip(max_ratio=10_000).decode(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body.size == size
    assert isinstance(body, SpooledSlice)
    assert peak < 16 << 20


def pieces(size: int) -> Iterator[bytes]:
    for start in range(0, size, 1000):
        yield bytes(index % 251 for index in range(start, min(start + 1000, size)))


@pytest.mark.parametrize("size", [0, 10, IN_MEMORY, IN_MEMORY + 1])
def test_a_spooled_body_can_be_read_again_and_cut(size: int) -> None:
    body = spool(pieces(size), max_size=size)
    expected = b"".join(pieces(size))
    assert body.size == size
    assert b"".join(body.chunks()) == expected
    assert b"".join(body.chunks()) == expected
    half: Callable[[int], Body] = lambda start: cut(body, start, size // 2)  # noqa: E731
    assert b"".join(half(size // 4).chunks()) == expected[size // 4 : size // 4 + size // 2]
