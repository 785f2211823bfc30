"""Mutations of inputs: of bytes, of lines, and of the trees that JSON, XML, MIME, zip and DER consist of."""

from __future__ import annotations

import base64
import binascii
import copy
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from lxml import etree

#: Returns a changed input. An input that does not have the structure is returned as it is.
Mutation = Callable[[random.Random, bytes], bytes]

#: The maximum size of an input.
MAX_SIZE = 1 << 15

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
_JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**63), 10**40, "", "\0", "\ud800", "é", "x" * 300, [], {}, [[]],
    {"": 0}, "1", "NaN", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
)  # fmt: skip
_TEXTS = ("", " ", "\u2028", "é", "x" * 300, "1e400", "-0", "NaN", "２", "0001-01-01T00:00:00+14:00", "]]>", "&#0;")


def mutate_bytes(words: Sequence[bytes]) -> Mutation:
    """Return a mutation of single bytes and ranges. ``words`` are the words of the language."""

    def mutate(dice: random.Random, data: bytes) -> bytes:
        start = dice.randint(0, len(data))
        end = min(len(data), start + dice.choice((1, 1, 2, 4, 16, 64)))
        piece = data[start:end]
        match dice.randrange(9):
            case 0:
                piece = bytes(byte ^ 1 << dice.randrange(8) for byte in piece)
            case 1:
                piece = b""
            case 2:
                piece = dice.randbytes(len(piece) or 1)
            case 3:
                piece *= dice.choice((2, 3, 50))
            case 4 | 5 if words:
                piece = dice.choice(words)
            case 6 if words:
                piece = dice.choice(words) + piece
            case 7:
                other = dice.randint(0, len(data))
                piece += data[other : other + dice.choice((1, 8, 64))]
            case _:
                return data[:start]
        return data[:start] + piece + data[end:]

    return mutate


def mutate_lines(dice: random.Random, data: bytes) -> bytes:
    """Delete, repeat, move, join or end lines in another way."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = lines[one].rstrip(b"\r\n")
        case 4:
            lines[one] = lines[one].rstrip(b"\r\n") + dice.choice((b"\r\n", b"\n", b"\r", b"\n\n", b"\x85", b"\0\n"))
        case _:
            lines[one] *= dice.choice((2, 20))
    return b"".join(lines)


def mutate_json(dice: random.Random, data: bytes) -> bytes:
    """Replace, remove, repeat, nest or rename a node of a JSON document."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    holders = _find_holders(tree)
    if not holders:
        return data
    holder, key = dice.choice(holders)
    value = dice.choice(_JSON_VALUES)
    match dice.randrange(6):
        case 0 | 1:
            holder[key] = value
        case 2:
            del holder[key]
        case 3:
            other, other_key = dice.choice(holders)
            holder[key] = json.loads(json.dumps(other[other_key]))
        case 4:
            for _ in range(dice.choice((1, 20, 500))):
                holder[key] = [holder[key]] if dice.random() < 0.5 else {"a": holder[key]}
        case _ if isinstance(holder, dict):
            holder[dice.choice(("", "kind", "name", "region", "é", "$"))] = holder.pop(key)
        case _:
            holder += holder[:20]
    try:
        return json.dumps(tree, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    except RecursionError:
        return data


def _find_holders(tree: Any) -> list[tuple[Any, Any]]:
    """Return every list or object of a document with each of its keys."""
    found: list[tuple[Any, Any]] = []
    rest = [tree]
    while rest:
        node = rest.pop()
        keys: Sequence[Any] = (
            list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        )
        found += [(node, key) for key in keys]
        rest += [node[key] for key in keys]
    return found


def mutate_xml(dice: random.Random, data: bytes) -> bytes:
    """Remove, repeat, move, nest, rename or fill an element."""
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        return data
    elements = list(root.iter(etree.Element))
    one, other = dice.choice(elements), dice.choice(elements)
    parent = one.getparent()
    match dice.randrange(7):
        case 0 if parent is not None:
            parent.remove(one)
        case 1 if parent is not None:
            for _ in range(dice.choice((1, 3, 30))):
                parent.append(copy.deepcopy(one))
        case 2:
            other.append(copy.deepcopy(one))
        case 3:
            one.tag = dice.choice((other.tag, "order", "{urn:x}a", "Envelope"))
        case 4:
            one.attrib[dice.choice(("a", "{http://www.w3.org/2001/XMLSchema-instance}nil", "id"))] = "true"
        case 5:
            one.tail = dice.choice(("text", " ", "\n"))
        case _:
            text = dice.choice(_TEXTS)
            one.text = text if text.isprintable() else None
    content = etree.tostring(root, encoding=dice.choice(("utf-8", "utf-16", "iso-8859-1", "us-ascii")))
    assert isinstance(content, bytes)
    return content


_BOUNDARY = re.compile(rb"boundary=\"?([^\";\r\n]+)")
_HEADERS = (
    b"Content-Type: multipart/mixed; boundary=b", b"Content-Transfer-Encoding: base64", b"Content-Type: message/rfc822",
    b"Content-Transfer-Encoding: uuencode", b"Content-Transfer-Encoding: quoted-printable", b"Content-ID: <a>",
    b"Content-Type: text/plain; charset=\xff", b"Content-Type: text/plain; name*0*=utf-8''%ff; name*1=x",
    b"Content-Disposition: attachment; filename*=utf-16''%00%d8", b"Content-Description: body", b"Content-Type: ;",
    b"Subject: =?utf-8?b?/////w==?=", b"Content-Type: application/pkcs7-mime; smime-type=signed-data",
)  # fmt: skip


def mutate_mime(dice: random.Random, data: bytes) -> bytes:
    """Insert a header, or a boundary at the start of a line, or change a boundary."""
    lines = data.split(b"\n")
    position = dice.randrange(len(lines))
    boundaries = [*_BOUNDARY.findall(data), b"b"]
    match dice.randrange(4):
        case 0 | 1:
            lines.insert(position, dice.choice(_HEADERS) + dice.choice((b"", b"\r", b"\r\n\r")))
        case 2:
            lines.insert(position, b"--" + dice.choice(boundaries) + dice.choice((b"", b"--", b"\r", b"--\r", b" ")))
        case _:
            return data.replace(dice.choice(boundaries), dice.choice((b"x", b"", b"a" * 80, b"\xe9", b"(")), 1)
    return b"\n".join(lines)


_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{40,}={0,2}\r?\n)+")


