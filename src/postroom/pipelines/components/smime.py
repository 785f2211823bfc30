"""S/MIME (RFC 8551): decrypts and verifies what was received, signs and encrypts what is sent."""

from __future__ import annotations

import base64
import binascii
import email.message
import email.parser
import email.policy
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.clock import system_clock
from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines.components.contract import Decoder, Encoder
from postroom.pipelines.components.mime import (
    MAX_SIZE,
    build_mime,
    encode_base64_lines,
    parse_mime,
    replace_content,
    size_problems,
)
from postroom.secrets.references import Secret
from postroom.system_properties import BTS, HTTP
from postroom.values import MAX_PROMOTED_LENGTH

if TYPE_CHECKING:
    from cryptography import x509

_ENVELOPED = ("application/pkcs7-mime", "application/x-pkcs7-mime")
_SIGNATURES = ("application/pkcs7-signature", "application/x-pkcs7-signature")
#: The maximum number of nested encryptions and signatures.
_MAX_LAYERS = 4


class SMime(Decoder):
    """Decrypts a message and verifies its signature. The result is MIME, which ``Mime`` can divide into parts.

    ``certificate`` and ``key`` are PEM files of the receiver. ``password`` is a ``postroom.secret(...)`` with the
    password of the key. ``trusted`` is a PEM file with the certificates of signers or of their authorities. All
    paths are absolute, and the files are read where the pipeline runs. The SHA-256 thumbprint of the signer's
    certificate is written as BTS.SignatureCertificate, its subject as BTS.OriginatorSID. A message that is not signed
    fails, unless ``must_be_signed`` is false. With ``must_be_encrypted`` a message that is not is_encrypted fails.
    Revocation is not checked.
    """

    certificate: str | None = None
    key: str | None = None
    password: Secret | None = None
    trusted: str | None = None
    must_be_signed: bool = True
    must_be_encrypted: bool = False
    max_size: int = MAX_SIZE

    def problems(self) -> list[str]:
        found = path_problems({"certificate": self.certificate, "key": self.key, "trusted": self.trusted})
        if (self.certificate is None) != (self.key is None):
            found.append("Decryption needs both certificate and key.")
        if self.must_be_encrypted and self.key is None:
            found.append("must_be_encrypted is True, but there is no key to decrypt messages with.")
        if self.must_be_signed and self.trusted is None:
            found.append("must_be_signed is True, but trusted is not set; set it, or must_be_signed=False.")
        if self.max_size < 1:
            found.append(f"max_size is {self.max_size}, but must be at least 1.")
        return found

    def decode(self, message: Message) -> Message:
        return self.decode_at(message, system_clock())

    def decode_at(self, message: Message, now: datetime) -> Message:
        """Decode a message. ``now`` is the time at which certificates must be valid."""
        # Remove a signer that was written before and is not verified.
        message = message.with_context(message.context.write(BTS.SignatureCertificate, None))
        content, parsed = parse_mime(message, max_size=self.max_size)
        signer: x509.Certificate | None = None
        is_encrypted = False
        for _ in range(_MAX_LAYERS):
            kind = _find_smime_type(parsed)
            if kind is None:
                break
            if kind == "enveloped-data":
                content, is_encrypted = self._decrypt(_read_der(parsed)), True
            else:
                if signer is not None:
                    raise PipelineFailure(
                        "The message is signed twice.", why="The sender would be ambiguous.", hint=_AGAIN
                    )
                content, signer = self._verify(content, parsed, now)
            parsed = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)
        self._check(signer is not None, is_encrypted)
        if signer is None and not is_encrypted:
            return message
        context = message.context
        if signer is not None:
            # The signer is the account of the sender. A party resolver finds the party.
            subject = signer.subject.rfc4514_string()[:MAX_PROMOTED_LENGTH]
            context = context.write(BTS.SignatureCertificate, thumbprint(signer)).write(BTS.OriginatorSID, subject)
        # The content type of the request was that of the S/MIME message. The content has its own.
        context = context.write(HTTP.ContentType, None)
        return message.with_body(content).with_context(context)

    def _check(self, is_signed: bool, is_encrypted: bool) -> None:
        for is_required, is_fulfilled, word in (
            (self.must_be_encrypted, is_encrypted, "encrypted"),
            (self.must_be_signed, is_signed, "signed"),
        ):
            if is_required and not is_fulfilled:
                raise PipelineFailure(
                    f"The message is not {word}.",
                    why=f"This pipeline accepts only messages that are {word}.",
                    hint=f"Have the sender send it {word}, or accept others with must_be_{word}=False.",
                )

    def _decrypt(self, der: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs7

        if self.certificate is None or self.key is None:
            raise PipelineFailure(
                "The message is encrypted, but the pipeline has no key.",
                hint="Set certificate and key of the component.",
            )
        key = read_private_key(self.key, self.password)
        try:
            return pkcs7.pkcs7_decrypt_der(der, read_certificates(self.certificate)[0], key, [])
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise PipelineFailure(
                "The message cannot be decrypted.",
                why=f"{error}.",
                hint="Compare the certificate that the sender uses with the certificate of this pipeline.",
            ) from None

    def _verify(self, content: bytes, parsed: email.message.Message, now: datetime) -> tuple[bytes, x509.Certificate]:
        from postroom.pipelines.components import signed_data

        if self.trusted is None:
            raise PipelineFailure(
                "The message is signed, but the pipeline has no trusted certificates.",
                hint="Set trusted of the component.",
            )
        trusted = read_certificates(self.trusted)
        if parsed.get_content_type() != "multipart/signed":
            return signed_data.verify(_read_der(parsed), None, trusted=trusted, now=now)
        inner, signature = _split_signed(content, parsed)
        return signed_data.verify(_read_der(signature), inner, trusted=trusted, now=now)


def path_problems(paths: Mapping[str, str | None]) -> list[str]:
    """Describe what is wrong with the paths of certificates and keys. They are read where the pipeline runs."""
    return [
        f"{name} is {path!r}; write the absolute path on the machines where the pipelines run."
        for name, path in paths.items()
        if path is not None and not Path(path).is_absolute()
    ]


_AGAIN = "Have the sender send the message again."


def thumbprint(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex()


def read_private_key(path: str, password: Secret | None) -> Any:
    """Return the key of a PEM file."""
    value = None if password is None else password.read().encode()
    try:
        return _load_private_key(_read(path), value)
    except (ValueError, TypeError) as error:
        raise unusable_failure(path, error) from None


@lru_cache(maxsize=8)
def _load_private_key(pem: bytes, password: bytes | None) -> Any:
    # Cached, because the check of an RSA key takes longer than all other steps of a message together.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(pem, password)


def _find_smime_type(parsed: email.message.Message) -> str | None:
    """Return the S/MIME type of an entity, or None if it is not S/MIME."""
    content_type = parsed.get_content_type()
    if content_type == "multipart/signed":
        return "signed-data"
    if content_type not in _ENVELOPED:
        return None
    kind = str(parsed.get_param("smime-type") or "enveloped-data").lower()
    if kind not in ("enveloped-data", "signed-data"):
        raise PipelineFailure(
            f"The message has the S/MIME type {kind}.",
            why="Supported are enveloped-data and signed-data.",
            hint="Have the sender send it encrypted or signed, but not compressed.",
        )
    return kind


def _read_der(entity: email.message.Message) -> bytes:
    """Return the CMS structure of an entity."""
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


def _split_signed(content: bytes, parsed: email.message.Message) -> tuple[bytes, email.message.Message]:
    """Return the first part of multipart/signed, byte for byte as it was signed, and the signature."""
    boundary = parsed.get_boundary()
    if not boundary:
        raise PipelineFailure("The S/MIME message is damaged.", why="It has no boundary.", hint=_AGAIN)
    line = rb"--" + re.escape(boundary.encode("utf-8", "surrogateescape"))
    pieces = re.split(rb"(?:\A|\r?\n)" + line + rb"(?:--)?[ \t]*(?:\r?\n|\Z)", content)
    # The pieces are: preamble, content, signature, epilogue.
    if len(pieces) != 4:
        raise PipelineFailure("The S/MIME message is damaged.", why="It must have exactly two parts.", hint=_AGAIN)
    inner = pieces[1]
    if b"\r\n" not in inner:
        # It was signed with CR LF and then stored with LF.
        inner = inner.replace(b"\n", b"\r\n")
    signature = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(pieces[2])
    if signature.get_content_type() not in _SIGNATURES:
        raise PipelineFailure(
            "The S/MIME message has no signature.",
            why=f"Its second part is {signature.get_content_type()}.",
            hint=_AGAIN,
        )
    return inner, signature


def read_certificates(path: str) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise unusable_failure(path, error) from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise unusable_failure(path, error) from None


def unusable_failure(path: str, error: Exception) -> PipelineFailure:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return PipelineFailure(
        f"{path} cannot be used.",
        why=f"{reason}.",
        hint="Put the file on the machines where the pipeline runs, and resume.",
    )


class SMimeEncoder(Encoder):
    """Writes all parts of the message as MIME, signs it, and encrypts it. ``SMime`` and then ``Mime`` read it.

    ``certificate`` and ``key`` are PEM files of the sender, for the signature. The file of the certificate may contain
    the certificates of its authorities, which are added to the message. ``password`` is a ``postroom.secret(...)`` with
    the password of the key. ``recipients`` is a PEM file with the certificates of the receivers, whose
    keys are RSA keys. All paths are absolute, and the files are read where the pipeline runs. Without ``certificate``
    the message is not signed; without ``recipients`` it is not encrypted. A message that is signed but not encrypted
    can be read without verifying it, unless ``clear`` is false.
    """

    certificate: str | None = None
    key: str | None = None
    password: Secret | None = None
    recipients: str | None = None
    clear: bool = True
    max_size: int = MAX_SIZE

    def problems(self) -> list[str]:
        found = path_problems({"certificate": self.certificate, "key": self.key, "recipients": self.recipients})
        if (self.certificate is None) != (self.key is None):
            found.append("A signature needs both certificate and key.")
        if self.certificate is None and self.key is None and self.recipients is None:
            found.append("Set certificate and key to sign messages, recipients to encrypt them, or all of them.")
        return found + size_problems(self.max_size)

    def encode(self, message: Message) -> Message:
        content = build_mime(message, max_size=self.max_size)
        if self.certificate is not None and self.key is not None:
            content = self._sign(content, self.certificate, self.key, boundary=f"_signed_{message.message_id.hex}")
        if self.recipients is not None:
            content = self._encrypt(content, self.recipients)
        return replace_content(message, content)

    def _sign(self, content: bytes, certificate: str, key: str, *, boundary: str) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

        signer, *authorities = _read_all(certificate)
        private_key = read_private_key(key, self.password)
        if private_key.public_key() != signer.public_key():
            raise PipelineFailure(
                f"The key in {key} is not the key of the certificate in {certificate}.",
                hint="Put both files of one certificate on the machines where the pipeline runs, and resume.",
            )
        options = [pkcs7.PKCS7Options.Binary]
        if self.clear:
            options.append(pkcs7.PKCS7Options.DetachedSignature)
        try:
            builder = pkcs7.PKCS7SignatureBuilder().set_data(content)
            builder = builder.add_signer(signer, private_key, hashes.SHA256())
            for authority in authorities:
                builder = builder.add_certificate(authority)
            der = builder.sign(Encoding.DER, options)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise unusable_failure(key, error) from None
        return _join_signature(content, der, boundary) if self.clear else _wrap(der, "signed-data")

    def _encrypt(self, content: bytes, recipients: str) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

        try:
            builder = pkcs7.PKCS7EnvelopeBuilder().set_data(content)
            builder = builder.set_content_encryption_algorithm(AES256)
            for certificate in _read_all(recipients):
                builder = builder.add_recipient(certificate)
            der = builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise unusable_failure(recipients, error) from None
        return _wrap(der, "enveloped-data")


def _read_all(path: str) -> list[Any]:
    certificates = read_certificates(path)
    if not certificates:
        raise unusable_failure(path, ValueError("it contains no certificate"))
    return certificates


def _wrap(der: bytes, kind: str) -> bytes:
    """Return a MIME entity with a CMS structure."""
    headers = (
        "MIME-Version: 1.0\r\n"
        f"Content-Type: application/pkcs7-mime; smime-type={kind}; name=smime.p7m\r\n"
        "Content-Transfer-Encoding: base64\r\n"
        "Content-Disposition: attachment; filename=smime.p7m\r\n\r\n"
    )
    return headers.encode() + encode_base64_lines(der)


def _join_signature(content: bytes, der: bytes, boundary: str) -> bytes:
    """Return a multipart/signed entity: the content as it was signed, then its signature."""
    start = (
        "MIME-Version: 1.0\r\n"
        'Content-Type: multipart/signed; protocol="application/pkcs7-signature"; micalg=sha-256; '
        f'boundary="{boundary}"\r\n\r\n--{boundary}\r\n'
    )
    between = (
        f"\r\n--{boundary}\r\n"
        "Content-Type: application/pkcs7-signature; name=smime.p7s\r\n"
        "Content-Transfer-Encoding: base64\r\n"
        "Content-Disposition: attachment; filename=smime.p7s\r\n\r\n"
    )
    return b"".join(
        (start.encode(), content, between.encode(), encode_base64_lines(der), f"--{boundary}--\r\n".encode())
    )
