"""The built-in decoders, with valid, damaged and malicious content."""

from __future__ import annotations

import base64
import errno
import gzip
import io
import random
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroom import secret
from postroom.errors import PipelineFailure, SecretUnavailable
from postroom.message import Body, Bytes, FileSlice, Message
from postroom.pipelines import Receive, components
from postroom.temporary_bodies import MAX_IN_MEMORY, SpooledSlice, slice_body, spool

TEXT = b"region;total\nEU;1\n" * 1000


def decode(decoder: components.Decoder, content: bytes | Body) -> bytes:
    body = Bytes(content) if isinstance(content, bytes) else content
    [batch] = Receive(decode=[decoder]).disassemble(body)
    assert batch.decoded is not None
    return b"".join(batch.decoded.body.chunks())


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return written.getvalue()


GOOD: list[tuple[components.Decoder, bytes, bytes]] = [
    (components.Gzip(), gzip.compress(TEXT), TEXT),
    (components.Gzip(), gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
    (components.Gzip(), gzip.compress(TEXT) + b"\0" * 10, TEXT),
    (components.Gzip(), gzip.compress(b""), b""),
    (components.Zip(), archive({"orders.csv": TEXT}), TEXT),
    (components.Zip(), archive({"orders.csv": TEXT}, zipfile.ZIP_STORED), TEXT),
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
    (components.Gzip(), gzip.compress(TEXT)[:-9], "Gzip: The gzip content is truncated"),
    (components.Gzip(), gzip.compress(TEXT)[:20] + b"\xff" * 40, "Gzip: The content is not gzip, or damaged"),
    (components.Gzip(), gzip.compress(TEXT) + b"junk", "Gzip: The content is not gzip, or damaged"),
    (components.Gzip(), gzip.compress(bytes(32 << 20)), "Gzip: The decompressed content has more than 200 times"),
    (components.Gzip(max_size=1000), gzip.compress(TEXT), "Gzip: The decoded content has more than 1,000 bytes"),
    (components.Zip(), b"plain text", "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"a": TEXT})[:-30], "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"é": TEXT}).replace(b"\xc3\xa9", b"\xc3\xc3"), "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"qqq": TEXT}).replace(b"qqq", b"\0qq"), "Zip: The content is not a zip archive"),
    (components.Zip(), archive({"a": bytes(32 << 20)}), "Zip: The decompressed content has more than 200 times"),
    (components.Zip(), archive({"a": b"", "b": b""}), "Zip: The archive has 2 files that match"),
    (components.Zip(), archive({}), "Zip: The archive has no files that match"),
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


def encrypted(content: bytes, password: bytes) -> bytes:
    """Return an archive with one file in the traditional encryption of zip programs."""
    keys = [0x12345678, 0x23456789, 0x34567890]

    def step(key: int, byte: int) -> int:
        return zlib.crc32(bytes([byte]), key ^ 0xFFFFFFFF) ^ 0xFFFFFFFF

    def update(byte: int) -> None:
        keys[0] = step(keys[0], byte)
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        keys[2] = step(keys[2], keys[1] >> 24)

    def hide(byte: int) -> int:
        mask = (keys[2] | 2) & 0xFFFF
        hidden = byte ^ ((mask * (mask ^ 1)) >> 8 & 0xFF)
        update(byte)
        return hidden

    for byte in password:
        update(byte)
    check = zlib.crc32(content)
    body = bytes(map(hide, bytes(11) + bytes([check >> 24]) + content))
    name = b"a.txt"
    shared = struct.pack("<5H3L2H", 20, 1, 0, 0, 33, check, len(body), len(content), len(name), 0)
    local = b"PK\3\4" + shared + name + body
    central = b"PK\1\2\x14\0" + shared + struct.pack("<3H2L", 0, 0, 0, 0, 0) + name
    return local + central + b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, len(central), len(local), 0)


def with_aes() -> bytes:
    """Return an archive whose file has the method of AES encryption."""
    marked = bytearray(archive({"a.txt": b"x"}))
    for place in (0, marked.index(b"PK\1\2") + 2):
        marked[place + 6] |= 1
        marked[place + 8 : place + 10] = (99).to_bytes(2, "little")
    return bytes(marked)


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_TEST_RIGHT", "sesame")
    monkeypatch.setenv("POSTROOM_TEST_WRONG", "wrong")


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize(
    ("password", "content", "reason"),
    [
        (None, encrypted(TEXT, b"sesame"), "the pipeline has no password"),
        ("POSTROOM_TEST_WRONG", encrypted(TEXT, b"sesame"), "cannot be opened with the password"),
        ("POSTROOM_TEST_RIGHT", encrypted(TEXT, b"sesame")[:-200], "not a zip archive, or damaged"),
        ("POSTROOM_TEST_RIGHT", with_aes(), "of the archive is not supported"),
    ],
)
def test_an_encrypted_archive_needs_the_right_password(password: str | None, content: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure) as failure:
        decode(components.Zip(password=None if password is None else secret(env=password)), content)
    assert reason in str(failure.value)


