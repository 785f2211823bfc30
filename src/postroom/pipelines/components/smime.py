"""A decoder for S/MIME (RFC 8551): decrypts with our key, verifies the sender's signature."""

from __future__ import annotations

import base64
import binascii
import email.message
import email.parser
import email.policy
import os
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.clock import system_clock
from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines.components.contract import Decoder
from postroom.pipelines.components.mime import MAX_SIZE, parsed_mime
from postroom.system_properties import BTS, HTTP
from postroom.values import MAX_PROMOTED_LENGTH

if TYPE_CHECKING:
    from cryptography import x509

_ENVELOPED = ("application/pkcs7-mime", "application/x-pkcs7-mime")
_SIGNATURES = ("application/pkcs7-signature", "application/x-pkcs7-signature")
#: An encrypted message in which a signed one is, and once more the other way round.
_MAX_LAYERS = 4


class SMime(Decoder):
    """Takes encryption and signatures off a message; what is left is MIME, for ``Mime`` to take apart.

    ``certificate`` and ``key`` are PEM files with our own, ``password`` the name of an environment variable with the
    password of the key; ``trusted`` is a PEM file with the certificates that signers, or the authorities of their
    certificates, have. All of them are read where the pipeline runs, and are named by whole paths. The SHA-256
    thumbprint of the signer's certificate is written as BTS.SignatureCertificate, its subject as BTS.OriginatorSID. A
    message that is not signed (or with ``must_be_encrypted``, not encrypted) is refused, unless ``must_be_signed`` is
    false. Revocation is not asked for.
    """

    certificate: str | None = None
    key: str | None = None
    password: str | None = None
    trusted: str | None = None
    must_be_signed: bool = True
    must_be_encrypted: bool = False
    max_size: int = MAX_SIZE

    def problems(self) -> list[str]:
        found = []
        for name, path in {"certificate": self.certificate, "key": self.key, "trusted": self.trusted}.items():
            if path is not None and not Path(path).is_absolute():
                found.append(f"{name} is {path!r}; write the whole path, as it is where the pipelines run.")
        if (self.certificate is None) != (self.key is None):
            found.append("To decrypt, both certificate and key are needed.")
        if self.must_be_encrypted and self.key is None:
            found.append("Messages must be encrypted, and there is no key to decrypt them with.")
        if self.must_be_signed and self.trusted is None:
            found.append("Messages must be signed, and nobody is trusted; give trusted, or must_be_signed=False.")
        if self.max_size < 1:
            found.append(f"max_size is {self.max_size}, but must be at least 1.")
        return found

    def decode(self, message: Message) -> Message:
        return self.decode_at(message, system_clock())

    def decode_at(self, message: Message, now: datetime) -> Message:
        """The same at another time, which certificates have to be valid at."""
        # Whatever was said before about who has signed it does not count.
        message = message.with_context(message.context.write(BTS.SignatureCertificate, None))
        content, parsed = parsed_mime(message, max_size=self.max_size)
        signer: x509.Certificate | None = None
        encrypted = False
        for _ in range(_MAX_LAYERS):
            kind = _kind(parsed)
            if kind is None:
                break
            if kind == "enveloped-data":
                content, encrypted = self._decrypted(_der(parsed)), True
            else:
                if signer is not None:
                    raise PipelineFailure(
                        "The message is signed twice.", why="Whose message it is would not be clear.", hint=_AGAIN
                    )
                content, signer = self._verified(content, parsed, now)
            parsed = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)
        self._check(signer is not None, encrypted)
        if signer is None and not encrypted:
            return message
        context = message.context
        if signer is not None:
            # Whoever signs is the account that the message comes from; which party that is, a resolver says.
            subject = signer.subject.rfc4514_string()[:MAX_PROMOTED_LENGTH]
            context = context.write(BTS.SignatureCertificate, thumbprint(signer)).write(BTS.OriginatorSID, subject)
        # The type that the request had was that of the wrapping; what is left brings its own.
        context = context.write(HTTP.ContentType, None)
        return message.with_body(content).with_context(context)

    def _check(self, is_signed: bool, is_encrypted: bool) -> None:
        for demanded, is_so, word in (
            (self.must_be_encrypted, is_encrypted, "encrypted"),
            (self.must_be_signed, is_signed, "signed"),
        ):
            if demanded and not is_so:
                raise PipelineFailure(
                    f"The message is not {word}.",
                    why=f"This pipeline takes only messages that are {word}.",
                    hint=f"Have the sender send it {word}, or let others pass with must_be_{word}=False.",
                )

    def _decrypted(self, der: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs7

        if self.certificate is None or self.key is None:
            raise PipelineFailure(
                "The message is encrypted, and the pipeline has no key.",
                hint="Give the component our certificate and its key.",
            )
        try:
            return pkcs7.pkcs7_decrypt_der(der, _certificates(self.certificate)[0], self._private_key(), [])
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise PipelineFailure(
                "The message cannot be decrypted.",
                why=f"{error}.",
                hint="Compare the certificate that the sender encrypts for with that of this pipeline.",
            ) from None

    def _private_key(self) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        assert self.key is not None
        password = os.environ.get(self.password) if self.password is not None else None
        try:
            return load_pem_private_key(_read(self.key), None if password is None else password.encode())
        except (ValueError, TypeError) as error:
            raise _unusable(self.key, error) from None

    def _verified(self, content: bytes, parsed: email.message.Message, now: datetime) -> tuple[bytes, x509.Certificate]:
        from postroom.pipelines.components import signed_data

        if self.trusted is None:
            raise PipelineFailure(
                "The message is signed, and the pipeline trusts nobody.",
                hint="Give the component the trusted certificates.",
            )
        trusted = _certificates(self.trusted)
        if parsed.get_content_type() != "multipart/signed":
            return signed_data.verify(_der(parsed), None, trusted=trusted, now=now)
        inner, signature = _signed_parts(content, parsed)
        return signed_data.verify(_der(signature), inner, trusted=trusted, now=now)


_AGAIN = "Have the sender send the message again."


def thumbprint(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex()


def _kind(parsed: email.message.Message) -> str | None:
    """What of S/MIME an entity is; None if it is something else."""
    content_type = parsed.get_content_type()
    if content_type == "multipart/signed":
        return "signed-data"
    if content_type not in _ENVELOPED:
        return None
    kind = str(parsed.get_param("smime-type") or "enveloped-data").lower()
    if kind not in ("enveloped-data", "signed-data"):
        raise PipelineFailure(
            f"The message is S/MIME of the type {kind}.",
            why="Enveloped data and signed data are taken.",
            hint="Have the sender send it encrypted or signed, and not compressed.",
        )
    return kind


def _der(entity: email.message.Message) -> bytes:
    """The CMS structure in an entity."""
    try:
        encoding = str(entity.get("Content-Transfer-Encoding", "")).strip().lower()
        payload = entity.get_payload()
        if encoding == "base64" and isinstance(payload, str):
            return base64.b64decode(re.sub(r"\s", "", payload), validate=True)
        content = entity.get_payload(decode=True)
        if isinstance(content, bytes) and content:
            return content
    except (binascii.Error, ValueError) as error:
        raise PipelineFailure("The S/MIME message is damaged.", why=f"{error}.", hint=_AGAIN) from None
    raise PipelineFailure("The S/MIME message is empty.", hint=_AGAIN)


def _signed_parts(content: bytes, parsed: email.message.Message) -> tuple[bytes, email.message.Message]:
    """The first part of multipart/signed, byte by byte as it was signed, and the signature."""
    boundary = parsed.get_boundary()
    if not boundary:
        raise PipelineFailure("The S/MIME message is damaged.", why="It names no boundary.", hint=_AGAIN)
    line = rb"--" + re.escape(boundary.encode("utf-8", "surrogateescape"))
    pieces = re.split(rb"(?:\A|\r?\n)" + line + rb"(?:--)?[ \t]*(?:\r?\n|\Z)", content)
    # Before the first boundary, the content, the signature, after the last.
    if len(pieces) != 4:
        raise PipelineFailure("The S/MIME message is damaged.", why="It has not exactly two parts.", hint=_AGAIN)
    inner = pieces[1]
    if b"\r\n" not in inner:
        # Signed as mail is sent, and kept with the line ends of a system.
        inner = inner.replace(b"\n", b"\r\n")
    signature = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(pieces[2])
    if signature.get_content_type() not in _SIGNATURES:
        raise PipelineFailure(
            "The S/MIME message has no signature.",
            why=f"Its second part is {signature.get_content_type()}.",
            hint=_AGAIN,
        )
    return inner, signature


def _certificates(path: str) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise _unusable(path, error) from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: str, error: Exception) -> PipelineFailure:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return PipelineFailure(
        f"{path} cannot be used.",
        why=f"{reason}.",
        hint="It is read where the pipeline runs. Put it there, and resume.",
    )
