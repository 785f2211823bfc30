"""Certificates for tests: an authority, certificates that it has issued, and their keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 6, 1, tzinfo=UTC)
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, folder: Path, name: str, password: str | None = None) -> tuple[str, str]:
        """Write certificate and key as PEM files. Return the paths."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(self.pem)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key.write_bytes(
            self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return str(certificate), str(key)


def issue(
    name: str,
    *,
    issuer: Identity | None = None,
    is_authority: bool = False,
    elliptic: bool = False,
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.EMAIL_PROTECTION,
    may_sign: bool = True,
    valid: tuple[datetime, datetime] = (NOW - timedelta(days=30), NOW + timedelta(days=365)),
) -> Identity:
    """Issue a certificate by ``issuer``, or a self-signed one."""
    key: Key = ec.generate_private_key(ec.SECP256R1()) if elliptic else rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing: Key = issuer.key if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=may_sign and not is_authority,
                content_commitment=False,
                key_encipherment=not is_authority,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if usage is not None and not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Identity(certificate=builder.sign(signing, hashes.SHA256()), key=key)