def mutate_base64(inner: Mutation) -> Mutation:
    """Return a mutation of what is encoded in base64 inside an input."""

    def mutate(dice: random.Random, data: bytes) -> bytes:
        blocks = list(_BASE64.finditer(data))
        if not blocks:
            return data
        block = dice.choice(blocks)
        try:
            content = base64.b64decode(block[0])
        except binascii.Error:
            return data
        return data[: block.start()] + base64.encodebytes(inner(dice, content)) + data[block.end() :]

    return mutate


def mutate_der(dice: random.Random, data: bytes) -> bytes:
    """Change a tag, a length or the content of an element of DER, or replace it by another element."""
    elements = _find_elements(data)
    if not elements:
        return data
    start, content, end = dice.choice(elements)
    match dice.randrange(5):
        case 0:
            return data[:start] + bytes([dice.choice((0x30, 0x31, 0x02, 0x04, 0x05, 0x06, 0xA0))]) + data[start + 1 :]
        case 1:
            return data[: content - 1] + bytes([dice.randrange(256)]) + data[content:]
        case 2:
            other = dice.choice(elements)
            return data[:start] + data[other[0] : other[2]] + data[end:]
        case 3:
            return data[:content] + dice.randbytes(end - content) + data[end:]
        case _:
            return data[:start] + data[end:]


def _find_elements(data: bytes) -> list[tuple[int, int, int]]:
    """Return the start, the start of the content and the end of each element."""
    found: list[tuple[int, int, int]] = []
    rest = [(0, len(data))]
    while rest:
        start, limit = rest.pop()
        while start + 2 <= limit:
            length, content = data[start + 1], start + 2
            if length & 0x80:
                content += length & 0x7F
                length = int.from_bytes(data[start + 2 : content], "big")
            end = content + length
            if end > limit:
                break
            found.append((start, content, end))
            if data[start] & 0x20:
                rest.append((content, end))
            start = end
    return found


#: The offsets of the fields of 16 and 32 bits in a local header, a directory entry and the end of the directory.
_ZIP_FIELDS = {
    b"PK\x03\x04": ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    b"PK\x01\x02": ((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4)),
    b"PK\x05\x06": ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
}


def mutate_zip(dice: random.Random, data: bytes) -> bytes:
    """Change a field of a header, or add a file to the archive."""
    if dice.random() < 0.1:
        return _add_file(dice, data)
    kind = dice.choice(list(_ZIP_FIELDS))
    found = [match.start() for match in re.finditer(re.escape(kind), data)]
    if not found:
        return data
    offset, size = dice.choice(_ZIP_FIELDS[kind])
    position = dice.choice(found) + offset
    value = dice.choice(_NUMBERS) if dice.random() < 0.7 else dice.randrange(1 << 16)
    packed = struct.pack("<H" if size == 2 else "<I", value & (0xFFFF if size == 2 else 0xFFFFFFFF))
    return data[:position] + packed + data[position + size :]


def _add_file(dice: random.Random, data: bytes) -> bytes:
    archive = io.BytesIO(data)
    try:
        with zipfile.ZipFile(archive, "a", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2))) as opened:
            opened.writestr(dice.choice(("b.json", "../a", "a/", "é", "order.json", "x" * 300)), b"{}")
    except Exception:  # the archive is damaged already, in one of many ways
        return data
    return archive.getvalue()