def test_a_missing_password_is_a_fault_of_the_environment() -> None:
    with pytest.raises(SecretUnavailable, match="POSTROOM_TEST_ABSENT"):
        decode(components.Zip(password=secret(env="POSTROOM_TEST_ABSENT")), encrypted(TEXT, b"sesame"))


def test_a_literal_password_is_rejected() -> None:
    with pytest.raises(ValidationError, match="a literal is not allowed here") as error:
        components.Zip(password="sesame")  # type: ignore[arg-type]
    assert "sesame" not in str(error.value)


@pytest.mark.usefixtures("passwords")
def test_an_encrypted_archive_is_read_with_its_password() -> None:
    assert decode(components.Zip(password=secret(env="POSTROOM_TEST_RIGHT")), encrypted(TEXT, b"sesame")) == TEXT


@given(st.sampled_from(["gzip", "zip"]), st.data())
def test_a_damaged_archive_fails_or_decodes_to_the_original(kind: str, data: st.DataObject) -> None:
    """A damaged archive fails with a reason, or its content is the original."""
    content = bytearray(gzip.compress(TEXT, mtime=0) if kind == "gzip" else archive({"orders.csv": TEXT}))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(len(content) // 2, len(content)))]
    decoder = components.Gzip() if kind == "gzip" else components.Zip()
    try:
        body = decoder.decode(Message.of(bytes(content)))
    except PipelineFailure:
        return
    assert isinstance(body, Bytes)
    assert body.data == TEXT


def test_a_large_body_is_decoded_in_constant_memory(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("size", [0, 10, MAX_IN_MEMORY, MAX_IN_MEMORY + 1])
def test_a_spooled_body_can_be_read_twice_and_sliced(size: int) -> None:
    body = spool(pieces(size), max_size=size)
    expected = b"".join(pieces(size))
    assert body.size == size
    assert b"".join(body.chunks()) == expected
    assert b"".join(body.chunks()) == expected
    half: Callable[[int], Body] = lambda start: slice_body(body, start, size // 2)  # noqa: E731
    assert b"".join(half(size // 4).chunks()) == expected[size // 4 : size // 4 + size // 2]


def test_the_compression_ratio_is_computed_from_the_real_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes in the directory and before the file come from the sender and may be wrong."""
    # Padding, so that the archive is not shorter than its declared size.
    monkeypatch.setattr("postroom.pipelines.components.compression.CHUNK_SIZE", 1 << 16)
    forged = bytearray(archive({"a": bytes(32 << 20), "b": random.Random(1).randbytes(1 << 16)}))
    for at in (18, forged.index(b"PK\x01\x02") + 20):
        struct.pack_into("<I", forged, at, 1 << 31)
    with pytest.raises(PipelineFailure, match="more than 200 times its compressed size"):
        decode(components.Zip(entry="a"), bytes(forged))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_takes_little_memory_with_any_compression(method: int) -> None:
    bomb = Message.of(archive({"a": bytes(48 << 20)}, method))
    tracemalloc.start()
    try:
        with pytest.raises(PipelineFailure) as failure:
            components.Zip(max_size=1 << 20).decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    is_read = method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    assert ("more than 1,048,576 bytes" in failure.value.what) is is_read
    assert (failure.value.hint.startswith("Send it with the method deflate")) is not is_read


def test_the_directory_of_an_archive_takes_little_memory() -> None:
    one = archive({"a": b""})
    at, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    directory = one[at:end] * 100_000
    forged = bytearray(one[:at] + directory + one[end:])
    struct.pack_into("<I", forged, at + len(directory) + 12, len(directory))
    message = Message.of(bytes(forged))
    tracemalloc.start()
    try:
        with pytest.raises(PipelineFailure, match="The archive has a directory of 4,700,000 bytes"):
            components.Zip().decode(message)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(PipelineFailure, match="100,000 files"):
        components.Zip(max_entries=10_000).decode(message)


def test_a_full_disk_is_not_reported_as_a_damaged_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Body:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("postroom.pipelines.components.compression.spool", full)
    with pytest.raises(OSError, match="No space left"):
        decode(components.Zip(), archive({"a": TEXT}))
