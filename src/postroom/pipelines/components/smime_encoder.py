"""An encoder for S/MIME (RFC 8551): signs with the sender's key and encrypts for the receivers."""

from __future__ import annotations

import base64
from typing import Any

from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines.components.contract import Encoder
from postroom.pipelines.components.mime import MAX_SIZE
from postroom.pipelines.components.mime_encoder import build_mime, replace_content, size_problems
from postroom.pipelines.components.smime import path_problems, read_certificates, read_private_key, unusable_failure
from postroom.secrets.references import Secret


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
    return headers.encode() + _encode_lines(der)


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
    return b"".join((start.encode(), content, between.encode(), _encode_lines(der), f"--{boundary}--\r\n".encode()))


def _encode_lines(data: bytes) -> bytes:
    encoded = base64.b64encode(data)
    return b"".join(encoded[start : start + 76] + b"\r\n" for start in range(0, len(encoded), 76))
