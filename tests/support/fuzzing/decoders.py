"""Fuzz targets for the decoders: MIME, S/MIME and zip."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from postroom.message import Context, Message
from postroom.pipelines.components import Mime, SMime, Zip
from postroom.system_properties import BTS, HTTP
from tests.support.certificates import NOW, Identity, issue
from tests.support.fuzzing.mutations import (
    mutate_base64,
    mutate_bytes,
    mutate_der,
    mutate_lines,
    mutate_mime,
    mutate_zip,
)
from tests.support.fuzzing.target import MessageLost, Target, choose

_ORDER = b'Content-Type: application/json\r\n\r\n{"region": "EU"}\r\n'
_MIME = (
    b'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"; start="<two>"\r\n\r\npreamble\r\n--b\r\n'
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nn=C3=A9=\r\n\r\n"
    b'--b\r\nContent-ID: <two>\r\nContent-Type: application/json; name="a.json"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(b'{"region": "EU", "total": 10.5, "id": 1234}')
    + b"\r\n--b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n"
)  # fmt: skip
_MIME_WORDS = [
    *b"--b --b-- --c boundary= \r\n\r\n \n\n : ; = =?utf-8?q?=ff?= \0 \xff charset=utf-7 base64 multipart/".split(b" "),
    b"\r\n ", b"\r\n\t", b"=\r\n", b"filename*0*=x''%",
]  # fmt: skip


def make_mime_target() -> Target:
    component = Mime(allow_non_mime=True)
    by_type = Mime(body_type="application/*", max_parts=5, max_nesting=2)
    in_request = Context().write(HTTP.ContentType, 'multipart/related; boundary="b"')

    def check(data: bytes) -> str:
        message = Message.of(data)
        return _decode(component, message) if choose(data, 2) else _decode(by_type, message.with_context(in_request))

    return Target(
        check=check,
        seeds=[_MIME, _ORDER, b"From: a\nTo: b\nSubject: c\nContent-Type: message/rfc822\n\n" + _MIME, b"no mime"],
        mutations=[mutate_mime, mutate_lines, mutate_bytes(_MIME_WORDS), mutate_base64(mutate_bytes([]))],
    )


def _decode(component: Mime, message: Message) -> str:
    decoded = component.decode(message)
    if decoded.body is None:
        raise MessageLost("the decoded message has no body part")
    if len({part.name for part in decoded.parts}) != len(decoded.parts):
        raise MessageLost("two parts have the same name")
    return f"{len(decoded.parts)} parts"


def make_smime_target(folder: Path) -> Target:
    """Return the target for S/MIME. A message that is accepted as signed must be one that the sender signed."""
    authority = issue("Authority", is_authority=True, elliptic=True)
    receiver, sender = issue("Receiver", issuer=authority), issue("Acme", issuer=authority, elliptic=True)
    stranger = issue("Stranger", elliptic=True)
    certificate, key = receiver.write(folder, "receiver")
    trusted = folder / "trusted.pem"
    trusted.write_bytes(authority.pem)
    signing = SMime(trusted=str(trusted), certificate=certificate, key=key)
    decrypting = SMime(trusted=str(trusted), certificate=certificate, key=key, must_be_signed=False)
    in_request = Context().write(HTTP.ContentType, "application/pkcs7-mime; smime-type=signed-data")
    der = _sign(sender, Encoding.DER, [])

    def check(data: bytes) -> str:
        message = Message.of(data)
        is_der = data.startswith(b"0")
        decoded = (decrypting if b"enveloped" in data else signing).decode_at(
            message.with_context(in_request) if is_der else message, NOW
        )
        if decoded.body is None:
            raise MessageLost("the decoded message has no body part")
        is_signed = BTS.SignatureCertificate in decoded.context
        if is_signed and b"".join(decoded.data.split()) != b"".join(_ORDER.split()):
            raise MessageLost("a content that the sender did not sign was accepted as signed")
        return f"accepted, signed: {is_signed}"

    signed = _sign(sender, Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature])
    head = b"MIME-Version: 1.0\r\nContent-Type: application/pkcs7-mime; smime-type=signed-data\r\n"
    words = [*_MIME_WORDS, b"enveloped-data", b"signed-data", b"application/pkcs7-signature", b"protocol=", b"0\x80"]
    return Target(
        check=check,
        seeds=[
            signed,
            head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(der),
            der,
            _encrypt(signed, receiver),
            _encrypt(_ORDER, receiver),
            _sign(stranger, Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature]),
        ],
        mutations=[
            mutate_der,
            mutate_base64(mutate_der),
            mutate_base64(mutate_der),
            mutate_mime,
            mutate_lines,
            mutate_bytes(words),
        ],
    )


def _sign(signer: Identity, encoding: Encoding, options: list[pkcs7.PKCS7Options]) -> bytes:
    builder = pkcs7.PKCS7SignatureBuilder().set_data(_ORDER)
    return builder.add_signer(signer.certificate, signer.key, hashes.SHA256()).sign(encoding, options)


def _encrypt(content: bytes, receiver: Identity) -> bytes:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(content).add_recipient(receiver.certificate)
    return builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])


def make_zip_target() -> Target:
    component = Zip(max_size=1 << 20, max_entries=20)
    json_only = Zip(entry="*.json", max_size=1 << 20)

    def check(data: bytes) -> str:
        decoder = component if choose(data, 2) else json_only
        size = sum(map(len, decoder.decode(Message.of(data)).chunks()))
        return f"{min(size, 1)} bytes"

    return Target(
        check=check,
        seeds=[
            _zip({"order.json": b'{"region": "EU"}' * 20}),
            _zip({"order.json": b"stored"}, zipfile.ZIP_STORED),
            _zip({"a/": b"", "a/order.json": b"x" * 5000, "a/other.xml": b"<a/>"}),
            _zip({}),
            _zip({"order.json": b"y" * 100}, comment=b"PK\x05\x06 a comment"),
            _zip({"order.json": b"z"}, zipfile.ZIP_LZMA),
        ],
        mutations=[mutate_zip, mutate_zip, mutate_bytes([b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"])],
    )


def _zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, *, comment: bytes = b"") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.comment = comment
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return content.getvalue()
